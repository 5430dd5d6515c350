//! An HTTP client for byte ranges and small files.
//!
//! This module knows neither safetensors nor the Hub. [`Http`] has three operations: [`Http::read_range`] reads a
//! range of a file, [`Http::stream`] (and [`Http::read_all`], built on it) reads a small file, and
//! [`Http::response_header`] requests one response header.
//!
//! # The life of a range request
//!
//! 1. [`Http::read_range`] connects early to the CDN if its origin is known ([`connect_ahead`]) and starts the retry
//!    loop ([`retry`]). Each attempt has a tracing span and counters ([`attempt`]).
//! 2. The address policy rejects disallowed IP literals. Hostnames are checked by the DNS resolver, which drops
//!    disallowed addresses ([`address`]).
//! 3. The rate limit gate delays the request while its bucket at the origin is on hold ([`rate_limit_gate`]). Then
//!    the request waits for one of the client's permits for requests in flight.
//! 4. The request uses an HTTP/2 connection, or takes a permit for an HTTP/1.1 connection ([`clients`]). It carries a
//!    `Range` header, and the token if the URL is on the endpoint's origin.
//! 5. If the response has a `RateLimit` or `Retry-After` header, the gate applies it to later requests
//!    ([`rate_limit`]).
//! 6. A redirect restarts at step 2 with the new URL ([`redirect`]).
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
mod connect_ahead;
mod decode;
mod error;
mod head_request;
#[cfg(test)]
pub(crate) mod proptest_config;
mod proxy;
mod range;
mod rate_limit;
mod rate_limit_gate;
mod redirect;
mod retry;
mod safe_url;
mod stream;
pub(crate) mod transfer;

use std::fmt;
use std::mem::replace;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ::url::{Origin, Url};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, RANGE};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use tokio::sync::Semaphore;
use tracing::Instrument;

use self::address::AddressGuard;
use self::attempt::Attempt;
use self::clients::{Http2Failure, HttpClients};
use self::connect_ahead::RedirectOrigin;
use self::rate_limit_gate::{GateKey, RateLimitGate};
use crate::http::transfer::{CallMeter, RangeBytes};

pub use address::AddressPolicy;
pub(crate) use error::is_transient_status;
pub use error::{HttpError, RangeError, ResponseHeaders, TransportKind};
pub(crate) use proxy::Proxies;
pub use proxy::ProxyError;
pub use rate_limit_gate::RemainingQuota;
pub(crate) use redirect::ResponseChain;
pub(crate) use retry::RequestFailure;
pub use retry::RetryPolicy;
pub use safe_url::SafeUrl;
pub use transfer::ClientStats;

/// Timeouts for the steps of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpTimeouts {
    /// For name resolution, TCP and TLS together.
    pub(crate) connect: Duration,
    /// Between two reads of a response.
    pub(crate) read: Duration,
    /// From connecting to the end of the body. Each redirect restarts it.
    pub(crate) request: Duration,
}

/// Settings of an [`Http`] client.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    /// The token is sent to the origin of this URL only. Its kind of address is always allowed.
    pub(crate) endpoint: Url,
    /// The `Authorization` header.
    pub(crate) token: Option<HeaderValue>,
    pub(crate) user_agent: HeaderValue,
    /// Additional headers. Like the token, they are sent to the endpoint's origin only.
    pub(crate) headers: HeaderMap,
    /// The proxies; `None` if no proxy is used.
    pub(crate) proxies: Option<Proxies>,
    /// Additional root certificates to trust.
    #[cfg(feature = "rustls-no-provider")]
    pub(crate) root_certificates: Vec<reqwest::Certificate>,
    pub(crate) connection: ConnectionSettings,
}

