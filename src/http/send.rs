//! Sends the request of one attempt: through the rate limit gate, over HTTP/2 or HTTP/1.1, and along its redirects.

use std::sync::Arc;

use ::url::Url;
use hf_meta_count::results::text;
use hf_meta_inspect::{HttpError, HttpErrorKind};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};

use super::SafeUrl;
use super::attempt::{Attempt, Requested, ResponseChain, SHORT_RANGE, transfer_time};
use super::client::Http;
use super::error;
use super::rate_limit_gate::GateKey;

/// The maximum number of redirects per request. The Hub needs two (to the canonical repository name, then to the
/// CDN), and a mirror in front of it needs one more.
const MAX_REDIRECTS: usize = 6;

impl Http {
    /// Sends the request of an attempt and follows redirects to the final response.
    ///
    /// A request for a header ends with the first response that has it, and never leaves the origin.
    pub(super) async fn send_following_redirects(
        &self,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Response, ResponseChain), HttpError> {
        let (mut url, mut chain) = (attempt.url.clone(), ResponseChain::default());
        loop {
            let response = self.send(url, attempt).await?;
            chain.0.push(response.headers().clone());
            let is_complete = match attempt.requested {
                Requested::Header(name) => chain.header(name).is_some(),
                Requested::Range(_) | Requested::File => false,
            };
            if is_complete || !is_redirect(response.status()) {
                self.record_redirect(attempt, &response);
                return Ok((response, chain));
            }
            let location = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
            let target = resolve(response.url(), location, chain.0.len()).map_err(|reason| {
                let url = SafeUrl::from(response.url());
                let message = format!("cannot follow the redirect from `{url}`: {reason}");
                HttpError::new(HttpErrorKind::Redirect, message)
            })?;
            let is_same_origin = target.origin() == attempt.url.origin();
            if matches!(attempt.requested, Requested::Header(_)) && !is_same_origin {
                return Ok((response, chain));
            }
            attempt.log_redirect(response.url(), &target);
            url = target;
        }
    }

    /// Sends one request once the rate limit gate admits it, and applies the rate limits of the response.
    pub(super) async fn send(
        &self,
        url: Url,
        attempt: &mut Attempt<'_>,
    ) -> Result<Response, HttpError> {
        let (safe_url, origin) = (SafeUrl::from(&url), url.origin());
        if !self.guard.allows(&url) {
            return Err(error::forbidden_address(&safe_url));
        }
        // Holding one permit while waiting for another could deadlock.
        (attempt.request_permit, attempt.connection_permit) = (None, None);
        let max_wait = self.settings.retry_policy.max_wait;
        let permit = self.gate.acquire(GateKey::from(&url), attempt.meter, max_wait).await;
        let permit = permit.map_err(|wait| {
            let ends_in = text::duration(wait);
            let message =
                format!("the rate limit of `{safe_url}` is reached; it ends in {ends_in}");
            HttpError::new(HttpErrorKind::RateLimited { wait }, message)
        })?;
        // The semaphore is never closed.
        attempt.request_permit = Arc::clone(&self.in_flight).acquire_owned().await.ok();
        attempt.meter.count_request(origin == self.endpoint.origin());
        let requested = attempt.requested;
        let request = |client: &Client| self.request(client, url.clone(), requested);
        // The endpoint only redirects to the server that has the data.
        let has_data = self.reads_data(requested) && origin != self.endpoint.origin();
        let sent = self.clients.send(&url, has_data, request).await;
        let proxy = || self.settings.proxies.as_ref()?.proxy_for(&origin);
        let (response, connection_permit) =
            sent.map_err(|failure| error::transport(&safe_url, failure, proxy))?;
        attempt.connection_permit = connection_permit;
        let status = response.status().as_u16();
        attempt.status = Some(status);
        permit.record(status, response.headers());
        Ok(response)
    }

    /// Returns whether a request asks for data, and for more of them than a sample.
    fn reads_data(&self, requested: Requested<'_>) -> bool {
        self.sink.is_some() && requested.length() > SHORT_RANGE
    }

    /// Builds a request. The token and the configured headers are added for the endpoint's origin only.
    fn request(&self, client: &Client, url: Url, requested: Requested<'_>) -> RequestBuilder {
        let is_endpoint = url.origin() == self.endpoint.origin();
        let method = match requested {
            Requested::Header(_) => Method::HEAD,
            Requested::Range(_) | Requested::File => Method::GET,
        };
        let timeout =
            self.settings.request_timeout.saturating_add(transfer_time(requested.length()));
        let request = client.request(method, url).timeout(timeout);
        let request = match requested.range() {
            Some(range) => {
                request.header(RANGE, format!("bytes={range}")).header(ACCEPT_ENCODING, "identity")
            }
            None => request.header(ACCEPT_ENCODING, "gzip"),
        };
        if !is_endpoint {
            return request;
        }
        let request = request.headers(self.settings.headers.clone());
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }
}

/// Returns whether a response with this status can have a target.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Resolves a `Location` header (RFC 9110, section 10.2.2), or returns the reason not to follow it. `responses` counts
/// the responses so far.
fn resolve(from: &Url, location: Option<&[u8]>, responses: usize) -> Result<Url, &'static str> {
    if responses > MAX_REDIRECTS {
        return Err("too many redirects");
    }
    let location = location.ok_or("no `Location` header")?;
    let location = std::str::from_utf8(location).map_err(|_| "the target is not a URL")?;
    let target = from.join(location).map_err(|_| "the target is not a URL")?;
    match target.scheme() {
        "https" => Ok(target),
        "http" if from.scheme() == "http" => Ok(target),
        "http" => Err("the target is `http`, not `https`"),
        _ => Err("the target is not HTTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_never_downgrade_https() {
        let cases = [
            ("https://hub.example/a/b", "/api/c?d=e", Ok("https://hub.example/api/c?d=e")),
            ("https://hub.example/a/b", "https://cdn.example/x", Ok("https://cdn.example/x")),
            ("https://hub.example/a/b", "//cdn.example/x", Ok("https://cdn.example/x")),
            ("http://127.0.0.1:1/a", "http://127.0.0.1:2/x", Ok("http://127.0.0.1:2/x")),
            ("http://127.0.0.1:1/a", "https://cdn.example/x", Ok("https://cdn.example/x")),
            (
                "https://hub.example/a/b",
                "http://cdn.example/x",
                Err("the target is `http`, not `https`"),
            ),
            ("https://hub.example/a/b", "file:///etc/passwd", Err("the target is not HTTP")),
            ("https://hub.example/a/b", "https://[", Err("the target is not a URL")),
            ("https://hub.example/a/b", "\u{ff}", Ok("https://hub.example/a/%C3%BF")),
        ];
        for (from, location, target) in cases {
            let found = resolve(&Url::parse(from).unwrap(), Some(location.as_bytes()), 1);
            assert_eq!(
                found.as_ref().map(Url::as_str).map_err(|reason| *reason),
                target,
                "{location}"
            );
        }
        let from = Url::parse("https://hub.example/").unwrap();
        assert!(resolve(&from, None, 1).is_err());
        assert!(resolve(&from, Some(b"\xff"), 1).is_err());
        assert!(resolve(&from, Some(b"/"), MAX_REDIRECTS).is_ok());
        assert!(resolve(&from, Some(b"/"), MAX_REDIRECTS + 1).is_err());
    }
}
