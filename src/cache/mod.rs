//! A cache of header bytes.
//!
//! The cache stores header bytes, not results: the headers and the index of one commit, which never change. A
//! later call parses, checks and counts them as if they had just arrived from the Hub, so neither a
//! broken entry nor an older version of this library can produce a wrong count.
//! A cached commit costs no request; a cached branch costs one, for the commit that it points to.

#[cfg(feature = "server")]
mod breaker;
mod deflated;
mod disk;
mod entry;
mod headers;
mod key;
mod memory;
#[cfg(feature = "server")]
mod shared;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

pub(crate) use deflated::{Deflated, Deflater};
pub use disk::{DiskCache, DiskUsage};
pub(crate) use entry::{decode, encode};
pub(crate) use headers::{CachedFile, CachedHeaders, RecordedHeaders};
pub use key::CacheKey;
pub(crate) use key::{CacheIdentity, CacheKeys};
pub use memory::MemoryCache;
#[cfg(feature = "server")]
pub use shared::{RedisCache, RedisCacheError};

/// A store of cache entries, such as [`DiskCache`] and [`MemoryCache`]; see
/// [`ClientBuilder::header_cache`](crate::ClientBuilder::header_cache).
///
/// A cache may lose entries, and may even return other bytes than it was given: every entry has a checksum.
/// A cache must not fail a call: it logs its errors and returns a miss.
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
    /// Returns the entry that was last stored under a key, if the cache still has it.
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Stores an entry under a key, and replaces an earlier one.
    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()>;

    /// Waits until no other process fills the entry of a key. A cache that is not shared between services
    /// does not wait, and that is the default.
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

/// The lease of a call that fills an entry. It ends when it is dropped.
#[must_use]
pub struct FillLease {
    has_waited: bool,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl FillLease {
    /// Returns a lease that did not wait, and that nobody waits for.
    pub fn immediate() -> Self {
        Self { has_waited: false, on_end: None }
    }

    /// Returns a lease that calls a function at its end. `has_waited` says whether another call had the
    /// lease before, so that the entry may have been stored in the meantime.
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