/// The settings that the builder passes to [`Http`] unchanged.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    pub(crate) addresses: AddressPolicy,
    /// True to trust the system's certificates, false to trust Mozilla's.
    pub(crate) system_certificates: bool,
    pub(crate) hook: Option<HttpHook>,
    pub(crate) timeouts: HttpTimeouts,
    pub(crate) retry: RetryPolicy,
    /// The maximum number of requests in flight, across all calls.
    pub(crate) concurrency: usize,
    /// The fraction of each quota to use, from 0 to 1.
    pub(crate) quota_share: f64,
    /// The maximum number of HTTP/1.1 connections, across all servers.
    pub(crate) max_http1_connections: usize,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            addresses: AddressPolicy::default(),
            system_certificates: false,
            hook: None,
            timeouts: HttpTimeouts {
                connect: Duration::from_secs(10),
                read: Duration::from_secs(10),
                request: Duration::from_secs(60),
            },
            retry: RetryPolicy::default(),
            concurrency: 256,
            quota_share: 1.0,
            // By default, macOS allows 256 open files per process.
            max_http1_connections: 64,
        }
    }
}

/// A callback that customizes the builder of the HTTP library.
#[derive(Clone)]
pub(crate) struct HttpHook(pub(crate) Arc<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>);

impl fmt::Debug for HttpHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpHook")
    }
}

#[cfg(test)]
impl HttpSettings {
    /// Returns settings that allow any address.
    fn for_test(endpoint: Url) -> Self {
        Self {
            endpoint,
            token: None,
            user_agent: HeaderValue::from_static("test"),
            headers: HeaderMap::new(),
            proxies: None,
            #[cfg(feature = "rustls-no-provider")]
            root_certificates: Vec::new(),
            connection: ConnectionSettings::default(),
        }
    }
}

/// An HTTP client. Clones share connections, rate limits and settings.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    clients: Arc<HttpClients>,
    guard: Arc<AddressGuard>,
    gate: Arc<RateLimitGate>,
    /// One permit for each request in flight.
    in_flight: Arc<Semaphore>,
    redirect_origin: Arc<RedirectOrigin>,
    settings: Arc<HttpSettings>,
}

impl Http {
    pub(crate) fn new(settings: HttpSettings) -> Self {
        let proxies = settings.proxies.as_ref().map(Proxies::hosts).unwrap_or_default();
        let guard = AddressGuard::new(settings.connection.addresses, &settings.endpoint, proxies);
        let clients = Arc::new(HttpClients::new(settings.clone(), Arc::clone(&guard)));
        let in_flight =
            Arc::new(Semaphore::new(settings.connection.concurrency.min(Semaphore::MAX_PERMITS)));
        let gate = Arc::new(RateLimitGate::new(
            settings.connection.concurrency,
            settings.connection.quota_share,
        ));
        let (redirect_origin, settings) = (Arc::default(), Arc::new(settings));
        Self { clients, guard, gate, in_flight, redirect_origin, settings }
    }

    /// Builds the client of the HTTP library now, to report invalid settings early.
    pub(crate) fn check(&self) -> Result<(), reqwest::Error> {
        self.clients.check()
    }

    /// Returns a client with another token. It shares the connections and the limit on requests in flight with this
    /// client, and rate limits with every client that has the same token.
    pub(crate) fn with_token(&self, token: Option<HeaderValue>) -> Self {
        let gate = Arc::new(self.gate.for_token(token.clone()));
        let settings = HttpSettings { token, ..HttpSettings::clone(&self.settings) };
        Self { gate, settings: Arc::new(settings), ..self.clone() }
    }

    /// Returns the endpoint's quota for files; `None` if it is unknown.
    pub(crate) fn quota(&self) -> Option<RemainingQuota> {
        self.gate.quota(&GateKey::files_of(&self.settings.endpoint))
    }

