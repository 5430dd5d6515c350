//! State shared by all requests.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use url::Url;

use super::ServiceConfig;
use super::client_ip::TrustedProxies;
use super::lookup::{LookupOutcome, Lookups};
use super::metrics::ServerMetrics;
use super::reply::CachePolicy;
use super::request_budgets::RequestBudgets;
use super::weights_query::WeightsQuery;
use crate::client::Client;

/// The IP address of the other end of a connection, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// The state shared by all requests.
pub(super) struct ServiceState {
    pub(super) config: ServiceConfig,
    pub(super) lookups: Arc<Lookups>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) is_shutting_down: AtomicBool,
    trusted_proxies: TrustedProxies,
    requests: RequestBudgets<IpAddr>,
}

impl ServiceState {
    pub(super) fn new(client: Client, config: ServiceConfig) -> Arc<Self> {
        let metrics = Arc::new(ServerMetrics::new());
        Arc::new(Self {
            lookups: Lookups::new(client, &config, Arc::clone(&metrics)),
            metrics,
            is_shutting_down: AtomicBool::new(false),
            trusted_proxies: TrustedProxies::new(config.trusted_proxies.clone()),
            requests: RequestBudgets::per_minute(
                config.requests_per_minute,
                config.requests_per_minute,
            ),
            config,
        })
    }

    /// Returns the IP address of the client. A request without a connection comes from a test.
    pub(super) fn client_ip(&self, request: &Request) -> IpAddr {
        let peer = request.extensions().get::<PeerAddress>();
        let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |PeerAddress(address)| *address);
        self.trusted_proxies.client_ip(peer, request.headers())
    }

    /// Looks up the weights for a request of a client, within the limits of the client. A result in memory is
    /// returned before any limit applies.
    pub(super) async fn look_up(&self, query: &WeightsQuery, client: IpAddr) -> LookupOutcome {
        let may_wait = || {
            let is_within = self.requests.spend(client);
            if !is_within {
                self.metrics.limited_requests.inc();
            }
            is_within
        };
        self.lookups.get(query, client, may_wait).await
    }

    /// Returns the cache policy of a response with counts.
    pub(super) fn cache_policy(&self, query: &WeightsQuery) -> CachePolicy {
        if query.is_pinned() {
            CachePolicy::Immutable
        } else {
            CachePolicy::Revalidate(self.config.max_age)
        }
    }

    /// Returns the URL of the page as its users see it, with a slash at its end: the configured URL, or
    /// the URL in the headers of the request.
    pub(super) fn base_url(&self, headers: &HeaderMap) -> String {
        let configured = self.config.public_url.clone();
        let url = configured.or_else(|| {
            let host = headers.get(HOST)?.to_str().ok()?;
            let is_secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
            let scheme = if is_secure { "https" } else { "http" };
            Url::parse(&format!("{scheme}://{host}/")).ok()
        });
        url.map_or_else(|| "/".to_owned(), |url| format!("{}/", url.as_str().trim_end_matches('/')))
    }
}
