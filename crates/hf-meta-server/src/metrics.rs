//! Prometheus metrics of the service.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::process_metrics::ProcessMetrics;

/// Upper bounds of the request duration histogram, in seconds. A badge from memory takes microseconds, and a request
/// waits for a lookup for a few seconds at most.
const BUCKETS: [f64; 11] = [0.0001, 0.00025, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0];

/// The source of the result that a request received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum ResultSource {
    /// A fresh result from memory.
    Memory,
    /// A stale result from memory, which a background lookup refreshes.
    Stale,
    /// A lookup that completed while the request waited.
    Hub,
    /// No result: the lookup is still in flight.
    Pending,
    /// No result: the service or the client has started too many lookups.
    Refused,
}

/// A group of endpoints, used as a label of request metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum RouteGroup {
    /// Badges as SVG and JSON.
    Badge,
    /// The JSON API.
    Api,
    /// The page and its files.
    Page,
    /// Health, metrics and the OpenAPI document.
    Service,
    /// Paths that match no endpoint.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: RouteGroup,
    status: u16,
}

/// The name and value of a metric's only label.
type Label<T> = [(&'static str, T); 1];

/// All metrics of the service.
pub(super) struct ServerMetrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<Label<RouteGroup>, Histogram>,
    results: Family<Label<ResultSource>, Counter>,
    lookups: Family<Label<&'static str>, Counter>,
    pub(super) cache_hits: Counter,
    pub(super) cache_misses: Counter,
    pub(super) lookups_in_flight: Gauge<u64, AtomicU64>,
    pub(super) memory_bytes: Gauge<u64, AtomicU64>,
    pub(super) memory_results: Gauge<u64, AtomicU64>,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    pub(super) limited_requests: Counter,
    pub(super) upstream_requests: Counter,
}

impl ServerMetrics {
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            results: Family::default(),
            lookups: Family::default(),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            lookups_in_flight: Gauge::default(),
            memory_bytes: Gauge::default(),
            memory_results: Gauge::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            limited_requests: Counter::default(),
            upstream_requests: Counter::default(),
        };
        metrics.register();
        metrics
    }

    /// Registers all metrics. The registry appends a full stop to each help text and `_total` to counter names.
    fn register(&mut self) {
        self.registry.register_collector(Box::new(ProcessMetrics::new()));
        let registry = self.registry.sub_registry_with_prefix("hf_meta");
        registry.register("requests", "Requests by route and status", self.requests.clone());
        let help = "Request duration in seconds, by route";
        registry.register("request_duration_seconds", help, self.durations.clone());
        let help = "Results served to requests, by source";
        registry.register("results", help, self.results.clone());
        registry.register("lookups", "Hub lookups, by outcome", self.lookups.clone());
        let help = "Lookups served from the header cache, without reading a file";
        registry.register("header_cache_hits", help, self.cache_hits.clone());
        let help = "Lookups for which the header cache had no entry";
        registry.register("header_cache_misses", help, self.cache_misses.clone());
        let help = "Hub lookups that are queued or running";
        registry.register("lookups_in_flight", help, self.lookups_in_flight.clone());
        let help = "Approximate size of the results in memory";
        registry.register("memory_bytes", help, self.memory_bytes.clone());
        let help = "Number of results in memory";
        registry.register("memory_results", help, self.memory_results.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        let help = "Connections closed because their client had too many";
        registry.register("refused_connections", help, self.refused_connections.clone());
        let help = "Requests and lookups refused because of the rate limits of the service";
        registry.register("limited_requests", help, self.limited_requests.clone());
        let help = "Requests to the Hub itself, which count against its quota";
        registry.register("upstream_requests", help, self.upstream_requests.clone());
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a request.
    pub(super) fn request(&self, route: RouteGroup, status: u16, elapsed: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.durations.get_or_create(&[("route", route)]).observe(elapsed.as_secs_f64());
    }

    /// Counts a result that a request received.
    pub(super) fn result(&self, source: ResultSource) {
        self.results.get_or_create(&[("source", source)]).inc();
    }

    /// Counts a lookup at the Hub, by its outcome.
    pub(super) fn lookup(&self, outcome: &'static str) {
        self.lookups.get_or_create(&[("outcome", outcome)]).inc();
    }
}
