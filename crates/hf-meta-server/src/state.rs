//! State shared by all requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::{ConnectInfo, OriginalUri, Request};
use axum::http::header::HOST;
use tokio::sync::Notify;
use url::Url;

use super::badge_cache::BadgeCache;
use super::client_ip::{PeerAddress, TrustedProxies};
use super::config::ServiceConfig;
use super::failure::Failure;
use super::lookup::Lookups;
use super::lookup_result::LookupResult;
use super::metrics::ServerMetrics;
use super::reply::CachePolicy;
use super::weights_query::WeightsQuery;
use hf_meta::Client;

/// The state shared by all requests.
pub(super) struct ServiceState {
    pub(super) config: ServiceConfig,
    pub(super) lookups: Arc<Lookups>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) badge_cache: BadgeCache,
    pub(super) is_shutting_down: AtomicBool,
    /// Notified to end the drain of a shutdown early.
    pub(super) drain_end: Notify,
    pub(super) trusted_proxies: TrustedProxies,
}

impl ServiceState {
    pub(super) fn new(client: Client, config: ServiceConfig) -> Arc<Self> {
        let metrics = Arc::new(ServerMetrics::new());
        Arc::new(Self {
            lookups: Lookups::new(client, &config, Arc::clone(&metrics)),
            metrics,
            badge_cache: BadgeCache::new(),
            is_shutting_down: AtomicBool::new(false),
            drain_end: Notify::new(),
            trusted_proxies: TrustedProxies::new(config.trusted_proxies.clone()),
            config,
        })
    }

    /// Returns the IP address of the client. Requests without an address come from tests, or from applications that
    /// do not set it; they all count as one client.
    pub(super) fn client_ip(&self, request: &Request) -> IpAddr {
        let peer = request.extensions().get().map(|PeerAddress(address)| *address);
        let info = || request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.or_else(|| Some(info()?.0.ip())).unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        self.trusted_proxies.client_ip(peer, request.headers())
    }

    /// Looks up the weights for a client's request, within the client's limits.
    pub(super) async fn look_up(&self, query: &WeightsQuery, client: IpAddr) -> Arc<LookupResult> {
        let owners = &self.config.allowed_owners;
        let owner = query.repo().name().split_once('/').map_or("", |(owner, _)| owner);
        if owners.is_empty() || owners.iter().any(|allowed| allowed.eq_ignore_ascii_case(owner)) {
            self.lookups.get(query, client).await
        } else {
            Failure::not_allowed().into()
        }
    }

    /// Returns the cache policy of a response with counts.
    pub(super) fn cache_policy(&self, query: &WeightsQuery) -> CachePolicy {
        if query.is_pinned() {
            CachePolicy::Immutable
        } else {
            CachePolicy::Revalidate(self.config.max_age)
        }
    }

    /// Returns the public URL of the page with a trailing slash: the configured URL, or the URL in the request.
    pub(super) fn base_url(&self, request: &Request) -> String {
        let (configured, headers) = (self.config.public_url.clone(), request.headers());
        let original = request.extensions().get().map(|OriginalUri(uri)| uri.path());
        let url = configured.or_else(|| {
            let host = headers.get(HOST)?.to_str().ok()?;
            let is_secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
            let scheme = if is_secure { "https" } else { "http" };
            // An application may mount the routes below a path.
            let path = original.and_then(|path| path.strip_suffix(request.uri().path()));
            Url::parse(&format!("{scheme}://{host}{}/", path.unwrap_or_default())).ok()
        });
        url.map_or_else(|| "/".to_owned(), |url| format!("{}/", url.as_str().trim_end_matches('/')))
    }
}
