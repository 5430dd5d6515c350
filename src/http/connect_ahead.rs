//! Connects early to the server that the endpoint is expected to redirect to.
//!
//! The Hub redirects range requests for large files to a CDN. Connecting only after the first redirect would delay
//! the call by two round trips, one for TCP and one for TLS. So the client remembers the origin of the last redirect,
//! and connects to it while the Hub handles the first request.
//!
//! The connection is opened by a `HEAD` request for `/`, and the response is ignored. The request is sent like any
//! other, so the address policy, the proxies and the token rules apply. A wrong guess costs one idle connection.

use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::url::Url;
use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::attempt::Attempt;
use super::{Http, HttpError};
use crate::http::transfer::CallMeter;

/// A connection is assumed to be open for this long after its last response. The HTTP library closes connections
/// after 90 s without use.
const OPEN_TIME: Duration = Duration::from_secs(60);

/// Facts about the servers of an endpoint, saved for later processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownServers {
    /// The origin that the endpoint redirects to; empty if unknown.
    redirect_origin: String,
    /// True if the endpoint does not speak HTTP/2.
    endpoint_is_http1: bool,
    /// True if the redirect origin does not speak HTTP/2.
    redirect_is_http1: bool,
}

/// The origin that the endpoint last redirected a range request to.
#[derive(Debug, Default)]
pub(super) struct RedirectOrigin {
    known: Mutex<Option<KnownOrigin>>,
    /// The facts as last saved or restored. Only changes are saved.
    saved: Mutex<KnownServers>,
}

#[derive(Clone, Debug)]
struct KnownOrigin {
    /// A URL with the path `/`.
    url: Url,
    /// The time of the last response; `None` if the origin comes from another process.
    used: Option<Instant>,
}

impl RedirectOrigin {
    /// Records a response to a redirected request. `http` origins are ignored: they have no TLS handshake to save.
    pub(super) fn record(&self, url: &Url) {
        let mut known = self.known();
        let used = Some(Instant::now());
        match &mut *known {
            Some(known) if known.url.origin() == url.origin() => known.used = used,
            known => {
                if let Some(url) = parse(&url.origin().ascii_serialization()) {
                    *known = Some(KnownOrigin { url, used });
                }
            }
        }
    }

