//! The header cache of a client, and the commits of its cached branches.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::entry::{CacheKey, encode};
use super::store::Cache;
use crate::base::meter::CallMeter;
use crate::hub::CommitSha;

/// The maximum time that a call waits for an entry, or until one is stored.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache of header bytes with its settings.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCache {
    pub(crate) cache: Arc<dyn Cache>,
    /// Time to live of a cached branch.
    pub(crate) branch_ttl: Duration,
    /// The maximum age of a cached branch that is used while the server is down.
    pub(crate) stale_if_error: Duration,
}

/// The commit that a revision pointed to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedRef {
    pub(crate) commit: String,
    /// Unix time of the request, in seconds.
    seconds: u64,
}

/// The age of a cached branch that was used without asking its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRefAge {
    pub(crate) seconds: u64,
    /// True if it had expired, and was used because the server was unavailable.
    pub(crate) is_stale: bool,
}

impl HeaderCache {
    /// Returns an entry. A cache that does not respond is a miss.
    pub(crate) async fn get(&self, meter: &CallMeter, key: &CacheKey) -> Option<Vec<u8>> {
        within_limit(meter, CACHE_TIMEOUT, self.cache.get(key)).await?
    }

    /// Stores a value. A cache that does not respond delays the call, but its result is complete.
    pub(crate) async fn put<T: Serialize>(&self, meter: &CallMeter, key: &CacheKey, value: &T) {
        if let Some(entry) = encode(key, value) {
            within_limit(meter, CACHE_TIMEOUT, self.cache.put(key, entry)).await;
        }
    }
}

/// Runs an operation of a cache for at most `limit`, and at most a quarter of the time left for the call, so that
/// neither a hanging cache nor the next operation exceeds the timeout of the call.
pub(crate) async fn within_limit<T>(
    meter: &CallMeter,
    limit: Duration,
    operation: impl Future<Output = T>,
) -> Option<T> {
    let limit = meter.time_left().map_or(limit, |left| limit.min(left / 4));
    let done = timeout(limit, operation).await.ok();
    if done.is_none() {
        tracing::warn!(?limit, "the cache does not respond");
    }
    done
}

impl CachedRef {
    /// Creates the entry for a commit that was requested just now.
    pub(crate) fn new(commit: &CommitSha) -> Self {
        Self { commit: commit.to_string(), seconds: unix_seconds() }
    }

    pub(crate) fn age(&self, is_stale: bool) -> CachedRefAge {
        CachedRefAge { seconds: unix_seconds().saturating_sub(self.seconds), is_stale }
    }

    /// Returns whether the branch was requested less than `ttl` ago. A time in the future comes from a wrong clock
    /// and counts as expired.
    pub(crate) fn is_fresh(&self, ttl: Duration) -> bool {
        let age = unix_seconds().checked_sub(self.seconds);
        age.is_some_and(|age| Duration::from_secs(age) < ttl)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_branch_is_fresh_for_its_time_to_live() {
        let seen = |seconds| CachedRef { commit: "1".repeat(40), seconds };
        let minute = Duration::from_secs(60);
        assert!(seen(unix_seconds()).is_fresh(minute));
        assert!(!seen(unix_seconds()).is_fresh(Duration::ZERO));
        assert!(!seen(unix_seconds() - 61).is_fresh(minute));
        assert!(!seen(unix_seconds() + 1_000).is_fresh(minute), "of a wrong clock");
    }
}
