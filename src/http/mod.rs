//! An HTTP client for byte ranges and small files.
//!
//! This module knows neither safetensors nor repositories. [`Http`] has three operations ([`request`]):
//! [`Http::read_range`] reads a range of a file, [`Http::stream`] (and [`Http::read_all`], built on it) reads a small
//! file, and [`Http::head`] requests one response header. All of them are sent in the same way.
//!
//! # The life of a range request
//!
//! 1. [`Http::read_range`] connects early to the CDN if its origin is known ([`preconnect`]) and starts the retry
//!    loop ([`retry`]). Each attempt has a tracing span and counters ([`attempt`]), and goes through [`send`].
//! 2. The address policy rejects disallowed IP literals. Hostnames are checked by the DNS resolver, which drops
//!    disallowed addresses ([`address`]).
//! 3. The rate limit gate delays the request while its bucket at the origin is on hold ([`rate_limit_gate`]). Then
//!    the request waits for one of the client's permits for requests in flight.
//! 4. The request uses an HTTP/2 connection, or takes a permit for an HTTP/1.1 connection ([`clients`]). It carries a
//!    `Range` header, and the token if the URL is on the endpoint's origin.
//! 5. If the response has a `RateLimit` or `Retry-After` header, the gate applies it to later requests
//!    ([`rate_limit`]).
//! 6. A redirect restarts at step 2 with the new URL.
//! 7. The status, `Content-Range` and `Content-Length` of the final response are compared with the range
//!    ([`range`]). Then the body is read, up to the last requested byte ([`body`]).
//! 8. After a transient error, the retry loop waits and starts over with the original URL.
//!
//! # Why redirects are followed manually
//!
//! If the HTTP library followed redirects, four things would be lost:
//!
//! - The Hub sends `X-Repo-Commit` with its redirect; the CDN does not send it with the file.
//!   [`ResponseChain`] keeps the headers of every response.
//! - A signed CDN URL is valid for one range and a limited time, so each range starts at the Hub.
//! - The token is sent to one origin only, even if redirects lead away and back.
//! - The address policy and the rate limit gate apply to every redirect.

mod address;
mod attempt;
pub(crate) mod blocking;
mod body;
mod clients;
mod error;
mod error_response;
mod preconnect;
#[cfg(test)]
pub(crate) mod proptest_config;
mod proxy;
mod range;
mod rate_limit;
mod rate_limit_gate;
mod request;
mod retry;
mod safe_url;
mod send;
mod tls;
pub(crate) mod transfer;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::url::Url;
use reqwest::ClientBuilder;
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::sync::Semaphore;

use self::address::AddressGuard;
use self::clients::HttpClients;
use self::preconnect::RedirectOrigin;
use self::rate_limit_gate::{GateKey, RateLimitGate};
use self::transfer::CallMeter;

pub use address::AddressPolicy;
pub use error::{HttpError, RangeError, TransportKind};
pub use error_response::HubError;
pub(crate) use proxy::Proxies;
pub use proxy::ProxyError;
pub use rate_limit_gate::RemainingQuota;
pub(crate) use retry::RequestFailure;
pub use retry::RetryPolicy;
pub use safe_url::SafeUrl;
pub(crate) use send::ResponseChain;
pub(crate) use tls::{RootCertificates, has_tls_provider};
pub use transfer::ClientStats;

/// Settings of an [`Http`] client.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) user_agent: HeaderValue,
    /// Additional headers. Like the token, they are sent to the endpoint's origin only.
    pub(crate) headers: HeaderMap,
    /// The proxies; `None` if no proxy is used.
    pub(crate) proxies: Option<Proxies>,
    /// Additional root certificates to trust.
    pub(crate) root_certificates: RootCertificates,
    /// True to trust the system's certificates, false to trust Mozilla's.
    pub(crate) system_certificates: bool,
    pub(crate) hook: Option<HttpHook>,
    pub(crate) address_policy: AddressPolicy,
    /// The timeout of name resolution, TCP and TLS together.
    pub(crate) connect_timeout: Duration,
    /// The timeout between two reads of a response.
    pub(crate) read_timeout: Duration,
    /// The timeout from connecting to the end of the body. Each redirect restarts it.
    pub(crate) request_timeout: Duration,
    pub(crate) retry_policy: RetryPolicy,
    /// The maximum number of requests in flight, across all calls.
    pub(crate) max_concurrent_requests: usize,
    /// The fraction of each quota to use, from 0 to 1.
    pub(crate) quota_share: f64,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            user_agent: HeaderValue::from_static(concat!("hf-meta/", env!("CARGO_PKG_VERSION"))),
            headers: HeaderMap::new(),
            proxies: None,
            root_certificates: RootCertificates::default(),
            system_certificates: false,
            hook: None,
            address_policy: AddressPolicy::default(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            retry_policy: RetryPolicy::default(),
            max_concurrent_requests: 256,
            quota_share: 1.0,
        }
    }
}

/// A callback of the caller.
pub(crate) struct Callback<F: ?Sized>(pub(crate) Arc<F>);

impl<F: ?Sized> Clone for Callback<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// A callback that customizes the builder of the HTTP library.
type HttpHook = Callback<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>;

/// An HTTP client. Clones share connections, rate limits, settings and the meter.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// The token is sent to the origin of this URL only. Its kind of address is always allowed.
    endpoint: Url,
    /// The `Authorization` header.
    token: Option<HeaderValue>,
    settings: Arc<HttpSettings>,
    clients: Arc<HttpClients>,
    guard: Arc<AddressGuard>,
    gate: RateLimitGate,
    /// One permit for each request in flight.
    in_flight: Arc<Semaphore>,
    redirect_origin: Arc<Mutex<RedirectOrigin>>,
    /// Counts the requests and waits.
    meter: CallMeter,
}

impl Http {
    pub(crate) fn new(endpoint: Url, token: Option<HeaderValue>, settings: HttpSettings) -> Self {
        let settings = Arc::new(settings);
        let guard = Arc::new(AddressGuard::new(&endpoint, &settings));
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

/// Returns a random number between 0 and 1, from the random hash keys of the standard library.
fn random_fraction() -> f64 {
    let [a, b, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    f64::from(u16::from_ne_bytes([a, b])) / f64::from(u16::MAX)
}

/// Locks a mutex. A panic while it was locked leaves nothing half-done, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