    /// Returns a client without a token that shares connections and rate limits with this one. Returns `None` if this
    /// client has no token.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        self.settings.token.as_ref()?;
        let settings = HttpSettings { token: None, ..HttpSettings::clone(&self.settings) };
        Some(Self { settings: Arc::new(settings), ..self.clone() })
    }

    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0.
    pub(crate) async fn read_range(
        &self,
        url: &Url,
        range: &Range<u64>,
        meter: &CallMeter,
    ) -> Result<(RangeBytes, ResponseChain), RequestFailure> {
        self.connect_ahead(url);
        let mut retries = self.settings.connection.retry.start(url, &self.gate, meter);
        loop {
            let attempt = retries.next_attempt(Some(range));
            let read = self.try_range(range, &attempt).instrument(attempt.span()).await;
            match attempt.finish(read) {
                Ok(read) => return Ok(read),
                Err(error) => retries.wait_after(error).await?,
            }
        }
    }

    async fn try_range(
        &self,
        range: &Range<u64>,
        attempt: &Attempt<'_>,
    ) -> Result<(RangeBytes, ResponseChain), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        let part = match range::check(range, response.status(), response.headers()) {
            Ok(Some(part)) => part,
            Ok(None) => return Err(HttpError::status(attempt.url, &response)),
            Err(source) => return Err(HttpError::range(response.url(), source)),
        };
        let bytes = body::read_part(response, &part, attempt).await?;
        Ok((RangeBytes { bytes, file_size: part.file_size }, chain))
    }

    /// Sends the request of an attempt and follows redirects to the final response.
    async fn send_following_redirects(
        &self,
        attempt: &Attempt<'_>,
    ) -> Result<(Response, ResponseChain), HttpError> {
        let mut url = attempt.url.clone();
        let mut chain = ResponseChain::default();
        loop {
            let response = self.send(url, attempt).await?;
            let Some(target) = chain.push(&response)? else {
                self.record_redirect(attempt, &response);
                return Ok((response, chain));
            };
            attempt.log_redirect(response.url(), &target);
            url = target;
        }
    }

    /// Sends one request once the rate limit gate admits it, and applies the rate limits of the response.
    async fn send(&self, url: Url, attempt: &Attempt<'_>) -> Result<Response, HttpError> {
        let (safe_url, origin) = (SafeUrl::from(&url), url.origin());
        if !self.guard.allows(&url) {
            return Err(HttpError::ForbiddenAddress { url: safe_url });
        }
        attempt.release_permits();
        let max_wait = self.settings.connection.retry.max_wait;
        let pass = self.gate.pass(GateKey::from(&url), attempt.meter, max_wait).await;
        let pass = pass.map_err(|wait| HttpError::RateLimited { url: safe_url.clone(), wait })?;
        // The semaphore is never closed.
        attempt.set_request_permit(Arc::clone(&self.in_flight).acquire_owned().await.ok());
        attempt.count_request(origin == self.settings.endpoint.origin());
        let response = self.send_negotiated(url, &origin, attempt).await;
        let proxy = || self.settings.proxies.as_ref()?.proxy_for(&origin);
        let response =
            response.map_err(|error| HttpError::transport(safe_url, error).through(proxy))?;
        let status = response.status().as_u16();
        attempt.set_status(status);
        pass.record(status, response.headers());
        Ok(response)
    }

    /// Sends a request over HTTP/2, or over HTTP/1.1 if the server does not speak HTTP/2.
    async fn send_negotiated(
        &self,
        url: Url,
        origin: &Origin,
        attempt: &Attempt<'_>,
    ) -> Result<Response, reqwest::Error> {
        let mut has_resent = false;
        loop {
            // Holding one permit while waiting for another could deadlock.
            attempt.set_connection_permit(None);
            let (client, permit) = self.clients.for_url(&url).await?;
            let is_http2_only = permit.is_none();
            attempt.set_connection_permit(permit);
            match self.request(&client, url.clone(), attempt).send().await {
                Ok(response) => {
                    if self.clients.record_response(origin, &response) {
                        attempt.set_connection_permit(None);
                    }
                    return Ok(response);
                }
                Err(error) if is_http2_only => match self.clients.record_failure(origin, &error) {
                    Http2Failure::NoHttp2 => {}
                    Http2Failure::SharedConnect if !replace(&mut has_resent, true) => {}
                    Http2Failure::SharedConnect | Http2Failure::Request => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Builds a request. The token and the configured headers are added for the endpoint's origin only.
    fn request(&self, client: &Client, url: Url, attempt: &Attempt<'_>) -> RequestBuilder {
        let is_endpoint = url.origin() == self.settings.endpoint.origin();
        let request = client.request(attempt.method.clone(), url);
        let request = request.timeout(self.settings.connection.timeouts.request);
        let request = match attempt.range {
            Some(range) => request
                .header(RANGE, format!("bytes={}", attempt::range_text(range)))
                .header(ACCEPT_ENCODING, "identity"),
            None => request.header(ACCEPT_ENCODING, "gzip"),
        };
        if !is_endpoint {
            return request;
        }
        let request = request.headers(self.settings.headers.clone());
        match &self.settings.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }
}
