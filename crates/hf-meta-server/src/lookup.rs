//! Coalesced lookups: results come from memory, or else from one lookup at the Hub that all requests share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::future::{BoxFuture, Either, FutureExt, Shared, select};
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::ServiceConfig;
use super::drawn_badges::DrawnBadges;
use super::lookup_gate::{EarlyEnd, FIRST_REQUESTS, LookupCause, LookupGate, LookupLimits};
use super::lookup_result::{CachedResult, CountedWeights, LookupResult};
use super::metrics::{ResultSource, ServerMetrics};
use super::page::WeightsDetails;
use super::weights_query::{QueryKind, WeightsQuery};
use hf_meta::Client;
use hf_meta::Error;
use hf_meta::Model;
use hf_meta::formats::chain;
use hf_meta::{CommitSha, Endpoint};
use hf_meta_badge::MetricValues;

/// The typical size of a result in bytes, to estimate the number of results in memory.
const TYPICAL_RESULT_BYTES: u64 = 3_072;

/// The outcome of a lookup for one request.
#[derive(Clone, Debug)]
pub(super) enum LookupOutcome {
    /// The result, fresh or stale.
    Ready(Arc<LookupResult>),
    /// The lookup is still in flight.
    Pending,
    /// No lookup was started, because too many are queued or the client has no budget left.
    Busy,
    /// The client has made too many requests.
    RateLimited,
    /// The service does not read repositories of this owner.
    NotAllowed,
}

