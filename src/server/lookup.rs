//! Coalesced lookups: results from memory, else from one lookup at the Hub that all requests share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, Shared};
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::sync::Semaphore;

use super::ServiceConfig;
use super::lookup_result::{CachedResult, CountedWeights, LookupResult};
use super::metrics::{ResultSource, ServerMetrics};
use super::weights_query::WeightsQuery;
use crate::badge::MetricValues;
use crate::client::Client;
use crate::error::Error;
use crate::formats::chain;
use crate::hub::Endpoint;

/// The typical size of a result in bytes, for an estimate of the number of results in memory.
const TYPICAL_RESULT_BYTES: u64 = 3_072;

/// The outcome of a lookup for one request.
#[derive(Clone, Debug)]
pub(super) enum LookupOutcome {
    /// The result, fresh or stale.
    Ready(Arc<LookupResult>),
    /// The lookup is still in flight.
    Pending,
    /// No lookup was started, because too many are queued or the client has started too many.
    Busy,
    /// The client has made too many requests.
    RateLimited,
}

impl LookupOutcome {
    /// Returns the weights if they were read and counted.
    pub(super) fn counted(&self) -> Option<&CountedWeights> {
        match self {
            Self::Ready(result) => match &**result {
                LookupResult::Counted(counted) => Some(counted),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The cache of results and the lookups in flight.
pub(super) struct Lookups {
    client: Client,
    config: ServiceConfig,
    results: MemoryCache<WeightsQuery, CachedResult, ResultSize>,
    in_flight: Mutex<HashMap<WeightsQuery, SharedLookup>>,
    /// One permit for each concurrent lookup.
    permits: Semaphore,
    /// The maximum number of queued and running lookups.
    max_in_flight: usize,
    metrics: Arc<ServerMetrics>,
}

/// A lookup in flight. It is a task of its own, so it continues if no request waits for it.
type SharedLookup = Shared<BoxFuture<'static, LookupOutcome>>;

#[derive(Clone)]
struct ResultSize;

impl Weighter<WeightsQuery, CachedResult> for ResultSize {
    fn weight(&self, query: &WeightsQuery, cached: &CachedResult) -> u64 {
        (query.size() + cached.result.size()) as u64
    }
}

impl Lookups {
    pub(super) fn new(
        client: Client,
        config: &ServiceConfig,
        metrics: Arc<ServerMetrics>,
    ) -> Arc<Self> {
        let estimate = usize::try_from(config.memory_limit / TYPICAL_RESULT_BYTES);
        let estimate = estimate.unwrap_or(usize::MAX).max(16);
        let max_concurrent = config.max_concurrent_lookups.max(1);
        Arc::new(Self {
            client,
            config: config.clone(),
            results: MemoryCache::with_weighter(estimate, config.memory_limit, ResultSize),
            in_flight: Mutex::default(),
            permits: Semaphore::new(max_concurrent),
            max_in_flight: config.max_queued_lookups.saturating_add(max_concurrent),
            metrics,
        })
    }

    /// Returns the Hub that lookups read from.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    /// Returns the result for a query: from memory if it is fresh or recently expired, else by a lookup.
    /// `may_start` is called before a new lookup starts and can refuse it.
    pub(super) async fn get(
        self: &Arc<Self>,
        query: &WeightsQuery,
        may_start: impl FnOnce() -> bool,
    ) -> LookupOutcome {
        let cached = self.results.get(query);
        match &cached {
            Some(cached) if cached.is_fresh() => {
                self.metrics.result(ResultSource::Memory);
                return LookupOutcome::Ready(Arc::clone(&cached.result));
            }
            Some(cached) if cached.is_usable() => {
                self.metrics.result(ResultSource::Stale);
                self.refresh(query);
                return LookupOutcome::Ready(Arc::clone(&cached.result));
            }
            _ => {}
        }
        match (self.wait_for_lookup(query, may_start).await, cached) {
            // A result older than the maximum staleness is still better than none.
            (LookupOutcome::Pending | LookupOutcome::Busy, Some(cached))
                if !cached.result.is_transient_failure() =>
            {
                LookupOutcome::Ready(cached.result)
            }
            (outcome, _) => outcome,
        }
    }

    /// Joins or starts a lookup and waits for its result, but not for longer than configured.
    async fn wait_for_lookup(
        self: &Arc<Self>,
        query: &WeightsQuery,
        may_start: impl FnOnce() -> bool,
    ) -> LookupOutcome {
        let Some(lookup) = self.join_or_start(query, self.max_in_flight, may_start) else {
            self.metrics.result(ResultSource::Refused);
            return LookupOutcome::Busy;
        };
        if let Ok(outcome) = tokio::time::timeout(self.config.lookup_wait, lookup).await {
            self.metrics.result(ResultSource::Hub);
            return outcome;
        }
        self.metrics.result(ResultSource::Pending);
        LookupOutcome::Pending
    }

    /// Starts a lookup in the background. It uses at most half of the queue, so that lookups with
    /// waiting requests always find room.
    fn refresh(self: &Arc<Self>, query: &WeightsQuery) {
        drop(self.join_or_start(query, self.max_in_flight / 2, || true));
    }

    /// Returns the lookup in flight for a query, or starts one. Returns `None` if `limit` lookups are in
    /// flight or `may_start` refuses.
    fn join_or_start(
        self: &Arc<Self>,
        query: &WeightsQuery,
        limit: usize,
        may_start: impl FnOnce() -> bool,
    ) -> Option<SharedLookup> {
        let mut in_flight = self.lock_in_flight();
        if let Some(lookup) = in_flight.get(query) {
            return Some(lookup.clone());
        }
        if in_flight.len() >= limit || !may_start() {
            return None;
        }
        let task = tokio::spawn(Arc::clone(self).run(query.clone()));
        // A task has no result only if the runtime shuts down or the lookup panics.
        let outcome = task.map(|result| result.map_or(LookupOutcome::Busy, LookupOutcome::Ready));
        let lookup = outcome.boxed().shared();
        in_flight.insert(query.clone(), lookup.clone());
        self.metrics.lookups_in_flight.set(in_flight.len() as u64);
        Some(lookup)
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, HashMap<WeightsQuery, SharedLookup>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit, reads from the Hub and stores the result.
    async fn run(self: Arc<Self>, query: WeightsQuery) -> Arc<LookupResult> {
        let guard = InFlightGuard { lookups: &self, query: &query };
        let _permit = self.permits.acquire().await;
        let result = Arc::new(self.read(&query).await);
        self.metrics.lookup(&result);
        let stored = self.store(&query, result);
        drop(guard);
        stored
    }

    /// Stores a result and returns it. A transient failure does not replace an earlier result, but
    /// delays the next lookup.
    fn store(&self, query: &WeightsQuery, result: Arc<LookupResult>) -> Arc<LookupResult> {
        let earlier = self.results.get(query);
        let earlier = earlier.filter(|cached| !cached.result.is_transient_failure());
        let ttl = result.ttl(query.is_pinned(), self.config.ttl);
        let result = match earlier {
            Some(earlier) if result.is_transient_failure() => earlier.result,
            _ => result,
        };
        self.results.insert(query.clone(), CachedResult::new(Arc::clone(&result), ttl));
        self.metrics.memory_bytes.set(self.results.weight());
        self.metrics.memory_results.set(self.results.len() as u64);
        result
    }

    /// Reads from the Hub.
    async fn read(&self, query: &WeightsQuery) -> LookupResult {
        let model = query.model(&self.client);
        if query.is_listing() {
            return model.weight_sets().await.map_or_else(
                |error| LookupResult::Failed { error: logged(query, error) },
                LookupResult::Listed,
            );
        }
        let error = match model.parse_safetensors_metadata().await {
            Ok(parsed) => return LookupResult::from_parsed(&parsed),
            Err(error) => error,
        };
        if matches!(error, Error::Gated { .. })
            && let Ok(Some(reported)) = model.hub_reported_count().await
        {
            let values = MetricValues::from_unverified(reported.parameters, reported.total);
            return LookupResult::HubReported { values, error: logged(query, error) };
        }
        LookupResult::Failed { error: logged(query, error) }
    }
}

/// Logs an error with its causes, which responses leave out.
fn logged(query: &WeightsQuery, error: Error) -> Arc<Error> {
    tracing::info!(repo = query.repo(), error = chain(&error), "lookup failed");
    Arc::new(error)
}

/// Removes a lookup from the lookups in flight when it ends, even by a panic.
struct InFlightGuard<'a> {
    lookups: &'a Lookups,
    query: &'a WeightsQuery,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.lookups.lock_in_flight();
        in_flight.remove(self.query);
        self.lookups.metrics.lookups_in_flight.set(in_flight.len() as u64);
    }
}
