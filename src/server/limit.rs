//! How much one client may ask for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

/// So many checks after each other, clients that have not asked for long are forgotten.
const SWEEP: usize = 1 << 14;

/// So many clients are told apart at most; while there are more, nobody new is limited.
const MOST_CLIENTS: usize = 1 << 17;

/// A rate for each client; without one there is no limit.
pub(super) struct Limit(Option<Limiter>);

struct Limiter {
    clients: RateLimiter<IpAddr, HashMapStateStore<IpAddr>, DefaultClock>,
    checks: AtomicUsize,
}

impl Limit {
    /// So many a minute, and so many at once. No limit where either is 0.
    pub(super) fn new(per_minute: u32, at_once: u32) -> Self {
        let rate = NonZeroU32::new(per_minute).zip(NonZeroU32::new(at_once));
        Self(rate.map(|(per_minute, at_once)| Limiter {
            clients: RateLimiter::new(
                Quota::per_minute(per_minute).allow_burst(at_once),
                HashMap::default().into(),
                DefaultClock::default(),
            ),
            checks: AtomicUsize::new(0),
        }))
    }

    /// Whether a client may do this once more.
    pub(super) fn allows(&self, client: IpAddr) -> bool {
        let Some(limiter) = &self.0 else { return true };
        if limiter.checks.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            limiter.clients.retain_recent();
            limiter.clients.shrink_to_fit();
        }
        limiter.clients.len() >= MOST_CLIENTS || limiter.clients.check_key(&client).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own() {
        let limit = Limit::new(1, 3);
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let allowed = |client| (0..10).filter(|_| limit.allows(client)).count();
        assert_eq!((allowed(one), allowed(other), allowed(one)), (3, 3, 0));
        assert!((0..10).all(|_| Limit::new(0, 3).allows(one)));
    }
}
