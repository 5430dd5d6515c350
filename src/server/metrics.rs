//! What the service counts, for Prometheus.

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

use super::answer::Answer;
use crate::error::Error;

/// Upper bounds in seconds: a badge out of memory takes microseconds, a look at the Hub up to the
/// patience of requests.
const SECONDS: [f64; 11] = [0.0001, 0.00025, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0];

/// Where the answer to a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Source {
    /// Out of memory.
    Memory,
    /// Out of memory, and old enough that a look was begun.
    Stale,
    /// A look that ended while the request waited.
    Hub,
    /// None: the look goes on.
    Pending,
    /// None: there are too many looks, of this client or of all.
    Refused,
}

/// What a look at the Hub came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Outcome {
    Read,
    Claimed,
    Listed,
    SeveralSets,
    NotFound,
    Denied,
    Malformed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    status: u16,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Route {
    Badge,
    Api,
    Page,
    Service,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: Route,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabel, Histogram>,
    lookups: Family<SourceLabel, Counter>,
    looks: Family<OutcomeLabel, Counter>,
    in_flight: Gauge<u64, AtomicU64>,
    memory_bytes: Gauge<u64, AtomicU64>,
    memory_answers: Gauge<u64, AtomicU64>,
    connections: Gauge,
    limited: Counter,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("hf_meta"),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            lookups: Family::default(),
            looks: Family::default(),
            in_flight: Gauge::default(),
            memory_bytes: Gauge::default(),
            memory_answers: Gauge::default(),
            connections: Gauge::default(),
            limited: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests by route and status", self.requests.clone());
        let help = "Seconds from request to answer, by route";
        registry.register("request_duration_seconds", help, self.durations.clone());
        let help = "Where the answers to requests came from";
        registry.register("lookups", help, self.lookups.clone());
        registry.register("looks", "Looks at the Hub by outcome", self.looks.clone());
        let help = "Looks at the Hub that wait or are under way";
        registry.register("looks_in_flight", help, self.in_flight.clone());
        let help = "Bytes of answers in memory, about";
        registry.register("memory_bytes", help, self.memory_bytes.clone());
        registry.register("memory_answers", "Answers in memory", self.memory_answers.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        let help = "Requests beyond the limit of their client";
        registry.register("limited_requests", help, self.limited.clone());
    }

    /// All figures in the text format that Prometheus reads.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(super) fn request(&self, route: Route, status: u16, elapsed: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.durations.get_or_create(&RouteLabel { route }).observe(elapsed.as_secs_f64());
    }

    pub(super) fn lookup(&self, source: Source) {
        self.lookups.get_or_create(&SourceLabel { source }).inc();
    }

    pub(super) fn look(&self, answer: &Answer) {
        let outcome = match answer {
            Answer::Read(_) => Outcome::Read,
            Answer::Claimed { .. } => Outcome::Claimed,
            Answer::Listed(_) => Outcome::Listed,
            Answer::Failed { error } if matches!(**error, Error::SeveralSets { .. }) => {
                Outcome::SeveralSets
            }
            Answer::Failed { error } if error.is_not_found() => Outcome::NotFound,
            Answer::Failed { error } if error.is_denied() => Outcome::Denied,
            Answer::Failed { error } if error.is_malformed() => Outcome::Malformed,
            Answer::Failed { .. } => Outcome::Failed,
        };
        self.looks.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn in_flight(&self, looks: usize) {
        self.in_flight.set(looks as u64);
    }

    pub(super) fn memory(&self, bytes: u64, answers: u64) {
        self.memory_bytes.set(bytes);
        self.memory_answers.set(answers);
    }

    pub(super) fn connected(&self, by: i64) {
        self.connections.inc_by(by);
    }

    pub(super) fn limited(&self) {
        self.limited.inc();
    }
}
