//! Decides about lookups in progress: known commits, request budgets and memory.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt, pending, ready};
use tokio::sync::{OnceCell, OwnedMutexGuard, oneshot};

use super::lookup::CommitResults;
use super::lookup_result::LookupResult;
use super::request_budgets::RequestBudgets;
use super::weights_query::WeightsQuery;
use hf_meta::{CallHooks, CallMeter, CommitSha, LargeCallLimit};

/// The expected number of requests of a lookup before its files are known.
pub(super) const FIRST_REQUESTS: u64 = 2;

/// The budgets and the memory that all lookups share.
pub(super) struct LookupLimits {
    /// Budgets of Hub requests for new lookups, per client.
    clients: RequestBudgets<IpAddr>,
    /// The budget of Hub requests for new lookups of all clients together. The rest of the Hub's quota is reserved
    /// for refreshes.
    all_clients: RequestBudgets<()>,
    /// Budgets of Hub requests for refreshes, per client.
    refreshes: RequestBudgets<IpAddr>,
    /// The maximum number of Hub requests per lookup.
    pub(super) max_requests: usize,
    /// The limit of lookups that use a lot of memory. Waits for it count towards the lookup's timeout, so that large
    /// lookups that wait for each other end and make room for others.
    pub(super) large: LargeCallLimit,
}

impl LookupLimits {
    /// Creates limits of requests: per minute and client, per minute for all clients, and per lookup. A client may
    /// always read the largest allowed set of weights at once.
    pub(super) fn new(per_client: u32, all_clients: u32, max_requests: usize) -> Self {
        let max_requests = max_requests.max(1);
        let largest = u32::try_from(max_requests).unwrap_or(u32::MAX);
        let burst = |per_minute: u32| per_minute.max(largest);
        let of_client = || RequestBudgets::per_minute(per_client, burst(per_client));
        Self {
            clients: of_client(),
            all_clients: RequestBudgets::per_minute(all_clients, burst(all_clients)),
            refreshes: of_client(),
            max_requests,
            large: LargeCallLimit::new(1),
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

    /// Charges requests to the budgets of their cause.
    pub(super) fn charge(&self, cause: LookupCause, requests: u64) {
        match cause {
            LookupCause::New(client) => {
                self.clients.charge(client, requests);
                self.all_clients.charge((), requests);
            }
            LookupCause::Refresh(client) => self.refreshes.charge(client, requests),
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
#[derive(Debug)]
pub(super) enum EarlyEnd {
    /// The result of this commit is in memory.
    Known(Arc<LookupResult>),
    /// The lookup would exceed the maximum number of requests.
    TooManyFiles { files: usize },
    /// The client that started the lookup has no budget left.
    NoBudget,
}

/// The gate of one lookup.
pub(super) struct LookupGate {
    limits: Arc<LookupLimits>,
    cause: LookupCause,
    pub(super) meter: CallMeter,
    results: Option<CommitResults>,
    end: Mutex<Option<oneshot::Sender<EarlyEnd>>>,
    /// The query for the commit of the lookup, once it is known.
    pinned: OnceCell<WeightsQuery>,
    /// The lease of the commit. Lookups of the same commit under other names wait for it.
    lease: OnceCell<OwnedMutexGuard<()>>,
    /// The number of requests charged so far.
    charged: AtomicU64,
}

impl LookupGate {
    /// Returns the gate of a lookup, and a future that completes if the lookup must end early. [`FIRST_REQUESTS`]
    /// must have been charged.
    pub(super) fn new(
        limits: Arc<LookupLimits>,
        cause: LookupCause,
        meter: CallMeter,
        results: Option<CommitResults>,
    ) -> (Arc<Self>, impl Future<Output = EarlyEnd>) {
        let (sender, receiver) = oneshot::channel();
        let gate = Self {
            limits,
            cause,
            meter,
            results,
            end: Mutex::new(Some(sender)),
            pinned: OnceCell::new(),
            lease: OnceCell::new(),
            charged: AtomicU64::new(FIRST_REQUESTS),
        };
        let end =
            receiver.then(|end| async { if let Ok(end) = end { end } else { pending().await } });
        (Arc::new(gate), end)
    }

    /// Returns the query for the commit of the lookup, once it is known.
    pub(super) fn pinned(&self) -> Option<&WeightsQuery> {
        self.pinned.get()
    }

    /// Charges requests up to a total of `requests`.
    fn charge_up_to(&self, requests: u64) {
        let before = self.charged.fetch_max(requests, Ordering::Relaxed);
        self.limits.charge(self.cause, requests.saturating_sub(before));
    }

    /// Ends the lookup.
    fn end(&self, end: EarlyEnd) -> BoxFuture<'_, ()> {
        let sender = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // The lookup may already have ended.
            let _ = sender.send(end);
        }
        pending().boxed()
    }
}

impl CallHooks for LookupGate {
    fn commit_resolved<'a>(
        &'a self,
        commit: &'a CommitSha,
        name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        let Some(results) = &self.results else { return ready(()).boxed() };
        async move {
            let pinned = async || results.pinned(commit, name.as_deref());
            let pinned = self.pinned.get_or_init(pinned).await;
            self.lease.get_or_init(|| results.lease(pinned)).await;
            if let Some(result) = results.find(pinned) {
                self.end(EarlyEnd::Known(result)).await;
            }
        }
        .boxed()
    }

    /// A client without budget gets no more shards: it could have started many lookups at once.
    fn before_requests(&self, files: usize) -> BoxFuture<'_, ()> {
        let requests = self.meter.endpoint_requests().saturating_add(files as u64);
        if requests > self.limits.max_requests as u64 {
            return self.end(EarlyEnd::TooManyFiles { files });
        }
        if !self.limits.allow(self.cause) {
            return self.end(EarlyEnd::NoBudget);
        }
        self.charge_up_to(requests);
        ready(()).boxed()
    }
}

/// Charges the requests beyond the expected number.
impl Drop for LookupGate {
    fn drop(&mut self) {
        self.charge_up_to(self.meter.endpoint_requests());
    }
}

impl fmt::Debug for LookupGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupGate").field("cause", &self.cause).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    const NEW: LookupCause = LookupCause::New(CLIENT);

