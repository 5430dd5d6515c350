//! The limit on calls that take much memory at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The memory in bytes that each call may take. Few repositories have more indexes and headers, and nothing shows how much
/// a call needs before they arrive.
pub(crate) const SMALL_CALL: u64 = 8 << 20;

/// The memory of one call. It may exceed [`SMALL_CALL`] with a permit, which is kept until the end of the call.
#[derive(Debug)]
pub(crate) struct CallSize {
    permits: Arc<Semaphore>,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

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