impl LookupOutcome {
    /// Returns the counted weights, if any.
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

/// The result cache and the lookups in flight.
pub(super) struct Lookups {
    client: Client,
    config: ServiceConfig,
    results: MemoryCache<WeightsQuery, CachedResult, ResultSize>,
    in_flight: Mutex<HashMap<WeightsQuery, SharedLookup>>,
    /// One permit for each concurrent lookup.
    permits: Semaphore,
    /// The maximum number of queued and running lookups.
    max_in_flight: usize,
    limits: Arc<LookupLimits>,
    /// A lock for each commit that is being read.
    leases: Mutex<HashMap<WeightsQuery, Weak<AsyncMutex<()>>>>,
    drawn_badges: Arc<DrawnBadges>,
    metrics: Arc<ServerMetrics>,
}

/// A lookup in flight. It runs as a separate task, so it continues even if no request waits for it.
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
        drawn_badges: Arc<DrawnBadges>,
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
            limits: Arc::new(LookupLimits::new(
                config.upstream_requests_per_minute,
                config.total_upstream_requests_per_minute,
                config.max_requests_per_lookup,
            )),
            leases: Mutex::default(),
            drawn_badges,
            metrics,
        })
    }

    /// Returns the Hub that lookups read from.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    /// Returns the result for a client's query: from memory if it is fresh or recently expired, or else from a
    /// lookup. `may_wait` is called before the request waits for a lookup, and can reject it.
    pub(super) async fn get(
        self: &Arc<Self>,
        query: &WeightsQuery,
        client: IpAddr,
        may_wait: impl FnOnce() -> bool,
    ) -> LookupOutcome {
        let cached = self.results.get(query);
        match &cached {
            Some(cached) if cached.is_fresh() => {
                self.metrics.result(ResultSource::Memory);
                return LookupOutcome::Ready(Arc::clone(&cached.result));
            }
            Some(cached) if cached.is_usable() => {
                self.metrics.result(ResultSource::Stale);
                self.refresh(query, client);
                return LookupOutcome::Ready(Arc::clone(&cached.result));
            }
            _ => {}
        }
        let outcome = if may_wait() {
            self.wait_for_lookup(query, client).await
        } else {
            LookupOutcome::RateLimited
        };
        match (outcome, cached) {
            (LookupOutcome::Ready(result), _) => LookupOutcome::Ready(result),
            // A result beyond the maximum staleness is still better than none.
            (_, Some(cached)) if !cached.result.is_transient_failure() => {
                LookupOutcome::Ready(cached.result)
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns the time until which the result for a query is fresh; `None` if it is not in memory or has expired.
    pub(super) fn fresh_until(&self, query: &WeightsQuery) -> Option<Instant> {
        self.results.get(query)?.fresh_until()
    }

    /// Joins or starts a lookup, and waits for its result up to the configured time.
    async fn wait_for_lookup(
        self: &Arc<Self>,
        query: &WeightsQuery,
        client: IpAddr,
    ) -> LookupOutcome {
        let Some(lookup) = self.join_or_start(query, self.max_in_flight, LookupCause::New(client))
        else {
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

    /// Starts a lookup in the background. Refreshes use at most half of the queue, so that there is always room for
    /// lookups with waiting requests.
    fn refresh(self: &Arc<Self>, query: &WeightsQuery, client: IpAddr) {
        drop(self.join_or_start(query, self.max_in_flight / 2, LookupCause::Refresh(client)));
    }

    /// Refreshes all known results of a changed repository in the background.
    pub(super) fn refresh_repo(self: &Arc<Self>, repo: &str) {
        let known = self.results.iter().map(|(query, _)| query);
        let known: Vec<_> = known.filter(|query| !query.is_pinned() && query.is_of(repo)).collect();
        for query in known {
            drop(self.join_or_start(&query, self.max_in_flight / 2, LookupCause::Webhook));
        }
    }

    /// Returns the lookup in flight for a query, or starts one. Returns `None` if `limit` lookups are in flight or
    /// the client has no budget left.
    fn join_or_start(
        self: &Arc<Self>,
        query: &WeightsQuery,
        limit: usize,
        cause: LookupCause,
    ) -> Option<SharedLookup> {
        let mut in_flight = self.lock_in_flight();
        if let Some(lookup) = in_flight.get(query) {
            return Some(lookup.clone());
        }
        if in_flight.len() >= limit {
            return None;
        }
        if !self.limits.allow(cause) {
            self.metrics.limited_requests.inc();
            return None;
        }
        // Charge queued lookups, too, or one client could fill the queue.
        self.limits.charge(cause, FIRST_REQUESTS);
        let task = tokio::spawn(Arc::clone(self).run(query.clone(), cause));
        // The task fails only if the runtime shuts down or the lookup panics.
        let outcome = task.map(|outcome| outcome.unwrap_or(LookupOutcome::Busy));
        let lookup = outcome.boxed().shared();
        in_flight.insert(query.clone(), lookup.clone());
        self.metrics.lookups_in_flight.set(in_flight.len() as u64);
        Some(lookup)
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, HashMap<WeightsQuery, SharedLookup>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit, reads from the Hub and stores the result.
    async fn run(self: Arc<Self>, query: WeightsQuery, cause: LookupCause) -> LookupOutcome {
        let guard = InFlightGuard { lookups: &self, query: &query };
        let _permit = self.permits.acquire().await;
        let results = CommitResults { lookups: Arc::clone(&self), query: query.clone() };
        let meter = self.client.start_call();
        let (gate, end) = LookupGate::new(Arc::clone(&self.limits), cause, meter, Some(results));
        let read = self.read(&query, &gate, cause);
        let result = match select(pin!(end), pin!(read)).await {
            Either::Left((EarlyEnd::NoBudget, _)) => None,
            Either::Left((EarlyEnd::Known(result), _)) => Some(result),
            Either::Left((EarlyEnd::TooManyFiles { files }, _)) => {
                let limit = self.limits.max_requests;
                Some(Arc::new(LookupResult::TooManyFiles { files, limit }))
            }
            Either::Right((result, _)) => Some(Arc::new(result)),
        };
        self.metrics.upstream_requests.inc_by(gate.meter.endpoint_requests());
        let Some(result) = result else {
            self.metrics.limited_requests.inc();
            return LookupOutcome::Busy;
        };
        self.metrics.lookup(&result);
        if let Some(pinned) = gate.pinned().filter(|_| result.is_permanent()) {
            self.store(pinned, Arc::clone(&result));
        }
        let stored = self.store(&query, result);
        if matches!(cause, LookupCause::Webhook) {
            self.drawn_badges.forget();
        }
        drop(guard);
        LookupOutcome::Ready(stored)
    }

    /// Stores a result and returns it. A transient failure does not replace an earlier result, but delays the next
    /// lookup.
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
    async fn read(
        &self,
        query: &WeightsQuery,
        gate: &Arc<LookupGate>,
        cause: LookupCause,
    ) -> LookupResult {
        let model = query
            .model(&self.client)
            .hooks(Arc::clone(gate) as _)
            .meter(&gate.meter)
            .large_calls(&self.limits.large)
            .revalidate(matches!(cause, LookupCause::Webhook));
        let read = match query.kind() {
            QueryKind::Counts => {
                model.count().await.map(|report| LookupResult::from_report(&report))
            }
            QueryKind::Details => read_details(&model).await,
            QueryKind::Listing => model.weight_sets().await.map(LookupResult::Listed),
        };
        let error = match read {
            Ok(result) => return result,
            Err(error) => error,
        };
        if query.kind() == QueryKind::Counts
            && matches!(error, Error::Gated { .. })
            && let Ok(Some(reported)) = model.hub_reported_count().await
        {
            let values = MetricValues::from_unverified(reported.parameters, reported.total);
            return LookupResult::HubReported { values, error: logged(query, error) };
        }
        LookupResult::Failed { error: logged(query, error) }
    }
}

/// Finds and locks the result for a query's commit.
pub(super) struct CommitResults {
    lookups: Arc<Lookups>,
    query: WeightsQuery,
}

impl CommitResults {
    /// Returns the query for a commit, with the repository's canonical name.
    pub(super) fn pinned(&self, commit: &CommitSha, name: Option<&str>) -> WeightsQuery {
        self.query.at_commit(commit, name)
    }

    /// Returns the result of a commit if it is in memory.
    pub(super) fn find(&self, pinned: &WeightsQuery) -> Option<Arc<LookupResult>> {
        Some(self.lookups.results.get(pinned)?.result)
    }

    /// Waits until no other lookup is reading this commit.
    pub(super) async fn lease(&self, pinned: &WeightsQuery) -> OwnedMutexGuard<()> {
        let lease = {
            let leases = self.lookups.leases.lock();
            let mut leases = leases.unwrap_or_else(PoisonError::into_inner);
            leases.retain(|_, lease| lease.strong_count() > 0);
            let entry = leases.entry(pinned.clone()).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let lease = Arc::new(AsyncMutex::new(()));
                *entry = Arc::downgrade(&lease);
                lease
            })
        };
        lease.lock_owned().await
    }
}

/// Reads the details. They are prepared on a blocking thread, because they have a row per tensor.
async fn read_details(model: &Model) -> Result<LookupResult, Error> {
    let weights = model.inspect().await?;
    let details = move || WeightsDetails::from_weights(&weights);
    match spawn_blocking(details).await {
        Ok(details) => Ok(LookupResult::Detailed(Box::new(details))),
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// Logs an error with its causes, which responses omit.
fn logged(query: &WeightsQuery, error: Error) -> Arc<Error> {
    tracing::info!(repo = %query.repo(), error = chain(&error), "lookup failed");
    Arc::new(error)
}

/// Removes a lookup from the lookups in flight when it ends, even if it panics.
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
