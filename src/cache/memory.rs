//! An in-memory header cache.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;

use super::entry::CacheKey;
use super::store::Cache;

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

    /// Returns the total size of all entries, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::try_from(self.0.weight()).unwrap_or(usize::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheKeys;

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
            assert!(cache.bytes() <= 100);
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
                (cache.get(&key(0)).await.map(|entry| entry.len()), cache.bytes()),
                (Some(length), length)
            );
        }
        cache.put(&key(0), vec![1; 11]).await;
        assert_eq!((cache.get(&key(0)).await, cache.bytes()), (None, 0));
    }
}
