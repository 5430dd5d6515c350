//! Limits the memory of headers that are not counted yet.
//!
//! A permit is acquired before a header is requested, and released once the header is counted. One limit applies per
//! call, and another to all calls of a client. Each call may exceed the second limit by one header, so that a call
//! that waits for a rate limit does not block the others.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limit per call, in bytes. No header is counted before the index is complete, and the parsed headers of
/// Kimi-K2.5 almost fit: a lower limit would slow the call down.
const CALL_LIMIT: u32 = 12 << 20;

/// The limit for all calls of a client, in bytes. Five calls can use their own limit in full.
const CLIENT_LIMIT: usize = 64 << 20;

/// The memory budget of all calls of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientMemory(Arc<Semaphore>);

impl Default for ClientMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CLIENT_LIMIT)))
    }
}

/// The memory budget of one call, within the client's budget.
#[derive(Debug)]
pub(super) struct CallMemory {
    call: Arc<Semaphore>,
    client: Arc<Semaphore>,
    /// The permit for the one header that may exceed the client's budget.
    one: Arc<Semaphore>,
}

impl CallMemory {
    pub(super) fn new(client: &ClientMemory) -> Self {
        let call = Arc::new(Semaphore::new(CALL_LIMIT as usize));
        Self { call, client: Arc::clone(&client.0), one: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for `bytes` bytes of memory. Values above the limit per call are clamped to it.
    pub(super) async fn acquire(&self, bytes: u64) -> MemoryPermit {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(CALL_LIMIT);
        // The semaphores are never closed.
        let call = Arc::clone(&self.call).acquire_many_owned(bytes).await.ok();
        let client = pin!(Arc::clone(&self.client).acquire_many_owned(bytes));
        let one = pin!(Arc::clone(&self.one).acquire_owned());
        match select(client, one).await {
            Either::Left((client, _)) => MemoryPermit { bytes: [call, client.ok()], _one: None },
            Either::Right((one, _)) => MemoryPermit { bytes: [call, None], _one: one.ok() },
        }
    }
}

/// A permit for the memory of a header, in the budgets of its call and its client.
#[derive(Debug, Default)]
pub(super) struct MemoryPermit {
    bytes: [Option<OwnedSemaphorePermit>; 2],
    _one: Option<OwnedSemaphorePermit>,
}

impl MemoryPermit {
    /// Releases all but `bytes` bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        for permit in self.bytes.iter_mut().flatten() {
            let excess = permit.num_permits().saturating_sub(bytes);
            drop(permit.split(excess));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::FutureExt;

    use super::*;

    #[test]
    fn the_memory_of_a_call_and_of_all_calls_is_limited() {
        let client = ClientMemory::default();
        let calls: Vec<_> = (0..6).map(|_| CallMemory::new(&client)).collect();
        let acquire = |call: usize, bytes| calls[call].acquire(bytes).now_or_never();
        let mut permits: Vec<_> = (0..5).map(|call| acquire(call, u64::MAX).unwrap()).collect();
        assert!(acquire(0, 1).is_none(), "the limit of a call");
        let large = u64::from(CALL_LIMIT) / 2;
        let one = acquire(5, large).expect("one header of each call is read");
        assert!(acquire(5, large).is_none(), "the limit of the client");
        assert!(acquire(5, 1_000).is_some(), "a small header fits");
        drop(one);
        let one = acquire(5, large).unwrap();
        permits[0].shrink_to(1_000);
        assert!(acquire(5, large).is_some());
        drop(one);
        permits.clear();
        assert_eq!(client.0.available_permits(), CLIENT_LIMIT);
    }
}
