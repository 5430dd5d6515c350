//! What all requests share.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use url::Url;

use super::Settings;
use super::client_ip::TrustedProxies;
use super::limit::Limit;
use super::lookup::{Bounds, Lookups};
use super::metrics::Metrics;
use super::place::Place;
use super::respond::Caching;
use crate::client::Client;

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

pub(super) struct State {
    pub(super) lookups: Arc<Lookups>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) is_ending: AtomicBool,
    proxies: TrustedProxies,
    requests: Limit,
    looks: Limit,
    settings: Settings,
}

impl State {
    pub(super) fn new(client: Client, settings: Settings) -> Arc<Self> {
        let metrics = Arc::new(Metrics::new());
        let bounds = Bounds {
            at_once: settings.max_concurrent_lookups.max(1),
            in_all: settings.looks_waiting.saturating_add(settings.max_concurrent_lookups.max(1)),
            memory: settings.memory,
            fresh: settings.fresh,
            patience: settings.patience,
        };
        Arc::new(Self {
            lookups: Lookups::new(client, bounds, Arc::clone(&metrics)),
            metrics,
            is_ending: AtomicBool::new(false),
            proxies: TrustedProxies::new(settings.trusted_proxies.clone()),
            requests: Limit::new(settings.requests_per_minute, settings.requests_per_minute),
            looks: Limit::new(settings.looks_per_minute, settings.looks_per_minute),
            settings,
        })
    }

    /// Who asks. A request that came by no connection is one of a test.
    pub(super) fn client_of(&self, request: &Request) -> IpAddr {
        let peer = request.extensions().get::<Peer>();
        let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(address)| *address);
        self.proxies.client(peer, request.headers())
    }

    /// Whether a client may make a request; counts it.
    pub(super) fn may_ask(&self, client: IpAddr) -> bool {
        let may = self.requests.allows(client);
        if !may {
            self.metrics.limited();
        }
        may
    }

    /// Whether a client may have the Hub asked for something new; counts it.
    pub(super) fn may_look(&self, client: IpAddr) -> bool {
        let may = self.looks.allows(client);
        if !may {
            self.metrics.limited();
        }
        may
    }

    /// How long figures of a place may be given by others.
    pub(super) fn caching(&self, place: &Place) -> Caching {
        if place.is_pinned() { Caching::Immutable } else { Caching::For(self.settings.max_age) }
    }

    /// The address of the page as readers see it, with a slash at its end: as it is set, else as this
    /// request gives it.
    pub(super) fn address(&self, headers: &HeaderMap) -> String {
        let set = self.settings.address.as_ref();
        let address = set.cloned().or_else(|| {
            let host = headers.get(HOST)?.to_str().ok()?;
            let is_secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
            let scheme = if is_secure { "https" } else { "http" };
            Url::parse(&format!("{scheme}://{host}/")).ok()
        });
        address.map_or_else(
            || "/".to_owned(),
            |url| format!("{}/", url.as_str().trim_end_matches('/')),
        )
    }

    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}
