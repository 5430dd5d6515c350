//! Results in memory, and the lookups in flight that will produce more.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::time::Instant;

use super::lookup_result::LookupResult;
use super::metrics::ServerMetrics;
use super::weights_query::WeightsQuery;

/// The expected number of results. More results are stored if they fit. With more than 32, `quick_cache` splits its
/// capacity into shards, four for each CPU core, and large results do not fit into one.
const EXPECTED_RESULTS: usize = 32;

/// The maximum time a stale result is served while a background lookup refreshes it.
const MAX_STALENESS: Duration = Duration::from_secs(24 * 3_600);

/// The result of a lookup in flight; `None` if the lookup ended without one. The lookup is a separate task, so it
/// continues even if nobody waits for it.
pub(super) type SharedLookup = Shared<BoxFuture<'static, Option<Arc<LookupResult>>>>;

/// The results in memory and the lookups in flight. Requests for one query share a lookup.
pub(super) struct Results {
    in_memory: MemoryCache<WeightsQuery, CachedResult, ResultSize>,
    in_flight: Mutex<InFlight>,
    /// Incremented whenever results have changed before they expired.
    pub(super) generation: AtomicU64,
    /// The time to live of results for branches and tags.
    ttl: Duration,
    metrics: Arc<ServerMetrics>,
}

#[derive(Default)]
struct InFlight {
    by_query: HashMap<WeightsQuery, SharedLookup>,
    /// The queries whose repository has changed since their lookup started.
    outdated: HashSet<WeightsQuery>,
}

/// A result in memory.
#[derive(Clone, Debug)]
pub(super) struct CachedResult {
    pub(super) result: Arc<LookupResult>,
    /// The end of its time to live; `None` for a result that never expires.
    expires_at: Option<Instant>,
    /// True if the repository has changed, so that the next lookup must request the commit.
    pub(super) is_outdated: bool,
}

#[derive(Clone)]
struct ResultSize;

impl Weighter<WeightsQuery, CachedResult> for ResultSize {
    fn weight(&self, query: &WeightsQuery, cached: &CachedResult) -> u64 {
        (query.size() + cached.result.size()) as u64
    }
}

impl Results {
    /// Creates an empty memory of at most `memory_limit` bytes.
    pub(super) fn new(memory_limit: u64, ttl: Duration, metrics: Arc<ServerMetrics>) -> Self {
        Self {
            in_memory: MemoryCache::with_weighter(EXPECTED_RESULTS, memory_limit, ResultSize),
            in_flight: Mutex::default(),
            generation: AtomicU64::new(0),
            ttl,
            metrics,
        }
    }

    /// Returns the result for a query if it is in memory.
    pub(super) fn get(&self, query: &WeightsQuery) -> Option<CachedResult> {
        self.in_memory.get(query)
    }

