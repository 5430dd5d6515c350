//! The configuration of the service.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use sha2::{Digest, Sha256};
use thiserror::Error;
use url::Url;

/// The configuration of a [`Service`](super::Service).
///
/// ```
/// use std::time::Duration;
///
/// let mut config = hf_meta_server::ServiceConfig::default();
/// config.ttl = Duration::from_secs(60);
/// config.trusted_proxies = vec!["10.0.0.0/8".parse()?];
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Time to live of results for branches and tags; 5 minutes by default. The first request afterwards starts a new
    /// lookup.
    pub ttl: Duration,
    /// Time for which browsers and proxies may cache responses about branches and tags; 1 hour by default.
    pub max_age: Duration,
    /// Maximum time that a request waits for its lookup before it is answered with `pending`; 3 seconds by default.
    pub lookup_timeout: Duration,
    /// Maximum number of lookups that read from the Hub concurrently, at least 1; 8 by default.
    pub max_concurrent_lookups: usize,
    /// Maximum number of queued lookups; 1,000 by default. Requests that need another lookup are refused.
    pub max_queued_lookups: usize,
    /// Approximate size limit of the in-memory result cache, in bytes; 64 MiB by default.
    pub memory_limit: u64,
    /// Maximum number of requests per minute from one client for results that are not in memory, or 0 for no limit;
    /// 6,000 by default. All viewers behind an image proxy count as one client.
    pub requests_per_minute: u32,
    /// Maximum number of requests to the Hub per lookup; 500 by default. Weights in more files are not read.
    pub max_requests_per_lookup: usize,
    /// Maximum number of requests to the Hub per minute that one client may cause by new lookups, and as many again
    /// by refreshing known results, or 0 for no limit; 120 by default. A client can always start one lookup of the
    /// maximum size.
    pub upstream_requests_per_minute: u32,
    /// Maximum number of requests to the Hub per minute that all clients together may cause, or 0 for no limit; 400
    /// by default. The rest of the Hub's quota is reserved for refreshing known results.
    pub total_upstream_requests_per_minute: u32,
    /// Networks of proxies whose `X-Forwarded-For` header is trusted; none by default.
    pub trusted_proxies: Vec<IpNet>,
    /// Public URL of the service, for the snippets on the page. By default, it is taken from the request.
    pub public_url: Option<Url>,
    /// Maximum number of open connections, at least 1; 10,000 by default. Further connections wait to be accepted. One
    /// client may have a quarter of them, unless it is a trusted proxy; its further connections are closed.
    pub max_connections: usize,
    /// Timeout after which a connection is closed if its client does not send the request headers or does not read the
    /// response; 30 seconds by default. It also closes idle connections.
    pub client_timeout: Duration,
    /// Time between the start of a shutdown, when `/readyz` begins to return 503, and the end of accepting new
    /// connections; zero by default. Load balancers need a few seconds to react.
    pub drain_delay: Duration,
    /// Time that requests in flight are given to complete during a shutdown; 10 seconds by default.
    pub shutdown_timeout: Duration,
    /// Owners whose repositories may be read, compared case-insensitively. If empty, as by default, all are allowed.
    pub allowed_owners: Vec<String>,
    /// Sites that may embed the page, in the syntax of the `frame-ancestors` directive of a content security policy;
    /// none by default.
    pub frame_ancestors: Option<String>,
    /// Secret of a Hub webhook; none by default. If set, the router includes the route `/webhook`, which immediately
    /// refreshes the results of a changed repository.
    pub webhook_secret: Option<WebhookSecret>,
    /// `true`, as by default, if the router includes the route `/metrics`. To serve it separately, use
    /// [`Service::metrics_router`](super::Service::metrics_router).
    pub serve_metrics: bool,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(300),
            max_age: Duration::from_secs(3_600),
            lookup_timeout: Duration::from_secs(3),
            max_concurrent_lookups: 8,
            max_queued_lookups: 1_000,
            memory_limit: 64 << 20,
            requests_per_minute: 6_000,
            max_requests_per_lookup: 500,
            upstream_requests_per_minute: 120,
            total_upstream_requests_per_minute: 400,
            trusted_proxies: Vec::new(),
            public_url: None,
            max_connections: 10_000,
            client_timeout: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(10),
            allowed_owners: Vec::new(),
            frame_ancestors: None,
            webhook_secret: None,
            serve_metrics: true,
        }
    }
}

/// The secret that a webhook sends with its events. Only its SHA-256 digest is stored.
///
/// ```
/// use hf_meta_server::WebhookSecret;
///
/// assert!("s3cr3t".parse::<WebhookSecret>().is_ok());
/// assert!("".parse::<WebhookSecret>().is_err(), "everybody knows the empty secret");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret([u8; 32]);

/// The error returned for an empty secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the secret is empty")]
pub struct EmptyWebhookSecret;

impl WebhookSecret {
    /// Compares digests, so that the time taken does not depend on the secret.
    pub(super) fn matches(&self, given: &[u8]) -> bool {
        self.0 == <[u8; 32]>::from(Sha256::digest(given))
    }
}

impl FromStr for WebhookSecret {
    type Err = EmptyWebhookSecret;

    fn from_str(secret: &str) -> Result<Self, Self::Err> {
        let digest = || Self(Sha256::digest(secret).into());
        (!secret.is_empty()).then(digest).ok_or(EmptyWebhookSecret)
    }
}

/// Omits the digest, because a short secret could be guessed from it.
impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}
