//! A cache of header bytes.
//!
//! The cache stores header bytes, not results: the headers and the index of one commit, which never change. A later
//! call parses, checks and counts them as if they had just arrived from the Hub, so neither a corrupt entry nor an
//! older version of this library can produce a wrong count. A cached commit costs no requests; a cached branch costs
//! one, for its current commit.

mod disk;
mod header_bytes;
mod recorder;
mod store;

pub use disk::{DiskCache, DiskUsage};
pub(crate) use header_bytes::CachedHeaders;
pub use header_bytes::{HeaderBytes, HeaderFile};
pub(crate) use recorder::{Recorder, Recording};
pub use store::{Cache, CacheKey, MemoryCache};
pub(crate) use store::{CacheKeys, CachedRef, CachedRefAge, HeaderCache, decode};

/// The use of the header cache by a call; see [`Model::cache_mode`](crate::Model::cache_mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheMode {
    /// Uses cached headers, and the commit of a cached branch while it is
    /// [fresh](crate::ClientBuilder::branch_ttl).
    #[default]
    Default,
    /// Requests the current commit of a branch and uses its cached headers. Use it after a notification that the
    /// repository has changed.
    Revalidate,
    /// Neither uses nor changes the cache.
    Bypass,
}
