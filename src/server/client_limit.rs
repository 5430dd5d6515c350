//! Rate limits per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

/// The number of checks between two removals of idle clients. A removal visits every client, so it is
/// amortized over many checks.
const CHECKS_PER_CLEANUP: usize = 1 << 14;

/// The maximum number of clients in the table. While it is full, nobody is limited.
const MAX_CLIENTS: usize = 1 << 17;

/// A rate limit that applies to each client by itself.
pub(super) struct ClientLimit(Option<Limiter>);

struct Limiter {
    clients: RateLimiter<IpAddr, HashMapStateStore<IpAddr>, DefaultClock>,
    checks: AtomicUsize,
}

impl ClientLimit {
    /// Creates a limit per minute, with bursts of the same size. 0 means no limit.
    pub(super) fn per_minute(count: u32) -> Self {
        Self(NonZeroU32::new(count).map(|count| Limiter {
            clients: RateLimiter::new(
                Quota::per_minute(count),
                HashMap::default().into(),
                DefaultClock::default(),
            ),
            checks: AtomicUsize::new(0),
        }))
    }

    /// Counts an event of a client, and returns `false` if it exceeds the limit.
    pub(super) fn allows(&self, client: IpAddr) -> bool {
        let Some(limiter) = &self.0 else { return true };
        let checks = limiter.checks.fetch_add(1, Ordering::Relaxed);
        if checks % CHECKS_PER_CLEANUP == CHECKS_PER_CLEANUP - 1 {
            limiter.clients.retain_recent();
            limiter.clients.shrink_to_fit();
        }
        limiter.clients.len() >= MAX_CLIENTS || limiter.clients.check_key(&client).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_limit() {
        let limit = ClientLimit::per_minute(3);
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let allowed = |client| (0..10).filter(|_| limit.allows(client)).count();
        assert_eq!((allowed(one), allowed(other), allowed(one)), (3, 3, 0));
        let unlimited = ClientLimit::per_minute(0);
        assert!((0..10).all(|_| unlimited.allows(one)));
    }
}
