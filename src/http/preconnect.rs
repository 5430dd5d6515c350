//! Connects early to the server that the endpoint is expected to redirect to.
//!
//! The Hub redirects range requests for large files to a CDN. Connecting only after the first redirect would delay
//! the call by two round trips, one for TCP and one for TLS. So the client remembers the origin of the last redirect,
//! and connects to it while the Hub handles the first request.
//!
//! The connection is opened by a `HEAD` request for `/`, and the response is ignored. The request is sent like any
//! other, so the address policy, the proxies and the token rules apply. A wrong guess costs one idle connection.

use ::url::Url;
use reqwest::Response;
use tokio::time::timeout;

use super::attempt::{Attempt, Requested};
use super::client::{Http, KnownServers};
use super::error::HttpError;
use crate::base::lock;
use crate::base::meter::CallMeter;

impl Http {
    /// Returns the facts for later processes.
    pub(crate) fn known_servers(&self) -> KnownServers {
        let redirect = lock(&self.redirect_origin);
        let origin = redirect.0.as_ref().map(|(url, _)| url.origin().ascii_serialization());
        let are_http1 = self.clients.are_http1();
        KnownServers { redirect_origin: origin.unwrap_or_default(), are_http1 }
    }

    /// Restores the facts that an earlier process saved. They may be wrong or hostile.
    pub(crate) fn restore(&self, servers: &KnownServers) {
        if servers.are_http1 {
            self.clients.mark_http1(&self.endpoint);
        }
        lock(&self.redirect_origin).restore(&servers.redirect_origin);
    }

    /// Opens a connection to the redirect origin in the background, if a request for `url` may be redirected there.
    pub(super) fn preconnect(&self, url: &Url) {
        // The call itself needs a permit, and must not wait for this request.
        let is_busy = self.in_flight.available_permits() < 2;
        if is_busy || url.origin() != self.endpoint.origin() {
            return;
        }
        let due = lock(&self.redirect_origin).take_due();
        if let Some(url) = due {
            let http = self.clone();
            tokio::spawn(async move { http.connect(url).await.ok() });
        }
    }

    /// Opens a connection within the connect timeout. The header is of no interest.
    async fn connect(&self, url: Url) -> Result<(), HttpError> {
        let meter = CallMeter::default();
        let mut attempt = Attempt::start(1, &url, Requested::Header("server"), &meter);
        let request = self.send(url.clone(), &mut attempt);
        match timeout(self.settings.connect_timeout, request).await {
            Ok(response) => response.map(drop),
            Err(_elapsed) => Ok(()),
        }
    }

