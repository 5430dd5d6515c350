//! The interface of caches, the cache in memory, and the cache of a client with its settings.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::entry::{CacheKey, encode};
use crate::base::meter::CallMeter;
use crate::hub::CommitSha;

/// A store for cache entries, such as [`DiskCache`](crate::DiskCache) and [`MemoryCache`](crate::MemoryCache); see
/// [`ClientBuilder::header_cache`](crate::ClientBuilder::header_cache).
///
/// A cache may lose entries and may even return corrupt data, because every entry contains a checksum. It must not
/// make a call fail: implementations should log errors and report a miss.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use futures::future::{BoxFuture, FutureExt, ready};
/// use hf_meta::{Cache, CacheKey};
///
/// #[derive(Debug, Default)]
/// struct MapCache(Mutex<HashMap<CacheKey, Vec<u8>>>);
///
/// impl Cache for MapCache {
///     fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
///         ready(self.0.lock().ok().and_then(|entries| entries.get(key).cloned())).boxed()
///     }
///
///     fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
///         if let Ok(mut entries) = self.0.lock() {
///             entries.insert(*key, entry);
///         }
///         ready(()).boxed()
///     }
/// }
///
/// # fn main() -> Result<(), hf_meta::Error> {
/// let client = hf_meta::Client::builder().header_cache(MapCache::default()).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Cache: fmt::Debug + Send + Sync + 'static {
    /// Returns the entry that was last stored under `key`, or `None` if the cache does not have it.
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Stores an entry under `key`, replacing any earlier entry.
    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()>;
}

impl<C: Cache + ?Sized> Cache for Arc<C> {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        (**self).get(key)
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        (**self).put(key, entry)
    }
}

/// The expected number of entries. More entries are stored if they fit. With more than 32, `quick_cache` splits its
/// capacity into shards, and large entries do not fit into one.
const EXPECTED_ENTRIES: usize = 32;

/// An in-memory header cache, for services.
///
/// When it is full, entries that were not used recently are evicted.
///
/// ```
/// use hf_meta::{Client, MemoryCache};
///
/// let client = Client::builder().header_cache(MemoryCache::new(64 << 20)).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryCache(QuickCache<CacheKey, Bytes, EntrySize>);

/// The size of an entry in bytes.
#[derive(Clone, Debug)]
struct EntrySize;

impl Weighter<CacheKey, Bytes> for EntrySize {
    fn weight(&self, _: &CacheKey, entry: &Bytes) -> u64 {
        entry.len() as u64
    }
}

impl MemoryCache {
    /// Creates an empty cache for entries of up to `max_bytes` in total. A single entry that would take almost all
    /// of it is not stored.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self(QuickCache::with_weighter(EXPECTED_ENTRIES, max_bytes as u64, EntrySize))
    }
}

impl Cache for MemoryCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        ready(self.0.get(key).map(Vec::from)).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        self.0.insert(*key, entry.into());
        ready(()).boxed()
    }
}

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
        within_limit(meter, self.cache.get(key)).await?
    }

    /// Stores a value. A cache that does not respond delays the call, but its result is complete.
    pub(crate) async fn put<T: Serialize>(&self, meter: &CallMeter, key: &CacheKey, value: &T) {
        if let Some(entry) = encode(key, value) {
            within_limit(meter, self.cache.put(key, entry)).await;
        }
    }
}

/// Runs an operation of a cache for at most [`CACHE_TIMEOUT`], and at most a quarter of the time left for the call, so that
/// neither a hanging cache nor the next operation exceeds the timeout of the call.
async fn within_limit<T>(meter: &CallMeter, operation: impl Future<Output = T>) -> Option<T> {
    let limit = meter.time_left().map_or(CACHE_TIMEOUT, |left| CACHE_TIMEOUT.min(left / 4));
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
    use crate::cache::CacheKeys;

    #[test]
    fn a_cached_branch_is_fresh_for_its_time_to_live() {
        let seen = |seconds| CachedRef { commit: "1".repeat(40), seconds };
        let minute = Duration::from_secs(60);
        assert!(seen(unix_seconds()).is_fresh(minute));
        assert!(!seen(unix_seconds()).is_fresh(Duration::ZERO));
        assert!(!seen(unix_seconds() - 61).is_fresh(minute));
        assert!(!seen(unix_seconds() + 1_000).is_fresh(minute), "of a wrong clock");
    }
    fn key(n: usize) -> CacheKey {
        CacheKeys::for_test(&n.to_string()).revision(&crate::hub::Revision::default())
    }

    #[tokio::test]
    async fn entries_that_are_used_outlive_others() {
        let (cache, mut stored) = (MemoryCache::new(100), 0);
        cache.put(&key(0), vec![0; 10]).await;
        for n in 1..100 {
            cache.put(&key(n), vec![0; 10]).await;
            assert!(cache.get(&key(0)).await.is_some(), "after {n} entries");
            assert!(cache.0.weight() <= 100);
        }
        for n in 0..100 {
            stored += usize::from(cache.get(&key(n)).await.is_some());
        }
        assert_eq!(stored, 10);
    }

    #[tokio::test]
    async fn entries_are_replaced_and_oversized_ones_are_not_stored() {
        let cache = MemoryCache::new(10);
        for length in [4, 6, 9] {
            cache.put(&key(0), vec![1; length]).await;
            assert_eq!(
                (cache.get(&key(0)).await.map(|entry| entry.len()), cache.0.weight()),
                (Some(length), length as u64)
            );
        }
        cache.put(&key(0), vec![1; 11]).await;
        assert_eq!((cache.get(&key(0)).await, cache.0.weight()), (None, 0));
    }
}
