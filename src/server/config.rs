//! The configuration of the service.

use std::time::Duration;

use super::{IpNet, Url, WebhookSecret};

/// The configuration of a [`Service`](super::Service).
///
/// ```
/// use std::time::Duration;
///
/// let mut config = hf_meta::server::ServiceConfig::default();
/// config.ttl = Duration::from_secs(60);
/// config.trusted_proxies = vec!["10.0.0.0/8".parse()?];
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Time to live of a result for a branch or tag. After it, the next request starts a new lookup.
    pub ttl: Duration,
    /// Time for which browsers and proxies may cache a response about a branch or tag.
    pub max_age: Duration,
    /// Time for which a request waits for its lookup before it gets the response `pending`.
    pub lookup_wait: Duration,
    /// The number of lookups that read from the Hub concurrently, at least 1.
    pub max_concurrent_lookups: usize,
    /// The number of lookups that may wait for their turn. Requests for further lookups are refused.
    pub max_queued_lookups: usize,
    /// The approximate size of the result cache in memory, in bytes.
    pub memory_limit: u64,
    /// The number of requests per minute that one client may make for results that are not in memory; 0 for
    /// no limit. All viewers behind an image proxy count as one client.
    pub requests_per_minute: u32,
    /// The number of requests to the Hub of one lookup. Weights in more files are not read.
    pub max_requests_per_lookup: usize,
    /// The number of requests to the Hub per minute that one client may cause by new lookups, and as many again by
    /// refreshes of known results; 0 for no limit. A client can always start one lookup of the largest allowed size.
    pub upstream_requests_per_minute: u32,
    /// The number of requests to the Hub per minute that all clients together may cause; 0 for no limit. The
    /// rest of the Hub's quota is a reserve for refreshing known results.
    pub new_upstream_requests_per_minute: u32,
    /// The networks of proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The URL of the service as its users see it, for the snippets on the page. By default it is
    /// taken from the request.
    pub public_url: Option<Url>,
    /// The number of open connections, at least 1. Further connections wait to be accepted.
    pub max_connections: usize,
    /// The number of open connections of one client; by default a quarter of `max_connections`. Further
    /// connections are closed. Trusted proxies have no such limit.
    pub max_connections_per_client: Option<usize>,
    /// Time within which the head of a request has to arrive. An idle connection is closed after it.
    pub header_timeout: Duration,
    /// Time after which a connection is closed whose client does not read its response.
    pub write_timeout: Duration,
    /// Time between the start of a shutdown, when `/readyz` answers 503, and the end of new connections. A load
    /// balancer needs a few seconds to notice.
    pub drain_delay: Duration,
    /// Time that requests in flight get to complete during a shutdown.
    pub shutdown_timeout: Duration,
    /// The owners whose repositories are read, without regard to letter case; all if it is empty.
    pub owners: Vec<String>,
    /// The sites that may embed the page, as in the directive `frame-ancestors` of a content security policy;
    /// none by default.
    pub frame_ancestors: Option<String>,
    /// The secret of a webhook of the Hub. With it, the router has the route `/webhook`, which refreshes the results
    /// of a changed repository at once.
    pub webhook_secret: Option<WebhookSecret>,
    /// `true` if the router has the route `/metrics`. [`Service::metrics_router`](super::Service::metrics_router)
    /// has it alone, for a port that only the operator reaches.
    pub serves_metrics: bool,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(300),
            max_age: Duration::from_secs(3_600),
            lookup_wait: Duration::from_secs(3),
            max_concurrent_lookups: 8,
            max_queued_lookups: 1_000,
            memory_limit: 64 << 20,
            requests_per_minute: 6_000,
            max_requests_per_lookup: 500,
            upstream_requests_per_minute: 120,
            new_upstream_requests_per_minute: 400,
            trusted_proxies: Vec::new(),
            public_url: None,
            max_connections: 10_000,
            max_connections_per_client: None,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(10),
            owners: Vec::new(),
            frame_ancestors: None,
            webhook_secret: None,
            serves_metrics: true,
        }
    }
}
