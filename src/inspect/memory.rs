//! Limits of memory: for headers that are not counted yet, and for calls that need a lot of it.
//!
//! A header permit is acquired before a header is requested, and released once the header is counted. One limit applies per
//! call, and another to all calls of a client. Each call may exceed the second limit by one header, so that a call
//! that waits for a rate limit does not block the others.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{Either, select};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::base::meter::{CallMeter, Demand};

/// The limit per call, in bytes. All headers of Kimi-K2.5, 29 MB, fit at once. No header is counted before the index is
/// complete, so with 12 MiB the last headers waited for memory, and the call took 6 round trips more.
const CALL_LIMIT: u32 = 32 << 20;

/// The limit for all calls of a client, in bytes. Two calls can use their own limit in full.
const CLIENT_LIMIT: usize = 64 << 20;

/// The memory in bytes that a call may use without a permit for large calls.
const MAX_SMALL_CALL: u64 = 8 << 20;

/// Creates the memory budget of all calls of a client.
pub(crate) fn client_memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CLIENT_LIMIT))
}

/// The memory budget of one call, within the client's budget.
#[derive(Clone, Debug)]
pub(crate) struct CallMemory {
    call: Arc<Semaphore>,
    client: Arc<Semaphore>,
    /// The permit for the one header that may exceed the client's budget.
    one: Arc<Semaphore>,
}

impl CallMemory {
    pub(crate) fn new(client: Arc<Semaphore>) -> Self {
        let call = Arc::new(Semaphore::new(CALL_LIMIT as usize));
        Self { call, client, one: Arc::new(Semaphore::new(1)) }
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

/// A limit on the number of concurrent calls that need a lot of memory. Clones share the limit.
///
/// A call may use 8 MiB for its index and its headers, which is enough for almost every repository. The need of a call
/// is unknown until the bytes arrive: to use more, it waits for one of the permits, and holds it until it ends.
///
/// ```
/// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
/// let limit = hf_meta::LargeCallLimit::new(2);
/// let calls = ["bigscience/bloom", "deepseek-ai/DeepSeek-R1", "moonshotai/Kimi-K2.5"]
///     .map(|repo| client.model(repo).large_calls(&limit).count());
/// for report in futures::future::try_join_all(calls).await? {
///     println!("{} parameters", report.parameter_count.total());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LargeCallLimit(Arc<Semaphore>);

impl LargeCallLimit {
    /// Creates a limit of `calls` concurrent large calls, at least one.
    pub fn new(calls: usize) -> Self {
        Self(Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Starts a call under this limit.
    pub(crate) fn start_call(&self) -> LargeCall {
        LargeCall { limit: self.clone(), bytes: AtomicU64::new(0), permit: OnceCell::new() }
    }
}

/// The memory use of a call under a [`LargeCallLimit`].
#[derive(Debug)]
pub(crate) struct LargeCall {
    limit: LargeCallLimit,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

impl LargeCall {
    /// Adds bytes, and waits for a permit if the call now needs one.
    pub(super) async fn allocate(&self, bytes: u64, meter: &CallMeter) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > MAX_SMALL_CALL {
            let _wait = meter.time_left().is_none().then(|| meter.start_wait());
            let acquire = || async {
                let permits = Arc::clone(&self.limit.0);
                if permits.available_permits() == 0 {
                    meter.before(Demand::LargeCall).await;
                }
                // The semaphore is never closed.
                permits.acquire_owned().await.ok()
            };
            self.permit.get_or_init(acquire).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::FutureExt;

    use super::*;
    use crate::base::Callback;

    #[test]
    fn memory_is_limited_per_call_and_per_client() {
        let client = client_memory();
        let calls: Vec<_> = (0..3).map(|_| CallMemory::new(Arc::clone(&client))).collect();
        let acquire = |call: usize, bytes| calls[call].acquire(bytes).now_or_never();
        let almost_all = u64::from(CALL_LIMIT) - 10_000;
        let mut permits = vec![acquire(0, u64::MAX).unwrap(), acquire(1, almost_all).unwrap()];
        assert!(acquire(0, 1).is_none(), "the limit of a call");
        let large = u64::from(CALL_LIMIT) / 2;
        let one = acquire(2, large).expect("one header of each call is read");
        assert!(acquire(2, large).is_none(), "the limit of the client");
        assert!(acquire(2, 1_000).is_some(), "a small header fits");
        drop(one);
        let one = acquire(2, large).unwrap();
        permits[0].shrink_to(1_000);
        assert!(acquire(2, large).is_some());
        drop(one);
        permits.clear();
        assert_eq!(client.available_permits(), CLIENT_LIMIT);
    }

    #[test]
    fn few_large_calls_run_at_once() {
        let limit = LargeCallLimit::new(2);
        let fits = |call: &LargeCall, bytes| {
            call.allocate(bytes, &CallMeter::default()).now_or_never().is_some()
        };
        let mut calls: Vec<_> = (0..3).map(|_| limit.start_call()).collect();
        assert!(calls.iter().all(|call| fits(call, MAX_SMALL_CALL)));
        let last = calls.pop().unwrap();
        assert!(calls.iter().all(|call| fits(call, 1)));
        assert!(!fits(&last, 1));
        assert!(fits(&limit.start_call(), MAX_SMALL_CALL));
        assert!(calls.iter().all(|call| fits(call, u64::MAX)), "a permit is enough for all bytes");
        calls.pop();
        assert!(fits(&last, 1));
    }

    #[test]
    fn a_callback_is_asked_before_a_wait() {
        let (asked, limit) = (Arc::new(Mutex::new(Vec::new())), LargeCallLimit::new(1));
        let demands = Arc::clone(&asked);
        let allows = move |demand| {
            demands.lock().unwrap().push(demand);
            false
        };
        let mut meter = CallMeter::default();
        meter.allows = Some(Callback(Arc::new(allows)));
        let [first, second] = [(); 2].map(|()| limit.start_call());
        assert!(first.allocate(u64::MAX, &meter).now_or_never().is_some());
        assert!(asked.lock().unwrap().is_empty(), "nothing to wait for");
        assert!(second.allocate(u64::MAX, &meter).now_or_never().is_none());
        assert_eq!(*asked.lock().unwrap(), [Demand::LargeCall]);
        drop(first);
        assert!(second.allocate(u64::MAX, &meter).now_or_never().is_some());
    }
}
