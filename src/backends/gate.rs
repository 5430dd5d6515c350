//! The decisions of a service about a call in progress.

use std::fmt::Debug;
#[cfg(any(feature = "census", feature = "server"))]
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
#[cfg(any(feature = "census", feature = "server"))]
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::hub::CommitSha;

/// The decisions of a service about one call. Each future completes when the call may continue. A service that
/// does not let a call continue drops the call.
pub(crate) trait CallGate: Debug + Send + Sync {
    /// Decides once the commit of the call is known, before any shard is read. `name` is the current name of the
    /// repository, if it is another one than the requested.
    fn pass_commit<'a>(&'a self, commit: &'a CommitSha, name: Option<String>) -> BoxFuture<'a, ()>;

    /// Returns whether the commit of a branch is requested even if it was requested a moment ago.
    fn wants_current_commit(&self) -> bool;

    /// Decides before a number of files is requested from a server.
    fn pass_files(&self, files: usize) -> BoxFuture<'_, ()>;

    /// Decides before the call takes more memory, in bytes.
    fn pass_memory(&self, bytes: u64) -> BoxFuture<'_, ()>;
}

/// The memory in bytes that each call may take. Few repositories have more indexes and headers, and nothing shows how much
/// a call needs before they arrive.
#[cfg(any(feature = "census", feature = "server"))]
pub(crate) const SMALL_CALL: u64 = 8 << 20;

/// The memory of one call. It may exceed [`SMALL_CALL`] with a permit, which is kept until the end of the call.
#[cfg(any(feature = "census", feature = "server"))]
#[derive(Debug)]
pub(crate) struct CallSize {
    permits: Arc<Semaphore>,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

#[cfg(any(feature = "census", feature = "server"))]
impl CallSize {
    /// Starts a call, which shares the permits with others.
    pub(crate) fn new(permits: Arc<Semaphore>) -> Self {
        Self { permits, bytes: AtomicU64::new(0), permit: OnceCell::new() }
    }

    /// Adds bytes. Returns the wait for a permit if the call needs one.
    pub(crate) fn add(&self, bytes: u64) -> Option<impl Future<Output = ()> + Send> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= SMALL_CALL {
            return None;
        }
        // The semaphore is never closed.
        let acquire = || async { Arc::clone(&self.permits).acquire_owned().await.ok() };
        Some(async move {
            self.permit.get_or_init(acquire).await;
        })
    }
}