    /// Marks the results and the lookups in flight for branches and tags of a changed repository. Until the next lookup,
    /// the results are stale. Returns their queries.
    pub(super) fn mark_changed(&self, repo: &str) -> HashSet<WeightsQuery> {
        let is_affected = |query: &WeightsQuery| !query.is_pinned() && query.matches_repo(repo);
        let mut in_flight = self.lock();
        let running: Vec<_> =
            in_flight.by_query.keys().filter(|query| is_affected(query)).cloned().collect();
        in_flight.outdated.extend(running.iter().cloned());
        let stored: Vec<_> =
            self.in_memory.iter().filter(|(query, _)| is_affected(query)).collect();
        for (query, CachedResult { result, .. }) in stored.iter().cloned() {
            let expires_at = Some(Instant::now());
            self.in_memory.insert(query, CachedResult { result, expires_at, is_outdated: true });
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        stored.into_iter().map(|(query, _)| query).chain(running).collect()
    }

    /// Stores a result. A transient failure does not replace an earlier result, but delays the next lookup.
    pub(super) fn store(&self, query: &WeightsQuery, result: &Arc<LookupResult>) {
        let ttl = result.ttl(query.is_pinned(), self.ttl);
        let earlier = self.get(query).filter(|earlier| !earlier.result.is_transient_failure());
        let earlier = if result.is_transient_failure() { earlier } else { None };
        let in_flight = self.lock();
        let was_outdated = earlier.as_ref().is_some_and(|earlier| earlier.is_outdated);
        let is_outdated = was_outdated || in_flight.outdated.contains(query);
        let ttl = if in_flight.outdated.contains(query) { Some(Duration::ZERO) } else { ttl };
        let expires_at = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        let result = earlier.map_or_else(|| Arc::clone(result), |earlier| earlier.result);
        self.in_memory.insert(query.clone(), CachedResult { result, expires_at, is_outdated });
        drop(in_flight);
        self.metrics.memory_bytes.set(self.in_memory.weight());
        self.metrics.memory_results.set(self.in_memory.len() as u64);
    }

    /// Returns the lookup in flight for a query, or starts one. Returns `None` if `limit` lookups are in flight, or if
    /// `start` does not start one.
    pub(super) fn join_or_start(
        &self,
        query: &WeightsQuery,
        limit: usize,
        start: impl FnOnce() -> Option<SharedLookup>,
    ) -> Option<SharedLookup> {
        let mut in_flight = self.lock();
        if let Some(lookup) = in_flight.by_query.get(query) {
            return Some(lookup.clone());
        }
        if in_flight.by_query.len() >= limit {
            return None;
        }
        let lookup = start()?;
        in_flight.by_query.insert(query.clone(), lookup.clone());
        self.metrics.lookups_in_flight.set(in_flight.by_query.len() as u64);
        Some(lookup)
    }

    /// Removes a lookup from the lookups in flight.
    pub(super) fn end_lookup(&self, query: &WeightsQuery) {
        let mut in_flight = self.lock();
        in_flight.outdated.remove(query);
        in_flight.by_query.remove(query);
        self.metrics.lookups_in_flight.set(in_flight.by_query.len() as u64);
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedResult {
    pub(super) fn is_fresh(&self) -> bool {
        self.staleness().is_none()
    }

    /// Returns the end of the result's freshness; `None` if it has expired.
    pub(super) fn fresh_until(&self) -> Option<Instant> {
        let forever = || Instant::now() + MAX_STALENESS;
        self.is_fresh().then(|| self.expires_at.unwrap_or_else(forever))
    }

    /// Returns whether the result may be served while a background lookup refreshes it.
    pub(super) fn may_serve_stale(&self) -> bool {
        let is_recent = self.staleness().is_none_or(|staleness| staleness < MAX_STALENESS);
        is_recent && !self.result.is_transient_failure()
    }

    /// Returns the time since the result expired, or `None` while it is fresh.
    fn staleness(&self) -> Option<Duration> {
        Instant::now().checked_duration_since(self.expires_at?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::weights_query::QueryString;
    use hf_meta_format::formats::Formats;
    use hf_meta_format::formats::weight_sets::{ListedFile, ListedWeights};

    #[test]
    fn a_result_of_most_of_the_memory_is_stored() {
        let limit = 1 << 20;
        let results = Results::new(limit, Duration::ZERO, Arc::new(ServerMetrics::new()));
        let query = WeightsQuery::parse("org/model", &QueryString::parse(None)).unwrap();
        let file = |n| ListedFile { path: format!("{n}/x.safetensors").parse().unwrap(), size: 9 };
        let files: Vec<_> = (0..1_000).map(file).collect();
        let sets = ListedWeights::new(Formats::built_in(), None, &files).sets;
        let mut failure = Failure::pending();
        failure.sets = sets;
        let result = LookupResult::Failed(failure);
        assert!(result.size() as u64 > limit / 4, "{} bytes", result.size());
        results.store(&query, &Arc::new(result));
        assert!(results.get(&query).is_some());
    }
}
