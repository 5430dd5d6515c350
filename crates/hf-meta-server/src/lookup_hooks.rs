//! Decides about lookups in progress: known commits, request budgets and memory.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, FutureExt, pending, ready};
use tokio::sync::SetOnce;

use super::config::ServiceConfig;
use super::results::{Results, SharedLookup};
use super::token_buckets::TokenBuckets;
use super::weights_query::WeightsQuery;
use hf_meta::{CallHooks, CallMeter, CommitSha, LargeCallLimit};

/// The expected number of requests of a lookup before its files are known.
pub(super) const FIRST_REQUESTS: u64 = 2;

/// The budgets and the memory that all lookups share.
pub(super) struct LookupLimits {
    /// Budgets of Hub requests for new lookups, per client.
    clients: TokenBuckets<IpAddr>,
    /// The budget of Hub requests for new lookups of all clients together. The rest of the Hub's quota is reserved
    /// for refreshes.
    all_clients: TokenBuckets<()>,
    /// Budgets of Hub requests for refreshes, per client.
    refreshes: TokenBuckets<IpAddr>,
    /// The maximum number of Hub requests per lookup.
    pub(super) max_requests: usize,
    /// The limit of lookups that use a lot of memory. Waits for it count towards the lookup's timeout, so that large
    /// lookups that wait for each other end and make room for others.
    pub(super) large_calls: LargeCallLimit,
}

impl LookupLimits {
    /// Creates the limits. A client may always read the largest allowed set of weights at once.
    pub(super) fn new(config: &ServiceConfig) -> Self {
        let max_requests = config.max_requests_per_lookup.max(1);
        let largest = u32::try_from(max_requests).unwrap_or(u32::MAX);
        let (per_client, all_clients) =
            (config.upstream_requests_per_minute, config.total_upstream_requests_per_minute);
        let of_client = || TokenBuckets::per_minute(per_client, per_client.max(largest));
        Self {
            clients: of_client(),
            all_clients: TokenBuckets::per_minute(all_clients, all_clients.max(largest)),
            refreshes: of_client(),
            max_requests,
            large_calls: LargeCallLimit::new(1),
        }
    }

    /// Returns whether a lookup may be started.
    pub(super) fn allow(&self, cause: LookupCause) -> bool {
        match cause {
            LookupCause::New(client) => {
                self.clients.has_room(client) && self.all_clients.has_room(())
            }
            LookupCause::Refresh(client) => self.refreshes.has_room(client),
            LookupCause::Webhook => true,
        }
    }

    /// Returns the message for a client whose lookup was not started or was ended.
    pub(super) fn busy_reason(&self, client: IpAddr) -> &'static str {
        if self.clients.has_room(client) {
            "all clients together read too many repositories; try again in a minute"
        } else {
            "this client reads too many repositories; try again in a minute"
        }
    }

    /// Charges requests to the budgets of their cause.
    pub(super) fn debit(&self, cause: LookupCause, requests: u64) {
        match cause {
            LookupCause::New(client) => {
                self.clients.debit(client, requests);
                self.all_clients.debit((), requests);
            }
            LookupCause::Refresh(client) => self.refreshes.debit(client, requests),
            LookupCause::Webhook => {}
        }
    }
}

/// The cause of a lookup, with the client that started it.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookupCause {
    /// A request without a result in memory.
    New(IpAddr),
    /// A request whose result in memory has expired. Refreshes have a separate budget, so that a proxy with many
    /// known badges can still request new ones.
    Refresh(IpAddr),
    /// A webhook event about a changed repository.
    Webhook,
}

/// The reason to end a lookup early.
#[derive(Clone, Debug)]
pub(super) enum EarlyExit {
    /// Another lookup has read or is reading the same commit.
    SameCommit(SharedLookup),
    /// The lookup would send this number of requests, which is more than the maximum.
    TooManyFiles { requests: u64 },
    /// The client that started the lookup has no budget left.
    NoBudget,
}

/// The commit that a lookup reads.
#[derive(Clone)]
pub(super) struct PinnedQuery {
    /// The query for the commit, which is the same for all names of the repository.
    pub(super) query: WeightsQuery,
    /// The canonical name of the repository.
    pub(super) canonical: String,
}

/// The hooks of one lookup.
pub(super) struct LookupHooks {
    limits: Arc<LookupLimits>,
    results: Arc<Results>,
    query: WeightsQuery,
    cause: LookupCause,
    pub(super) meter: CallMeter,
    exit: SetOnce<EarlyExit>,
    /// The commit of the lookup, once it is known.
    pinned: OnceLock<PinnedQuery>,
    /// The number of requests charged so far.
    charged: AtomicU64,
}

