//! The interface of caches.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

use super::entry::CacheKey;

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

    /// Waits until no other process is filling the entry, and acquires the lease to fill it. A client coalesces its own
    /// calls, so only a cache that several processes share needs it. The default implementation does not wait.
    fn lease<'a>(&'a self, _key: &'a CacheKey) -> BoxFuture<'a, FillLease> {
        futures::future::ready(FillLease::immediate()).boxed()
    }
}

impl<C: Cache + ?Sized> Cache for Arc<C> {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        (**self).get(key)
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        (**self).put(key, entry)
    }

    fn lease<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, FillLease> {
        (**self).lease(key)
    }
}

/// A lease that permits a call to fill a cache entry. It is released on drop.
#[must_use]
pub struct FillLease {
    has_waited: bool,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl FillLease {
    /// Returns a lease that was granted without waiting and runs nothing when released.
    pub fn immediate() -> Self {
        Self { has_waited: false, on_end: None }
    }

    /// Returns a lease that calls `on_end` when released. Set `has_waited` if another call held the lease before, so
    /// that the entry may have been stored in the meantime.
    pub fn new(has_waited: bool, on_end: impl FnOnce() + Send + 'static) -> Self {
        Self { has_waited, on_end: Some(Box::new(on_end)) }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for FillLease {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

impl fmt::Debug for FillLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FillLease").field("has_waited", &self.has_waited).finish_non_exhaustive()
    }
}
