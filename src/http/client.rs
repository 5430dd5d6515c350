//! The HTTP client, whose requests share connections, rate limits and settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::url::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::address::AddressGuard;
use super::clients::HttpClients;
use super::rate_limit_gate::RateLimitGate;
use super::settings::HttpSettings;
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
}

impl Http {
    pub(crate) fn new(endpoint: Url, token: Option<HeaderValue>, settings: HttpSettings) -> Self {
        let settings = Arc::new(settings);
        let proxies = settings.proxies.as_ref();
        let guard = Arc::new(AddressGuard::new(&endpoint, settings.address_policy, proxies));
        let max_requests = settings.max_concurrent_requests;
        Self {
            endpoint,
            token,
            clients: Arc::new(HttpClients::new(Arc::clone(&settings), Arc::clone(&guard))),
            guard,
            gate: RateLimitGate::new(max_requests, settings.quota_share),
            in_flight: Arc::new(Semaphore::new(max_requests.min(Semaphore::MAX_PERMITS))),
            redirect_origin: Arc::default(),
            meter: CallMeter::default(),
            settings,
        }
    }

    /// Builds a `reqwest` client now, to report invalid settings early.
    pub(crate) fn validate(&self) -> Result<(), reqwest::Error> {
        self.clients.build(false).map(drop)
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

    /// Returns a client without a token that shares connections and rate limits with this one. Returns `None` if this
    /// client has no token.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        self.token.as_ref().map(|_| Self { token: None, ..self.clone() })
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
