//! Bytes over HTTP: ranges of files, and small files whole.
//!
//! Knows neither safetensors nor the Hub. Redirects are followed here and not by the HTTP library,
//! because the answers on the way carry headers that the last one does not, because a signed URL
//! serves only the range it was signed for and must not be kept, and because the token may go to one
//! origin only.

mod address;
mod attempt;
mod body;
mod clients;
mod decode;
mod error;
mod gate;
mod head_request;
#[cfg(test)]
pub(crate) mod properties;
mod range;
mod rate_limit;
mod redirect;
mod retry;
mod stream;
pub(crate) mod transfer;
mod url;

use std::mem::replace;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ::url::{Origin, Url};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, RANGE};
use reqwest::{Client, RequestBuilder, Response};
use tracing::Instrument;

use self::address::Guard;
use self::attempt::Attempt;
use self::clients::{Clients, Failed};
use self::gate::Gate;
use crate::http::transfer::{RangeBytes, RequestMeter};

pub use address::AddressPolicy;
pub use error::{HttpError, RangeError, ResponseHeaders, TransportKind};
pub(crate) use retry::RequestFailure;
pub use retry::RetryPolicy;
pub use url::SafeUrl;

/// How long each step may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) read: Duration,
    pub(crate) request: Duration,
}

/// What an HTTP client is to be like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The server that the token is for, and whose kind of address is allowed.
    pub(crate) endpoint: Url,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) user_agent: HeaderValue,
    pub(crate) addresses: AddressPolicy,
    /// Whether proxies are those of the environment, else none.
    pub(crate) proxy_from_env: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) retry: RetryPolicy,
}

/// The headers of every answer on the way, the last one's last.
#[derive(Debug, Default)]
pub(crate) struct ResponseChain(Vec<HeaderMap>);

impl ResponseChain {
    /// The value of a header in the first answer that has it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|headers| headers.get(name)?.to_str().ok())
    }
}

/// An HTTP client that hands out ranges and small files.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    clients: Arc<Clients>,
    guard: Arc<Guard>,
    gate: Arc<Gate>,
    settings: Arc<Settings>,
}

impl Http {
    pub(crate) fn new(settings: Settings) -> Self {
        let guard = Guard::new(settings.addresses, &settings.endpoint);
        let clients = Arc::new(Clients::new(settings.clone(), Arc::clone(&guard)));
        Self { clients, guard, gate: Arc::default(), settings: Arc::new(settings) }
    }

    /// The same client, its connections and waits shared, without its token; `None` if it has none.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        self.settings.token.as_ref()?;
        let settings = Settings { token: None, ..Settings::clone(&self.settings) };
        Some(Self { settings: Arc::new(settings), ..self.clone() })
    }

    /// Reads a range of a file. The chunk is shorter than the range only if the file ends in it.
    pub(crate) async fn read_range(
        &self,
        url: &Url,
        range: &Range<u64>,
        meter: &RequestMeter,
    ) -> Result<(RangeBytes, ResponseChain), RequestFailure> {
        let mut attempts = self.settings.retry.attempts_at(url, &self.gate);
        loop {
            let attempt = attempts.begin(Some(range), meter);
            let read = self.try_range(range, &attempt).instrument(attempt.span()).await;
            match attempt.end(read) {
                Ok(read) => return Ok(read),
                Err(error) => attempts.after(error).await?,
            }
        }
    }

    async fn try_range(
        &self,
        range: &Range<u64>,
        attempt: &Attempt<'_>,
    ) -> Result<(RangeBytes, ResponseChain), HttpError> {
        let (response, trail) = self.get(attempt).await?;
        let part = match range::check(range, response.status(), response.headers()) {
            Ok(Some(part)) => part,
            Ok(None) => return Err(HttpError::status(attempt.url, &response)),
            Err(source) => return Err(body::refuse(response, source, attempt).await),
        };
        let bytes = body::part(response, &part, attempt).await?;
        Ok((RangeBytes { bytes, file_size: part.file_size }, trail))
    }

    /// Sends a request and follows it to the answer that is no redirect.
    async fn get(&self, attempt: &Attempt<'_>) -> Result<(Response, ResponseChain), HttpError> {
        let mut url = attempt.url.clone();
        let mut trail = ResponseChain::default();
        loop {
            let response = self.send(url, attempt).await?;
            trail.0.push(response.headers().clone());
            match redirect::target(&response, trail.0.len())? {
                Some(next) => {
                    attempt.redirected(response.url(), &next);
                    url = next;
                }
                None => return Ok((response, trail)),
            }
        }
    }

    /// Sends one request, once the server may be asked.
    async fn send(&self, url: Url, attempt: &Attempt<'_>) -> Result<Response, HttpError> {
        let (safe_url, origin) = (SafeUrl::from(&url), url.origin());
        if !self.guard.allows(&url) {
            return Err(HttpError::PrivateAddress { url: safe_url });
        }
        let pass = self.gate.pass(&origin, self.settings.retry.longest_elapsed).await;
        pass.map_err(|wait| HttpError::RateLimited { url: safe_url.clone(), wait })?;
        attempt.count_request();
        let answer = self.answer(url, &origin, attempt).await;
        let response = answer.map_err(|error| HttpError::transport(safe_url, error))?;
        let status = response.status().as_u16();
        attempt.answered(status);
        if let Some(wait) = rate_limit::of(status, response.headers()) {
            self.gate.close(&origin, wait);
        }
        Ok(response)
    }

    /// The answer to a request, in whichever version of HTTP the server speaks.
    async fn answer(
        &self,
        url: Url,
        origin: &Origin,
        attempt: &Attempt<'_>,
    ) -> Result<Response, reqwest::Error> {
        let mut has_waited = false;
        loop {
            // Whoever kept a connection while waiting for another could wait for ever.
            attempt.hold(None);
            let (client, permit) = self.clients.of(&url).await?;
            let is_http2_alone = permit.is_none();
            attempt.hold(permit);
            match self.request(&client, url.clone(), attempt).send().await {
                Ok(response) => {
                    if self.clients.answered(origin, &response) {
                        attempt.hold(None);
                    }
                    return Ok(response);
                }
                Err(error) if is_http2_alone => match self.clients.failed(origin, &error) {
                    Failed::Refused => {}
                    Failed::ForAnother if !replace(&mut has_waited, true) => {}
                    Failed::ForAnother | Failed::Itself => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn request(&self, client: &Client, url: Url, attempt: &Attempt<'_>) -> RequestBuilder {
        let is_endpoint = url.origin() == self.settings.endpoint.origin();
        let token = self.settings.token.as_ref().filter(|_| is_endpoint);
        let request = client.request(attempt.method.clone(), url);
        let request = request.timeout(self.settings.timeouts.request);
        let request = match attempt.range {
            Some(range) => request
                .header(RANGE, format!("bytes={}", attempt::shown(range)))
                .header(ACCEPT_ENCODING, "identity"),
            None => request.header(ACCEPT_ENCODING, "gzip"),
        };
        match token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }
}
