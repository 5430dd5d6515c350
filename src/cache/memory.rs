//! An in-memory header cache.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, ready};

use super::{Cache, CacheKey};

/// An in-memory header cache, for services.
///
/// When it is full, the least recently used entries are evicted.
///
/// ```
/// use hf_meta::{Client, MemoryCache};
///
/// let client = Client::builder().header_cache(MemoryCache::new(64 << 20)).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
pub struct MemoryCache {
    max_bytes: usize,
    entries: Mutex<Entries>,
}

/// The entries and the order in which they were last used.
#[derive(Default)]
struct Entries {
    by_key: HashMap<CacheKey, (u64, Vec<u8>)>,
    by_use: BTreeMap<u64, CacheKey>,
    bytes: usize,
    uses: u64,
}

impl MemoryCache {
    /// Creates an empty cache for entries of up to `max_bytes` in total. Larger entries are not stored.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, entries: Mutex::default() }
    }

    /// Returns the total size of all entries, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries().bytes
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn get(&mut self, key: &CacheKey) -> Option<Vec<u8>> {
        let (used, entry) = self.by_key.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, *key);
        Some(entry.clone())
    }

    fn insert(&mut self, key: CacheKey, entry: Vec<u8>, max_bytes: usize) {
        self.remove(&key);
        if entry.len() > max_bytes {
            return;
        }
        self.uses += 1;
        self.bytes += entry.len();
        self.by_use.insert(self.uses, key);
        self.by_key.insert(key, (self.uses, entry));
        while self.bytes > max_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some((used, entry)) = self.by_key.remove(key) {
            self.by_use.remove(&used);
            self.bytes -= entry.len();
        }
    }
}

impl Cache for MemoryCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        ready(self.entries().get(key)).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        self.entries().insert(*key, entry, self.max_bytes);
        ready(()).boxed()
    }
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max_bytes, bytes) = (self.max_bytes, self.bytes());
        f.debug_struct("MemoryCache")
            .field("max_bytes", &max_bytes)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheKeys;

    fn key(n: usize) -> CacheKey {
        CacheKeys::for_test(&n.to_string()).branch(&crate::hub::Revision::default())
    }

    #[tokio::test]
    async fn the_entries_that_were_used_last_are_kept() {
        let cache = MemoryCache::new(10);
        for n in 0..3 {
            cache.put(&key(n), vec![0; 3]).await;
        }
        assert!(cache.get(&key(0)).await.is_some());
        cache.put(&key(3), vec![0; 4]).await;
        let mut kept = Vec::new();
        for n in 0..4 {
            kept.push(cache.get(&key(n)).await.is_some());
        }
        assert_eq!((kept, cache.bytes()), (vec![true, false, true, true], 10));
    }

    #[tokio::test]
    async fn an_entry_is_replaced_and_one_that_is_too_large_is_not_stored() {
        let cache = MemoryCache::new(10);
        for length in [4, 6, 10] {
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