impl LookupHooks {
    /// Returns the hooks of a lookup. [`FIRST_REQUESTS`] must have been charged.
    pub(super) fn new(
        limits: Arc<LookupLimits>,
        results: Arc<Results>,
        query: WeightsQuery,
        cause: LookupCause,
        meter: CallMeter,
    ) -> Arc<Self> {
        Arc::new(Self {
            limits,
            results,
            query,
            cause,
            meter,
            exit: SetOnce::new(),
            pinned: OnceLock::new(),
            charged: AtomicU64::new(FIRST_REQUESTS),
        })
    }

    /// Completes if the lookup must end early.
    pub(super) async fn exit(&self) -> EarlyExit {
        self.exit.wait().await.clone()
    }

    /// Returns the commit of the lookup, once it is known.
    pub(super) fn pinned(&self) -> Option<&PinnedQuery> {
        self.pinned.get()
    }

    /// Charges requests up to a total of `requests`.
    fn charge_up_to(&self, requests: u64) {
        let before = self.charged.fetch_max(requests, Ordering::Relaxed);
        self.limits.debit(self.cause, requests.saturating_sub(before));
    }

    /// Ends the lookup. The returned future never completes.
    fn exit_early(&self, exit: EarlyExit) -> BoxFuture<'_, ()> {
        // The lookup may already have ended for a different reason.
        let _ = self.exit.set(exit);
        pending().boxed()
    }
}

impl CallHooks for LookupHooks {
    fn commit_resolved<'a>(
        &'a self,
        commit: &'a CommitSha,
        name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        let query = self.query.at_commit(commit, name.as_deref());
        let canonical = name.unwrap_or_else(|| self.query.repo().to_string());
        // The count that the Hub reports is a second call of the same lookup.
        let is_first = self.pinned.set(PinnedQuery { query: query.clone(), canonical }).is_ok();
        let shared = is_first.then(|| self.results.share_commit(&self.query, &query)).flatten();
        match shared {
            Some(lookup) => self.exit_early(EarlyExit::SameCommit(lookup)),
            None => ready(()).boxed(),
        }
    }

    /// A client without budget may send no more requests: it could have started many lookups at once.
    fn before_requests(&self, requests: usize) -> BoxFuture<'_, ()> {
        let requests = self.meter.endpoint_requests().saturating_add(requests as u64);
        if requests > self.limits.max_requests as u64 {
            return self.exit_early(EarlyExit::TooManyFiles { requests });
        }
        if !self.limits.allow(self.cause) {
            return self.exit_early(EarlyExit::NoBudget);
        }
        self.charge_up_to(requests);
        ready(()).boxed()
    }
}

/// Charges the requests beyond the expected number.
impl Drop for LookupHooks {
    fn drop(&mut self) {
        self.charge_up_to(self.meter.endpoint_requests());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::ServerMetrics;
    use crate::weights_query::QueryString;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    const NEW: LookupCause = LookupCause::New(CLIENT);

    fn limits() -> Arc<LookupLimits> {
        Arc::new(LookupLimits::new(&ServiceConfig {
            upstream_requests_per_minute: 6,
            total_upstream_requests_per_minute: 100,
            max_requests_per_lookup: 20,
            ..ServiceConfig::default()
        }))
    }

    fn hooks(limits: &Arc<LookupLimits>) -> Arc<LookupHooks> {
        limits.debit(NEW, FIRST_REQUESTS);
        let query = WeightsQuery::parse("org/model", &QueryString::parse(None)).unwrap();
        let results = Results::new(1 << 20, Duration::ZERO, Arc::new(ServerMetrics::new()));
        let meter = CallMeter::default();
        LookupHooks::new(Arc::clone(limits), Arc::new(results), query, NEW, meter)
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_are_charged_to_their_client() {
        let limits = limits();
        let [one, other, large] = [(); 3].map(|()| hooks(&limits));
        assert!(large.before_requests(21).now_or_never().is_none());
        assert!(matches!(large.exit.get(), Some(EarlyExit::TooManyFiles { requests: 21 })));
        assert!(one.before_requests(14).now_or_never().is_some());
        assert!(one.exit.get().is_none());
        assert!(limits.allow(NEW), "14 of 20 requests and two for each other lookup");
        (0..10).for_each(|_| one.meter.count_request(true));
        assert!(other.before_requests(2).now_or_never().is_some());
        (0..30).for_each(|_| other.meter.count_request(true));
        assert!(other.exit.get().is_none());
        drop(other);
        assert!(!limits.allow(NEW), "unexpected requests are charged at the end");
        assert!(limits.allow(LookupCause::Refresh(CLIENT)), "refreshes have their own budget");
        let late = hooks(&limits);
        assert!(late.before_requests(1).now_or_never().is_none());
        assert!(matches!(late.exit.get(), Some(EarlyExit::NoBudget)));
    }
}
