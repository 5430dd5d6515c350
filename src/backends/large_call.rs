//! Limits the number of concurrent calls that need a lot of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The memory in bytes that a call may use without a permit. Few repositories have more bytes of indexes and headers,
/// and the need of a call is unknown until they arrive.
pub const MAX_SMALL_CALL: u64 = 8 << 20;

/// The memory use of one call. To exceed [`MAX_SMALL_CALL`], the call needs a permit, which it holds until it ends.
#[derive(Debug)]
pub struct LargeCallPermit {
    permits: Arc<Semaphore>,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

impl LargeCallPermit {
    /// Starts a call that shares the permits with other calls.
    pub fn new(permits: Arc<Semaphore>) -> Self {
        Self { permits, bytes: AtomicU64::new(0), permit: OnceCell::new() }
    }

    /// Adds bytes. If the call now needs a permit, returns a future that waits for it.
    pub fn add(&self, bytes: u64) -> Option<impl Future<Output = ()> + Send> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= MAX_SMALL_CALL {
            return None;
        }
        // The semaphore is never closed.
        let acquire = || async { Arc::clone(&self.permits).acquire_owned().await.ok() };
        Some(async move {
            self.permit.get_or_init(acquire).await;
        })
    }
}
