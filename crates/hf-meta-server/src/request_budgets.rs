//! Request budgets per minute.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The number of charges between removals of full budgets. A removal visits every key, so its cost is amortized over
/// many charges.
const CHARGES_PER_CLEANUP: usize = 1 << 14;

/// The maximum number of keys. While the table is full, new keys are not limited.
const MAX_KEYS: usize = 1 << 17;

const MINUTE: Duration = Duration::from_secs(60);

/// Request budgets, one per key. A budget refills evenly over time and holds at most one burst.
pub(super) struct RequestBudgets<K>(Option<Budgets<K>>);

struct Budgets<K> {
    /// The time it takes to refill one request.
    interval: Duration,
    /// The time it takes to refill an empty budget.
    burst: Duration,
    used: Mutex<UsedBudgets<K>>,
}

struct UsedBudgets<K> {
    /// The time at which each budget will be full.
    full_at: HashMap<K, Instant>,
    charges: usize,
}

impl<K: Copy + Eq + Hash> RequestBudgets<K> {
    /// Creates budgets of `count` requests per minute, with bursts of `burst` requests. A `count` of 0 means no
    /// limit.
    pub(super) fn per_minute(count: u32, burst: u32) -> Self {
        Self(MINUTE.checked_div(count).map(|interval| Budgets {
            interval,
            burst: interval.saturating_mul(burst.max(1)),
            used: Mutex::new(UsedBudgets { full_at: HashMap::new(), charges: 0 }),
        }))
    }

    /// Returns whether at least one request is left.
    pub(super) fn has_room(&self, key: K) -> bool {
        let Some(budgets) = &self.0 else { return true };
        let full_at = budgets.lock().full_at.get(&key).copied();
        full_at.is_none_or(|full_at| budgets.has_room(full_at))
    }

    /// Charges one request. Returns `false` if none is left.
    pub(super) fn spend(&self, key: K) -> bool {
        let has_room = self.has_room(key);
        if has_room {
            self.charge(key, 1);
        }
        has_room
    }

    /// Charges requests. A budget can be overdrawn once, by one burst, because the number of requests of a lookup is
    /// known only after it has started.
    pub(super) fn charge(&self, key: K, requests: u64) {
        let Some(budgets) = &self.0 else { return };
        let cost = budgets.interval.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        let (now, mut used) = (Instant::now(), budgets.lock());
        used.charges += 1;
        if used.charges % CHARGES_PER_CLEANUP == 0 {
            used.full_at.retain(|_, full_at| *full_at > now);
            used.full_at.shrink_to_fit();
        }
        if used.full_at.len() < MAX_KEYS || used.full_at.contains_key(&key) {
            let full_at = used.full_at.entry(key).or_insert(now);
            *full_at = ((*full_at).max(now) + cost.min(budgets.burst)).min(now + 2 * budgets.burst);
        }
    }
}

impl<K> Budgets<K> {
    fn has_room(&self, full_at: Instant) -> bool {
        let missing = full_at.saturating_duration_since(Instant::now());
        missing + self.interval <= self.burst
    }

    fn lock(&self) -> MutexGuard<'_, UsedBudgets<K>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_key_has_its_own_budget() {
        let budgets = RequestBudgets::per_minute(60, 3);
        let spent = |key: u8| (0..10).filter(|_| budgets.spend(key)).count();
        assert_eq!((spent(1), spent(2), spent(1)), (3, 3, 0));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((spent(1), spent(2)), (2, 2));
        let unlimited = RequestBudgets::per_minute(0, 3);
        assert!((0..10).all(|_| unlimited.spend(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_overdrawn_once_and_refilled_over_time() {
        let budgets = RequestBudgets::per_minute(60, 10);
        budgets.charge((), 9);
        assert!(budgets.has_room(()));
        budgets.charge((), 1_000);
        budgets.charge((), 1_000);
        assert!(!budgets.has_room(()));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!budgets.has_room(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(budgets.has_room(()));
    }
}
