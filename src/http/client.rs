//! The HTTP client, whose requests share connections, rate limits and settings.

use std::sync::{Arc, Mutex};

use ::url::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::sync::Semaphore;

use super::address::AddressGuard;
use super::clients::HttpClients;
use super::rate_limit_gate::{GateKey, RateLimitGate, RemainingQuota};
use super::server_hints::RedirectOrigin;
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
    pub(super) meter: CallMeter,
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

    /// Builds the client of the HTTP library now, to report invalid settings early.
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

    /// Returns the meter that counts the requests of this client.
    pub(crate) fn meter(&self) -> &CallMeter {
        &self.meter
    }

    /// Returns a client without a token that shares connections and rate limits with this one. Returns `None` if this
    /// client has no token.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        self.token.as_ref().map(|_| Self { token: None, ..self.clone() })
    }

    /// Returns the endpoint's quota for files; `None` if it is unknown.
    pub(crate) fn quota(&self) -> Option<RemainingQuota> {
        self.gate.quota(&GateKey::for_files(&self.endpoint))
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
