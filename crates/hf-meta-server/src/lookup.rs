//! Lookups: results come from memory, or else from one lookup at the Hub that all requests share.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::config::ServiceConfig;
use super::failure::Failure;
use super::hub_outage::HubOutage;
use super::lookup_budget::{EarlyExit, FIRST_REQUESTS, LookupBudget, LookupCause, LookupLimits};
use super::lookup_result::LookupResult;
use super::metrics::{ResultSource, ServerMetrics};
use super::results::{Results, SharedLookup};
use super::token_buckets::TokenBuckets;
use super::weights_query::WeightsQuery;
use hf_meta::{CacheMode, Client, Endpoint, Error, ErrorKind};
use hf_meta_count::engines::add_count_answer;
use hf_meta_format::formats::chain;

/// Answers queries from memory or from the Hub.
pub(super) struct Lookups {
    client: Client,
    config: ServiceConfig,
    results: Results,
    /// The requests per client that may wait for a lookup.
    requests: TokenBuckets<IpAddr>,
    /// One permit for each concurrent lookup.
    permits: Semaphore,
    /// The maximum number of queued and running lookups.
    max_in_flight: usize,
    limits: Arc<LookupLimits>,
    outage: HubOutage,
    metrics: Arc<ServerMetrics>,
}

impl Lookups {
    pub(super) fn new(
        client: Client,
        config: &ServiceConfig,
        metrics: Arc<ServerMetrics>,
    ) -> Arc<Self> {
        let max_concurrent = config.max_concurrent_lookups.max(1);
        Arc::new(Self {
            client,
            config: config.clone(),
            results: Results::new(config.memory_limit, config.ttl, Arc::clone(&metrics)),
            requests: TokenBuckets::per_minute(
                config.requests_per_minute,
                config.requests_per_minute,
            ),
            permits: Semaphore::new(max_concurrent),
            max_in_flight: config.max_queued_lookups.saturating_add(max_concurrent),
            limits: Arc::new(LookupLimits::new(config)),
            outage: HubOutage::default(),
            metrics,
        })
    }

    /// Returns the Hub that lookups read from.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    /// Returns the result for a client's query: from memory if it is fresh or recently expired, or else from a
    /// lookup. Results in memory are not limited.
    pub(super) async fn get(
        self: &Arc<Self>,
        query: &WeightsQuery,
        client: IpAddr,
    ) -> Arc<LookupResult> {
        let cached = self.results.get(query);
        match &cached {
            Some(cached) if cached.is_fresh() => {
                self.metrics.result(ResultSource::Memory);
                return Arc::clone(&cached.result);
            }
            Some(cached) if cached.may_serve_stale() => {
                self.metrics.result(ResultSource::Stale);
                self.refresh(query, LookupCause::Refresh(client));
                return Arc::clone(&cached.result);
            }
            _ => {}
        }
        let result = if self.requests.try_take(client) {
            self.wait_for_lookup(query, client).await
        } else {
            self.metrics.limited_requests.inc();
            let error = "too many requests from this client; try again in a minute";
            Failure::busy("rate limited", error).into()
        };
        let known = cached.map(|cached| cached.result);
        let known = known.filter(|known| !known.is_transient_failure());
        match known {
            // A result beyond the maximum staleness is still better than none.
            Some(known) if result.is_transient_failure() => known,
            _ => result,
        }
    }

    /// Returns a number that increases when a result changes before it has expired.
    pub(super) fn generation(&self) -> u64 {
        self.results.generation.load(Ordering::Acquire)
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
    ) -> Arc<LookupResult> {
        let busy = || Failure::busy("busy", self.limits.busy_reason(client)).into();
        let Some(lookup) = self.join_or_start(query, self.max_in_flight, LookupCause::New(client))
        else {
            self.metrics.result(ResultSource::Refused);
            return busy();
        };
        if let Ok(result) = tokio::time::timeout(self.config.lookup_timeout, lookup).await {
            self.metrics.result(ResultSource::Hub);
            return result.unwrap_or_else(busy);
        }
        self.metrics.result(ResultSource::Pending);
        Failure::pending().into()
    }

    /// Starts a lookup in the background. Refreshes use at most half of the queue, so that there is always room for
    /// lookups with waiting requests.
    fn refresh(self: &Arc<Self>, query: &WeightsQuery, cause: LookupCause) {
        drop(self.join_or_start(query, self.max_in_flight / 2, cause));
    }

