//! What earlier calls have read, kept for later ones.
//!
//! What is kept is not figures but the bytes they come from: the headers and the index of one commit,
//! which never change. A later call parses, checks and counts them as if they had just come from the
//! Hub, so that neither a broken entry nor an older version of this library can give a wrong figure.
//! What has to be asked is only which commit a branch is at, in one small request.

#[cfg(feature = "server")]
mod breaker;
mod disk;
mod entry;
mod headers;
mod key;
mod recorder;
#[cfg(feature = "server")]
mod shared;

use std::fmt;

use futures::future::{BoxFuture, FutureExt};

pub use disk::{DiskCache, DiskUsage};
pub(crate) use entry::{open, seal};
pub(crate) use headers::CachedHeaders;
pub use key::CacheKey;
pub(crate) use key::{CacheIdentity, Keys};
pub(crate) use recorder::CacheRecorder;
#[cfg(feature = "server")]
pub use shared::{RedisCache, RedisCacheError};

/// A place where entries are kept, such as [`DiskCache`]; see
/// [`ClientBuilder::header_cache`](crate::ClientBuilder::header_cache).
///
/// It may lose entries, and even return other bytes than it was given: they are held against a
/// checksum. It must not fail a call: what goes wrong is for it to log, and to be a miss.
pub trait Cache: fmt::Debug + Send + Sync + 'static {
    /// The bytes that were last put under a key, if they are still there.
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Keeps bytes under a key, in place of those that it had.
    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()>;

    /// Waits for whoever else is about to put something under a key, wherever that reader is. A cache
    /// that is not shared between services waits for no one, as is the default.
    fn turn<'a>(&'a self, _key: &'a CacheKey) -> BoxFuture<'a, FillLease> {
        futures::future::ready(FillLease::at_once()).boxed()
    }
}

/// The right to make an entry, until it is dropped.
#[must_use]
pub struct FillLease {
    has_waited: bool,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl FillLease {
    /// A turn that no one was waited for, and that no one waits for.
    pub fn at_once() -> Self {
        Self { has_waited: false, on_end: None }
    }

    /// A turn that calls a function at its end. `has_waited` says whether someone else had it before,
    /// so that the entry may be there by now.
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