    fn limits() -> Arc<LookupLimits> {
        Arc::new(LookupLimits::new(6, 100, 20))
    }

    fn gate(limits: &Arc<LookupLimits>) -> (Arc<LookupGate>, impl Future<Output = EarlyEnd>) {
        limits.charge(NEW, FIRST_REQUESTS);
        LookupGate::new(Arc::clone(limits), NEW, CallMeter::default(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_pays_for_the_requests_of_its_lookups() {
        let limits = limits();
        let [(one, one_end), (other, other_end), (large, large_end)] =
            [(); 3].map(|()| gate(&limits));
        assert!(large.before_requests(21).now_or_never().is_none());
        assert!(matches!(large_end.now_or_never(), Some(EarlyEnd::TooManyFiles { files: 21 })));
        assert!(one.before_requests(14).now_or_never().is_some());
        assert!(one_end.now_or_never().is_none());
        assert!(limits.allow(NEW), "14 of 20 requests and two for each other lookup");
        (0..10).for_each(|_| one.meter.count_request(true));
        assert!(other.before_requests(2).now_or_never().is_some());
        (0..30).for_each(|_| other.meter.count_request(true));
        drop(other);
        assert!(!limits.allow(NEW), "unexpected requests are charged at the end");
        assert!(other_end.now_or_never().is_none());
        assert!(limits.allow(LookupCause::Refresh(CLIENT)), "refreshes have their own budget");
        let (late, late_end) = gate(&limits);
        assert!(late.before_requests(1).now_or_never().is_none());
        assert!(matches!(late_end.now_or_never(), Some(EarlyEnd::NoBudget)));
    }
}
