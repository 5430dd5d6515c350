//! The HTTP client, whose requests share connections, rate limits and settings.
//!
//! # Early connections
//!
//! The Hub redirects range requests for large files to a CDN. Connecting only after the first redirect would delay
//! the call by two round trips, one for TCP and one for TLS. So the client remembers the origin of the last redirect,
//! and connects to it while the Hub handles the first request.
//!
//! The connection is opened by a `HEAD` request for `/`, and the response is ignored. The request is sent like any
//! other, so the address policy, the proxies and the token rules apply. A wrong guess costs one idle connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::url::Url;
use hf_meta_inspect::HttpError;
use reqwest::Response;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::address::AddressGuard;
use super::attempt::{Attempt, Requested};
use super::clients::HttpClients;
use super::rate_limit_gate::RateLimitGate;
use super::settings::HttpSettings;
use crate::base::body_sink::BodySink;
use crate::base::budget::CallBudget;
use crate::base::lock;
use crate::base::meter::CallMeter;

/// An HTTP client. Clones share connections, rate limits, settings and the meter.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// The token is sent to the origin of this URL only. Its kind of address is always allowed.
    pub(super) endpoint: Url,
    /// The `Authorization` header.
    pub(super) token: Option<HeaderValue>,
    pub(super) settings: Arc<HttpSettings>,
    pub(super) clients: Arc<HttpClients>,
    pub(super) guard: Arc<AddressGuard>,
    pub(super) gate: RateLimitGate,
    /// One permit for each request in flight.
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) redirect_origin: Arc<Mutex<RedirectOrigin>>,
    /// Counts the requests and waits.
    pub(crate) meter: CallMeter,
    /// Limits the requests and the memory of the call.
    pub(crate) budget: CallBudget,
    /// Receives ranges while they arrive.
    pub(super) sink: Option<BodySink>,
}

impl Http {
    pub(crate) fn new(endpoint: Url, token: Option<HeaderValue>, settings: HttpSettings) -> Self {
        let settings = Arc::new(settings);
        let proxies = settings.proxies.as_ref();
        let guard = Arc::new(AddressGuard::new(&endpoint, settings.address_policy, proxies));
        let max_requests = settings.max_concurrent_requests;
        let anonymous = Self {
            endpoint,
            token: None,
            clients: Arc::new(HttpClients::new(Arc::clone(&settings), Arc::clone(&guard))),
            guard,
            gate: RateLimitGate::new(max_requests, settings.quota_share),
            in_flight: Arc::new(Semaphore::new(max_requests.min(Semaphore::MAX_PERMITS))),
            redirect_origin: Arc::default(),
            meter: CallMeter::default(),
            budget: CallBudget::default(),
            sink: None,
            settings,
        };
        anonymous.with_token(token)
    }

    /// Builds a `reqwest` client now, to report invalid settings early.
    pub(crate) fn validate(&self) -> Result<(), reqwest::Error> {
        self.clients.validate()
    }

    /// Returns a client with another token. It shares the connections and the limit on requests in flight with this
    /// client, and rate limits with every client that has the same token.
    pub(crate) fn with_token(&self, token: Option<HeaderValue>) -> Self {
        Self { gate: self.gate.for_token(token.clone()), token, ..self.clone() }
    }

    /// Returns a client that shares everything with this one, and counts in another meter.
    pub(crate) fn with_meter(&self, meter: CallMeter) -> Self {
        Self { meter, ..self.clone() }
    }

    /// Returns a client like [`with_meter`](Self::with_meter), for a call with a budget.
    pub(crate) fn for_call(&self, meter: CallMeter, budget: CallBudget) -> Self {
        Self { meter, budget, ..self.clone() }
    }

    /// Returns a client that passes ranges on while they arrive, instead of returning them.
    pub(crate) fn with_sink(&self, sink: BodySink) -> Self {
        Self { sink: Some(sink), ..self.clone() }
    }

    /// Returns whether the quota of `url` is known to leave room for a number of requests that may turn out to be
    /// useless, or the server has none.
    pub(crate) fn has_quota(&self, url: &Url, requests: u64) -> bool {
        self.gate.has_quota(&url.into(), requests)
    }

    /// Returns this client [without its token](Self::with_token). Returns `None` if it has none.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        self.token.as_ref().map(|_| self.with_token(None))
    }

    /// Returns the time until the last rate limit of the token ends; `None` if requests are sent.
    pub(crate) fn paused_for(&self) -> Option<Duration> {
        self.gate.paused_for()
    }

    /// Returns the share of quotas that this client uses.
    pub(crate) fn quota_share(&self) -> f64 {
        self.settings.quota_share
    }

    /// Returns the configured headers. Like the token, they are part of cache keys.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.settings.headers
    }

    /// Returns the `Authorization` value, or an empty slice without a token. It is part of cache keys, so that tokens
    /// do not share entries.
    pub(crate) fn authorization(&self) -> &[u8] {
        self.token.as_ref().map_or(&[], |token| token.as_bytes())
    }
}

/// A connection is assumed to be open for this long after its last response. The HTTP library closes connections
/// after 90 s without use.
pub(super) const ASSUMED_OPEN: Duration = Duration::from_secs(60);

/// The facts about the servers of an endpoint that later processes need.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownServers {
    /// The `https` origin that the endpoint redirects to; empty if unknown.
    pub(super) redirect_origin: String,
    /// True if none of the servers speaks HTTP/2.
    pub(super) are_http1: bool,
}

/// The `https` origin that the endpoint last redirected a range request to, and the time of the last response, which is
/// `None` if the origin comes from another process.
#[derive(Debug, Default)]
pub(super) struct RedirectOrigin(pub(super) Option<(Url, Option<Instant>)>);

impl RedirectOrigin {
    /// Records a response to a redirected request. `http` origins are ignored: they have no TLS handshake to save.
    pub(super) fn record(&mut self, url: &Url) {
        if let Some(origin) = parse_origin(&url.origin().ascii_serialization()) {
            self.0 = Some((origin, Some(Instant::now())));
        }
    }

    /// Restores the origin of another process, which may be invalid.
    pub(super) fn restore(&mut self, origin: &str) {
        self.0 = self.0.take().or_else(|| Some((parse_origin(origin)?, None)));
    }

    /// Returns the URL to connect to, unless a connection to it is assumed to be open.
    pub(super) fn take_due(&mut self) -> Option<Url> {
        let (url, used) = self.0.as_mut()?;
        let used = used.replace(Instant::now());
        let is_open = used.is_some_and(|used| used.elapsed() < ASSUMED_OPEN);
        (!is_open).then(|| url.clone())
    }
}

/// Parses an `https` origin. Returns `None` if the text is more than an origin, such as a URL with a path.
fn parse_origin(origin: &str) -> Option<Url> {
    let url = Url::parse(origin).ok().filter(|url| url.scheme() == "https")?;
    (url.origin().ascii_serialization() == origin).then_some(url)
}

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
        let sent = timeout(self.settings.connect_timeout, request).await;
        sent.map_or(Ok(()), |response| response.map(drop))
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