    /// Returns the URL to connect to, unless a connection to it is assumed to be open.
    fn take_due(&self) -> Option<Url> {
        let mut known = self.known();
        let known = known.as_mut()?;
        let is_open = known.used.is_some_and(|used| used.elapsed() < OPEN_TIME);
        known.used = Some(Instant::now());
        (!is_open).then(|| known.url.clone())
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownOrigin>> {
        lock(&self.known)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses an `https` origin. Returns `None` if the text is more than an origin, such as a URL with a path.
fn parse(origin: &str) -> Option<Url> {
    let url = Url::parse(origin).ok().filter(|url| url.scheme() == "https")?;
    (url.origin().ascii_serialization() == origin).then_some(url)
}

impl Http {
    /// Restores the facts that an earlier process saved. The redirect origin may be wrong or hostile.
    pub(crate) fn expect_servers(&self, servers: KnownServers) {
        if servers.endpoint_is_http1 {
            self.clients.expect_http1(&self.settings.endpoint);
        }
        if let Some(url) = parse(&servers.redirect_origin) {
            if servers.redirect_is_http1 {
                self.clients.expect_http1(&url);
            }
            self.redirect_origin.known().get_or_insert(KnownOrigin { url, used: None });
        }
        *lock(&self.redirect_origin.saved) = servers;
    }

    /// Returns the facts if they have changed since they were restored or last returned.
    pub(crate) fn take_new_servers(&self) -> Option<KnownServers> {
        let redirect = self.redirect_origin.known().as_ref().map(|known| known.url.clone());
        let origin = redirect.as_ref().map(|url| url.origin().ascii_serialization());
        let servers = KnownServers {
            redirect_origin: origin.unwrap_or_default(),
            endpoint_is_http1: self.clients.is_http1(&self.settings.endpoint),
            redirect_is_http1: redirect.is_some_and(|url| self.clients.is_http1(&url)),
        };
        let before = replace(&mut *lock(&self.redirect_origin.saved), servers.clone());
        (before != servers).then_some(servers)
    }

    /// Opens a connection to the redirect origin in the background, if a request for `url` may be redirected there.
    pub(super) fn connect_ahead(&self, url: &Url) {
        // The call itself needs a permit, and must not wait for this request.
        let is_busy = self.in_flight.available_permits() < 2;
        if is_busy || url.origin() != self.settings.endpoint.origin() {
            return;
        }
        if let Some(url) = self.redirect_origin.take_due() {
            let http = self.clone();
            tokio::spawn(async move { http.connect(url).await.ok() });
        }
    }

    /// Opens a connection within the connect timeout.
    async fn connect(&self, url: Url) -> Result<(), HttpError> {
        let meter = CallMeter::default();
        let mut attempt = Attempt::start(1, &url, None, &meter);
        attempt.method = Method::HEAD;
        let request = self.send(url.clone(), &attempt).instrument(attempt.span());
        match timeout(self.settings.connection.timeouts.connect, request).await {
            Ok(response) => response.map(drop),
            Err(_elapsed) => Ok(()),
        }
    }

    /// Records the origin that the endpoint redirected a range request to.
    pub(super) fn record_redirect(&self, attempt: &Attempt<'_>, response: &Response) {
        let endpoint = self.settings.endpoint.origin();
        let is_redirected = response.url().origin() != endpoint;
        if is_redirected && attempt.range.is_some() && attempt.url.origin() == endpoint {
            self.redirect_origin.record(response.url());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{AddressPolicy, HttpSettings};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn http() -> Http {
        let mut settings = HttpSettings::for_test(url("https://hub.example"));
        settings.connection.addresses = AddressPolicy::Public;
        settings.connection.concurrency = 2;
        Http::new(settings)
    }

    fn redirecting_to(origin: &str) -> KnownServers {
        KnownServers { redirect_origin: origin.to_owned(), ..KnownServers::default() }
    }

    #[test]
    fn only_the_origin_of_an_https_url_is_taken_from_another_process() {
        for origin in ["https://cdn.example", "https://cdn.example:8443", "https://[2001:db8::1]"] {
            let http = http();
            http.expect_servers(redirecting_to(origin));
            let expected = url(&format!("{origin}/"));
            assert_eq!(http.redirect_origin.take_due(), Some(expected));
            assert_eq!(http.take_new_servers(), None, "they are saved already");
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
            http.expect_servers(redirecting_to(text));
            assert_eq!(http.redirect_origin.take_due(), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_due_once_while_it_may_be_open() {
        let origin = RedirectOrigin::default();
        assert_eq!(origin.take_due(), None);
        origin.record(&url("http://127.0.0.1/x"));
        assert_eq!(origin.take_due(), None);
        let (first, second) = (url("https://one.example"), url("https://two.example"));
        origin.record(&url("https://one.example/models/x?signature=y"));
        assert_eq!(origin.take_due(), None, "the connection of the redirect is open");
        tokio::time::advance(OPEN_TIME).await;
        assert_eq!(origin.take_due(), Some(first));
        assert_eq!(origin.take_due(), None, "a connection is being opened");
        origin.record(&url("https://two.example/"));
        tokio::time::advance(OPEN_TIME / 2).await;
        origin.record(&url("https://two.example/"));
        tokio::time::advance(OPEN_TIME / 2).await;
        assert_eq!(origin.take_due(), None);
        tokio::time::advance(OPEN_TIME).await;
        assert_eq!(origin.take_due(), Some(second));
    }

    #[test]
    fn an_origin_is_saved_once_and_without_the_signature_of_its_url() {
        let http = http();
        assert_eq!(http.take_new_servers(), None);
        http.redirect_origin.record(&url("https://user@cdn.example/x?signature=y"));
        assert_eq!(http.take_new_servers(), Some(redirecting_to("https://cdn.example")));
        assert_eq!(http.take_new_servers(), None);
        http.redirect_origin.record(&url("https://cdn.example/z"));
        assert_eq!(http.take_new_servers(), None);
        http.expect_servers(redirecting_to("https://other.example"));
        http.redirect_origin.record(&url("https://new.example/z"));
        assert_eq!(http.take_new_servers(), Some(redirecting_to("https://new.example")));
    }

    #[test]
    fn servers_without_http2_are_known_to_later_processes() {
        let (first, second) = (http(), http());
        let (endpoint, cdn) = (url("https://hub.example/x"), url("https://cdn.example/y"));
        first.redirect_origin.record(&cdn);
        first.clients.expect_http1(&endpoint);
        first.clients.expect_http1(&cdn);
        let servers = first.take_new_servers().unwrap();
        assert!(servers.endpoint_is_http1 && servers.redirect_is_http1);
        second.expect_servers(servers);
        assert!(second.clients.is_http1(&endpoint) && second.clients.is_http1(&cdn));
        assert!(!second.clients.is_http1(&url("https://other.example")));
        assert_eq!(second.take_new_servers(), None);
    }

    /// The address policy rejects the connection before a packet is sent. A client without TLS fails even earlier.
    #[cfg(feature = "rustls-no-provider")]
    #[tokio::test]
    async fn the_address_policy_applies_to_an_origin_of_another_process() {
        for host in ["127.0.0.1:1", "169.254.169.254", "[::1]:1", "localhost:1"] {
            let http = http();
            http.expect_servers(redirecting_to(&format!("https://{host}")));
            let url = http.redirect_origin.take_due().unwrap();
            let error = http.connect(url).await.unwrap_err();
            assert!(matches!(error, HttpError::ForbiddenAddress { .. }), "{error:?}");
        }
    }

    #[tokio::test]
    async fn no_connection_is_opened_for_other_servers_or_without_a_free_permit() {
        let (http, file) = (http(), url("https://hub.example/x"));
        http.expect_servers(redirecting_to("https://127.0.0.1:1"));
        let is_opened = || http.redirect_origin.known().as_ref().unwrap().used.is_some();
        http.connect_ahead(&url("https://other.example/x"));
        assert!(!is_opened());
        let permit = http.in_flight.acquire().await.unwrap();
        http.connect_ahead(&file);
        assert!(!is_opened());
        drop(permit);
        http.connect_ahead(&file);
        assert!(is_opened());
    }
}