    /// Records the origin that the endpoint redirected a range request to.
    pub(super) fn record_redirect(&self, attempt: &Attempt<'_>, response: &Response) {
        let (endpoint, origin) = (self.endpoint.origin(), response.url().origin());
        let is_range = matches!(attempt.requested, Requested::Range(_));
        if is_range && attempt.url.origin() == endpoint && origin != endpoint {
            lock(&self.redirect_origin).record(response.url());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::client::{ASSUMED_OPEN, RedirectOrigin};
    use crate::http::{AddressPolicy, HttpErrorKind, HttpSettings};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn no_second_connection_while_one_may_be_open() {
        let mut origin = RedirectOrigin::default();
        assert_eq!(origin.take_due(), None);
        origin.record(&url("http://127.0.0.1/x"));
        tokio::time::advance(ASSUMED_OPEN).await;
        assert_eq!(origin.take_due(), None, "no TLS");
        let (first, second) = (url("https://one.example"), url("https://two.example"));
        origin.record(&url("https://user@one.example/models/x?signature=y"));
        assert_eq!(origin.take_due(), None, "the connection of the redirect is open");
        tokio::time::advance(ASSUMED_OPEN).await;
        assert_eq!(origin.take_due(), Some(first));
        assert_eq!(origin.take_due(), None, "a connection is being opened");
        origin.record(&url("https://two.example/"));
        tokio::time::advance(ASSUMED_OPEN / 2).await;
        origin.record(&url("https://two.example/"));
        tokio::time::advance(ASSUMED_OPEN / 2).await;
        assert_eq!(origin.take_due(), None);
        tokio::time::advance(ASSUMED_OPEN).await;
        assert_eq!(origin.take_due(), Some(second));
    }

    #[test]
    fn only_https_origins_are_restored() {
        for origin in ["https://cdn.example", "https://cdn.example:8443", "https://[2001:db8::1]"] {
            let http = http();
            http.restore(&redirecting_to(origin));
            let expected = url(&format!("{origin}/"));
            assert_eq!(http.known_servers(), redirecting_to(origin));
            assert_eq!(lock(&http.redirect_origin).take_due(), Some(expected));
        }
        for text in [
            "",
            "cdn.example",
            "http://cdn.example",
            "file:///etc/passwd",
            "https://cdn.example/",
            "https://cdn.example/x",
            "https://user:password@cdn.example",
            "https://cdn.example?signature=x",
            "https://cdn.example\r\nX-Header: x",
            "https://0x7f.1",
        ] {
            let http = http();
            http.restore(&redirecting_to(text));
            assert_eq!(lock(&http.redirect_origin).take_due(), None, "{text}");
        }
    }

    #[test]
    fn origins_are_saved_without_signatures() {
        let http = http();
        assert_eq!(http.known_servers(), KnownServers::default());
        lock(&http.redirect_origin).record(&url("https://user@cdn.example/x?signature=y"));
        assert_eq!(http.known_servers(), redirecting_to("https://cdn.example"));
        http.restore(&redirecting_to("https://other.example"));
        assert_eq!(http.known_servers(), redirecting_to("https://cdn.example"));
        lock(&http.redirect_origin).record(&url("https://new.example/z"));
        assert_eq!(http.known_servers(), redirecting_to("https://new.example"));
    }

    #[test]
    fn servers_without_http2_are_saved_for_later_processes() {
        let (first, second) = (http(), http());
        first.clients.mark_http1(&url("http://hub.example/x"));
        assert!(!first.known_servers().are_http1, "they have no TLS");
        first.clients.mark_http1(&url("https://hub.example/x"));
        second.restore(&first.known_servers());
        assert!(second.clients.are_http1());
    }

    fn redirecting_to(origin: &str) -> KnownServers {
        KnownServers { redirect_origin: origin.to_owned(), are_http1: false }
    }

    fn http() -> Http {
        let settings = HttpSettings {
            address_policy: AddressPolicy::Public,
            max_concurrent_requests: 2,
            ..HttpSettings::default()
        };
        Http::new(url("https://hub.example"), None, settings)
    }

    /// The address policy rejects the connection before a packet is sent. A client without TLS fails even earlier.
    #[cfg(feature = "rustls-no-provider")]
    #[tokio::test]
    async fn the_address_policy_applies_to_restored_origins() {
        for host in ["127.0.0.1:1", "169.254.169.254", "[::1]:1", "localhost:1"] {
            let http = http();
            http.restore(&redirecting_to(&format!("https://{host}")));
            let url = lock(&http.redirect_origin).take_due().unwrap();
            let error = http.connect(url).await.unwrap_err();
            assert_eq!(error.kind, HttpErrorKind::ForbiddenAddress, "{error:?}");
        }
    }

    #[tokio::test]
    async fn connecting_early_needs_an_endpoint_url_and_a_free_permit() {
        let (http, file) = (http(), url("https://hub.example/x"));
        http.restore(&redirecting_to("https://127.0.0.1:1"));
        let is_opened = || lock(&http.redirect_origin).0.as_ref().unwrap().1.is_some();
        http.preconnect(&url("https://other.example/x"));
        assert!(!is_opened());
        let permit = http.in_flight.acquire().await.unwrap();
        http.preconnect(&file);
        assert!(!is_opened());
        drop(permit);
        http.preconnect(&file);
        assert!(is_opened());
    }
}
