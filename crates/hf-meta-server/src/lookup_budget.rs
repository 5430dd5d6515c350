//! Decides about lookups in progress: request budgets and memory.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::ServiceConfig;
use super::token_buckets::TokenBuckets;
use hf_meta::{Budget, CallMeter, Demand, LargeCallLimit};

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
    /// A permit for each lookup that waits for that limit. The waits occupy at most half of the lookups, so that large
    /// repositories never stop the others.
    large_waits: Arc<Semaphore>,
}

impl LookupLimits {
    /// Creates the limits. A client may always read the largest allowed set of weights at once.
    pub(super) fn new(config: &ServiceConfig) -> Self {
        let max_requests = config.max_requests_per_lookup.max(1);
        let largest = u32::try_from(max_requests).unwrap_or(u32::MAX);
        let (per_client, all_clients) =
            (config.upstream_requests_per_minute, config.total_upstream_requests_per_minute);
        // Larger than the bucket of a client, or the burst of one client would reject all others, unless the operator
        // allows all clients less than one.
        let shared = if all_clients > per_client {
            per_client.max(largest).saturating_mul(2)
        } else {
            largest
        };
        let of_client = || TokenBuckets::per_minute(per_client, per_client.max(largest));
        Self {
            clients: of_client(),
            all_clients: TokenBuckets::per_minute(all_clients, all_clients.max(shared)),
            refreshes: of_client(),
            max_requests,
            large_calls: LargeCallLimit::new(1),
            large_waits: Arc::new(Semaphore::new(config.max_concurrent_lookups / 2)),
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
#[derive(Clone, Copy, Debug, Error)]
pub(super) enum EarlyExit {
    /// The lookup would send this number of requests, which is more than the maximum.
    #[error("the lookup would send {requests} requests")]
    TooManyFiles { requests: u64 },
    /// The client that started the lookup has no budget left.
    #[error("the client has no budget left")]
    NoBudget,
}

/// The budget of one lookup.
pub(super) struct LookupBudget {
    limits: Arc<LookupLimits>,
    cause: LookupCause,
    pub(super) meter: CallMeter,
    /// The number of requests charged so far.
    charged: AtomicU64,
    /// The permit of a large lookup that had to wait.
    large_wait: OnceLock<OwnedSemaphorePermit>,
}

impl fmt::Debug for LookupBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupBudget").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Budget for LookupBudget {
    fn admit(&self, demand: Demand) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match demand {
            Demand::Requests(requests) => self.charge(requests)?,
            Demand::LargeCall => self.wait()?,
            _ => {}
        }
        Ok(())
    }
}

impl LookupBudget {
    /// Returns the budget of a lookup. [`FIRST_REQUESTS`] must have been charged.
    pub(super) fn new(limits: Arc<LookupLimits>, cause: LookupCause, meter: CallMeter) -> Self {
        let charged = AtomicU64::new(FIRST_REQUESTS);
        Self { limits, cause, meter, charged, large_wait: OnceLock::new() }
    }

    /// Charges the requests beyond the expected number at the end of the lookup. Returns the number of all requests.
    pub(super) fn end(&self) -> u64 {
        let requests = self.meter.stats().endpoint_requests;
        self.charge_up_to(requests);
        requests
    }

    /// Charges requests up to a total of `requests`.
    fn charge_up_to(&self, requests: u64) {
        let before = self.charged.fetch_max(requests, Ordering::Relaxed);
        self.limits.debit(self.cause, requests.saturating_sub(before));
    }

    /// Takes the permit of a large lookup that has to wait.
    fn wait(&self) -> Result<(), EarlyExit> {
        let permit = Arc::clone(&self.limits.large_waits).try_acquire_owned();
        // A call asks once.
        let _ = self.large_wait.set(permit.map_err(|_| EarlyExit::NoBudget)?);
        Ok(())
    }

    /// Charges further requests. A client without budget may send no more: it could have started many lookups at once.
    fn charge(&self, requests: usize) -> Result<(), EarlyExit> {
        let requests = self.meter.stats().endpoint_requests.saturating_add(requests as u64);
        if requests > self.limits.max_requests as u64 {
            Err(EarlyExit::TooManyFiles { requests })
        } else if !self.limits.allow(self.cause) {
            Err(EarlyExit::NoBudget)
        } else {
            self.charge_up_to(requests);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn budget(limits: &Arc<LookupLimits>) -> LookupBudget {
        limits.debit(NEW, FIRST_REQUESTS);
        LookupBudget::new(Arc::clone(limits), NEW, CallMeter::default())
    }

    /// Returns the reason why a budget does not admit a demand.
    fn exit(budget: &LookupBudget, demand: Demand) -> Option<EarlyExit> {
        budget.admit(demand).err().map(|reason| *reason.downcast().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_are_charged_to_their_client() {
        let limits = limits();
        let [one, other, large] = [(); 3].map(|()| budget(&limits));
        let requests = Demand::Requests;
        let too_many = exit(&large, requests(21));
        assert!(matches!(too_many, Some(EarlyExit::TooManyFiles { requests: 21 })));
        assert!(one.admit(requests(14)).is_ok());
        assert!(limits.allow(NEW), "14 of 20 requests and two for each other lookup");
        assert!(other.admit(requests(2)).is_ok());
        other.charge_up_to(30);
        assert!(!limits.allow(NEW), "unexpected requests are charged at the end");
        assert!(limits.allow(LookupCause::Refresh(CLIENT)), "refreshes have their own budget");
        assert!(matches!(exit(&budget(&limits), requests(1)), Some(EarlyExit::NoBudget)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_burst_of_one_client_leaves_room_for_others() {
        let limits = LookupLimits::new(&ServiceConfig::default());
        let started = (0..700).filter(|_| {
            let is_allowed = limits.allow(NEW);
            if is_allowed {
                limits.debit(NEW, FIRST_REQUESTS);
            }
            is_allowed
        });
        assert_eq!(started.count(), 250);
        let other = LookupCause::New(IpAddr::from([10, 0, 0, 1]));
        assert!(!limits.allow(NEW) && limits.allow(other));
    }

    #[tokio::test(start_paused = true)]
    async fn large_lookups_that_wait_leave_room_for_others() {
        let limits = limits();
        let most = ServiceConfig::default().max_concurrent_lookups / 2;
        let mut large: Vec<_> = (0..=most).map(|_| budget(&limits)).collect();
        let last = large.pop().unwrap();
        assert!(large.iter().all(|large| large.admit(Demand::LargeCall).is_ok()));
        assert!(matches!(exit(&last, Demand::LargeCall), Some(EarlyExit::NoBudget)));
        large.pop();
        assert!(budget(&limits).admit(Demand::LargeCall).is_ok());
    }
}