    /// Refreshes all known results of a changed repository in the background. If the queue is too long, or an older
    /// lookup is in flight, the next request for a result refreshes it.
    pub(super) fn refresh_repo(self: &Arc<Self>, repo: &str) {
        for query in self.results.mark_changed(repo) {
            self.refresh(&query, LookupCause::Webhook);
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
        self.results.join_or_start(query, limit, || {
            if !self.limits.allow(cause) {
                self.metrics.limited_requests.inc();
                return None;
            }
            // Charge queued lookups, too, or one client could fill the queue.
            self.limits.debit(cause, FIRST_REQUESTS);
            let (lookups, query) = (Arc::clone(self), query.clone());
            let task = tokio::spawn(async move {
                let run = AssertUnwindSafe(lookups.run(&query, cause)).catch_unwind().await;
                lookups.results.end_lookup(&query);
                run.unwrap_or_default()
            });
            // The task fails only if the runtime shuts down.
            Some(task.map(Result::unwrap_or_default).boxed().shared())
        })
    }

    /// Runs a lookup and stores its result. Returns `None` if there is no budget for it.
    async fn run(&self, query: &WeightsQuery, cause: LookupCause) -> Option<Arc<LookupResult>> {
        let is_outdated = self.results.get(query).is_some_and(|cached| cached.is_outdated);
        let result = match self.read(query, cause, is_outdated).await {
            Ok(result) => Arc::new(result),
            Err(EarlyExit::TooManyFiles { requests }) => {
                let limit = self.limits.max_requests;
                let error = format!(
                    "reading the weights takes {requests} requests; this service sends at most {limit}"
                );
                Failure::too_many_files(error).into()
            }
            Err(EarlyExit::NoBudget) => {
                self.metrics.limited_requests.inc();
                return None;
            }
        };
        self.metrics.lookup(result.label());
        self.results.store(query, &result);
        Some(result)
    }

    /// Waits for a permit and reads from the Hub. Returns the reason if the budget ends the lookup.
    async fn read(
        &self,
        query: &WeightsQuery,
        cause: LookupCause,
        is_outdated: bool,
    ) -> Result<LookupResult, EarlyExit> {
        let _permit = self.permits.acquire().await;
        let (limits, meter) = (Arc::clone(&self.limits), self.client.meter());
        let budget = Arc::new(LookupBudget::new(limits, cause, meter));
        let read = self.inspect(query, is_outdated, &budget).await;
        self.metrics.upstream_requests.inc_by(budget.end());
        let stats = budget.meter.stats();
        self.metrics.cache_hits.inc_by(stats.cache_hits);
        self.metrics.cache_misses.inc_by(stats.cache_misses);
        read
    }

    /// Reads from the Hub.
    async fn inspect(
        &self,
        query: &WeightsQuery,
        is_outdated: bool,
        budget: &Arc<LookupBudget>,
    ) -> Result<LookupResult, EarlyExit> {
        let model = query
            .model(&self.client)
            .meter(&budget.meter)
            .budget(Arc::clone(budget))
            .large_calls(&self.limits.large_calls)
            .cache_mode(if is_outdated { CacheMode::Revalidate } else { CacheMode::Default });
        let error = match model.count().memory(query.memory()).await {
            Ok(mut report) => {
                if report.fetch.stale {
                    self.outage.failed(&"an expired result of the header cache was used");
                } else if report.fetch.requests > 0 {
                    self.outage.responded();
                }
                if query.has_engine()
                    && let Some(options) = query.memory()
                {
                    add_count_answer(&mut report, &options);
                }
                return Ok(report.into());
            }
            Err(error) => error,
        };
        if let Error::OverBudget { source, .. } = &error {
            return Err(source.downcast_ref().copied().unwrap_or(EarlyExit::NoBudget));
        }
        if HubOutage::is_outage(&error) {
            self.outage.failed(&chain(&error));
        } else {
            self.outage.responded();
        }
        let reported = match error.kind() {
            ErrorKind::Gated => model.hub_reported_count().await.ok().flatten(),
            _ => None,
        };
        // Responses omit the causes.
        tracing::info!(repo = %query.repo(), error = chain(&error), "lookup failed");
        Ok(LookupResult::Failed(Failure::from_error(error, reported)))
    }
}
