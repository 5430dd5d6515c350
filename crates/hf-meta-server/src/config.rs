//! The configuration of the service.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use sha2::{Digest, Sha256};
use thiserror::Error;
use url::Url;

#[cfg(feature = "clap")]
use hf_meta_count::results::text::parse_seconds;

/// Parses a number of seconds, which may be 0.
#[cfg(feature = "clap")]
fn parse_delay(text: &str) -> Result<Duration, &'static str> {
    if text.parse() == Ok(0.0) { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

/// The configuration of a [`Service`](super::Service). With the feature `clap`, it also declares the flags of a command.
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
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Time to live of the counts of branches and tags. The first request afterwards starts a new lookup
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = seconds(Self::default().ttl)))]
    pub ttl: Duration,

    /// Time for which browsers and proxies may cache the counts of branches and tags
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = seconds(Self::default().max_age)))]
    pub max_age: Duration,

    /// Time that a request waits for its lookup before its badge says `pending`
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = seconds(Self::default().lookup_timeout)))]
    pub lookup_timeout: Duration,

    /// Maximum number of lookups that read from the Hub concurrently, at least 1
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", value_parser = positive, default_value_t = Self::default().max_concurrent_lookups))]
    pub max_concurrent_lookups: usize,

    /// Maximum number of queued lookups; requests that need another lookup are rejected
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", default_value_t = Self::default().max_queued_lookups))]
    pub max_queued_lookups: usize,

    /// Approximate memory limit for results, in bytes
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", default_value_t = Self::default().memory_limit))]
    pub memory_limit: u64,

    /// Maximum requests per minute from one client for results that are not in memory; 0 for no limit. All viewers
    /// behind an image proxy count as one client
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", default_value_t = Self::default().requests_per_minute))]
    pub requests_per_minute: u32,

    /// Maximum requests to the Hub per lookup; weights that need more requests are not read
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", value_parser = positive, default_value_t = Self::default().max_requests_per_lookup))]
    pub max_requests_per_lookup: usize,

    /// Maximum requests to the Hub per minute caused by one client, with an equal limit for refreshes of known badges;
    /// 0 for no limit. A client can always start one lookup of the maximum size
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", default_value_t = Self::default().upstream_requests_per_minute))]
    pub upstream_requests_per_minute: u32,

    /// Maximum requests to the Hub per minute caused by all clients together; 0 for no limit. The rest of the quota is
    /// reserved for refreshes of known badges
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", default_value_t = Self::default().total_upstream_requests_per_minute))]
    pub total_upstream_requests_per_minute: u32,

    /// Networks of proxies whose `X-Forwarded-For` header is trusted, such as 127.0.0.1/32
    #[cfg_attr(
        feature = "clap",
        arg(long = "trusted-proxy", value_name = "NETWORK", value_delimiter = ',', value_parser = network)
    )]
    pub trusted_proxies: Vec<IpNet>,

    /// Public URL of the service, used in snippets [default: taken from the request]
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL", value_parser = public_url))]
    pub public_url: Option<Url>,

    /// Maximum number of open connections, at least 1; further connections wait. One client may have a quarter of them,
    /// unless it is a trusted proxy
    #[cfg_attr(feature = "clap", arg(long, value_name = "COUNT", value_parser = positive, default_value_t = Self::default().max_connections))]
    pub max_connections: usize,

    /// Time after which a connection is closed if its client neither sends nor reads
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = seconds(Self::default().client_timeout)))]
    pub client_timeout: Duration,

    /// Owners whose repositories may be read, in any case of letters [default: all]
    #[cfg_attr(
        feature = "clap",
        arg(long = "allowed-owner", value_name = "NAME", value_delimiter = ',')
    )]
    pub allowed_owners: Vec<String>,

    /// Sites that may embed the page, such as `https://huggingface.co` [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SITES"))]
    pub frame_ancestors: Option<String>,

    /// Folder of the built npm package, whose page is then served and linked: `crates/hf-meta-wasm/pkg` [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FOLDER", value_parser = inspector))]
    pub inspector: Option<PathBuf>,

    /// Secret of a Hub webhook, which refreshes badges through `/webhook` [default: no webhook]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECRET", hide_env_values = true))]
    pub webhook_secret: Option<WebhookSecret>,

    /// Time during which new connections are still accepted after a shutdown begins and `/readyz` returns 503, so that
    /// load balancers notice it
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_delay, default_value = seconds(Self::default().drain_delay)))]
    pub drain_delay: Duration,

    /// Time that requests in flight are given to complete at shutdown
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = seconds(Self::default().shutdown_timeout)))]
    pub shutdown_timeout: Duration,

    /// `true`, as by default, if the router includes the route `/metrics`. To serve it separately, use
    /// [`Service::metrics_router`](super::Service::metrics_router).
    #[cfg_attr(feature = "clap", arg(skip = true))]
    pub serve_metrics: bool,
}

/// Parses a positive number.
#[cfg(feature = "clap")]
fn positive(text: &str) -> Result<usize, &'static str> {
    text.parse().map(std::num::NonZeroUsize::get).map_err(|_| "expected a whole number from 1")
}

/// Parses a network, or an address, which is a network of one.
#[cfg(feature = "clap")]
fn network(text: &str) -> Result<IpNet, &'static str> {
    let address = || text.parse().ok().map(|address: std::net::IpAddr| address.into());
    text.parse().ok().or_else(address).ok_or("expected a network, such as 127.0.0.1/32")
}

/// Parses a URL of a web server.
#[cfg(feature = "clap")]
fn public_url(text: &str) -> Result<Url, &'static str> {
    let url = text.parse().ok().filter(|url: &Url| matches!(url.scheme(), "http" | "https"));
    url.ok_or("expected a URL, such as https://badges.example.org")
}

/// Returns the number of seconds as a default value of a flag.
#[cfg(feature = "clap")]
fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

#[cfg(feature = "clap")]
fn inspector(folder: &str) -> Result<PathBuf, &'static str> {
    let folder = PathBuf::from(folder);
    let has_page =
        ["page/index.html", "esm/index.js"].iter().all(|file| folder.join(file).is_file());
    has_page
        .then_some(folder)
        .ok_or("it is not the built npm package: `page/index.html` or `esm/index.js` is missing")
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
            drain_delay: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(10),
            allowed_owners: Vec::new(),
            frame_ancestors: None,
            inspector: None,
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
