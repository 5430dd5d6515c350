//! Token buckets, which limit requests per minute.

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quick_cache::unsync::Cache;
use tokio::time::Instant;

/// The maximum number of buckets. Beyond it, buckets that have not been used for long are evicted, as if they were
/// full.
const MAX_BUCKETS: usize = 1 << 16;

const MINUTE: Duration = Duration::from_secs(60);

/// Token buckets, one per key. A bucket refills evenly over time and holds at most one burst.
///
/// Rate limiters such as the crate `governor` reject what exceeds a bucket. The number of requests of a lookup is known
/// only after it has started, so these buckets can be overdrawn.
pub(super) struct TokenBuckets<K>(Option<Buckets<K>>);

struct Buckets<K> {
    /// The time it takes to refill one request.
    interval: Duration,
    /// The time it takes to refill an empty bucket.
    burst: Duration,
    /// The time at which each bucket will be full.
    full_at: Mutex<Cache<K, Instant>>,
}

impl<K: Copy + Eq + Hash> TokenBuckets<K> {
    /// Creates buckets of `count` requests per minute, with bursts of `burst` requests. A `count` of 0 means no limit.
    pub(super) fn per_minute(count: u32, burst: u32) -> Self {
        Self(MINUTE.checked_div(count).map(|interval| Buckets {
            interval,
            burst: interval.saturating_mul(burst.max(1)),
            full_at: Mutex::new(Cache::new(MAX_BUCKETS)),
        }))
    }

    /// Returns whether at least one request is left.
    pub(super) fn has_room(&self, key: K) -> bool {
        let Some(buckets) = &self.0 else { return true };
        let full_at = buckets.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = full_at.get(&key).map(|full_at| full_at.duration_since(Instant::now()));
        missing.unwrap_or_default() + buckets.interval <= buckets.burst
    }

    /// Takes one request. Returns `false` if none is left.
    pub(super) fn try_take(&self, key: K) -> bool {
        let has_room = self.has_room(key);
        if has_room {
            self.debit(key, 1);
        }
        has_room
    }

    /// Takes requests. A bucket can be overdrawn once, by one burst.
    pub(super) fn debit(&self, key: K, requests: u64) {
        let Some(Buckets { interval, burst, full_at }) = &self.0 else { return };
        let cost = interval.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        let now = Instant::now();
        let mut full_at = full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = full_at.get(&key).map_or(now, |full_at| now.max(*full_at));
        full_at.insert(key, (before + cost.min(*burst)).min(now + 2 * *burst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn buckets_are_separate_per_key() {
        let buckets = TokenBuckets::per_minute(60, 3);
        let taken = |key: u8| (0..10).filter(|_| buckets.try_take(key)).count();
        assert_eq!((taken(1), taken(2), taken(1)), (3, 3, 0));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((taken(1), taken(2)), (2, 2));
        let unlimited = TokenBuckets::per_minute(0, 3);
        assert!((0..10).all(|_| unlimited.try_take(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_is_overdrawn_once_and_refilled_over_time() {
        let buckets = TokenBuckets::per_minute(60, 10);
        buckets.debit((), 9);
        assert!(buckets.has_room(()));
        buckets.debit((), 1_000);
        buckets.debit((), 1_000);
        assert!(!buckets.has_room(()));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!buckets.has_room(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(buckets.has_room(()));
    }
}
