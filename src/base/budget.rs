//! The budget of a call: its requests, and the RAM for its headers. The memory of a model, which consists of its weights
//! and its cache, is in the crate `hf-meta-count`.
//!
//! RAM for a header is reserved before it is requested, and released once the header is counted. One limit applies
//! per call, and another to all calls of a client. Each call may exceed the second limit by one header, so that a call
//! that waits for a rate limit does not block the others.

use std::error::Error as StdError;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{Either, select};
use hf_meta_inspect::{Permit, Refusal};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::meter::CallMeter;

/// The limit per call, in bytes. All headers of Kimi-K2.5, 29 MB, fit at once. No header is counted before the index is
/// complete, so with 12 MiB the last headers waited for RAM, and the call took 6 round trips more.
const CALL_LIMIT: u32 = 32 << 20;

/// The limit for all calls of a client, in bytes. Two calls can use their own limit in full.
const CLIENT_LIMIT: usize = 64 << 20;

/// The RAM in bytes that a call may use without a permit for large calls.
const MAX_SMALL_CALL: u64 = 8 << 20;

/// A budget that the caller enforces; see [`Model::budget`](crate::Model::budget). It is asked before the call goes
/// on, and must not block.
pub trait Budget: fmt::Debug + Send + Sync + 'static {
    /// Returns whether the call may go on.
    ///
    /// # Errors
    ///
    /// Return the reason to end the call. It becomes the source of [`Error::OverBudget`](crate::Error::OverBudget).
    fn admit(&self, demand: Demand) -> Result<(), Box<dyn StdError + Send + Sync>>;
}

/// Something that a call needs, for which its [`Budget`] may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demand {
    /// A number of further requests: one for each weight file, once their number is known, and one for each page of a
    /// listing after the first.
    Requests(usize),
    /// The RAM of a large call, while other large calls use all of it.
    LargeCall,
}

/// Creates the RAM budget of all calls of a client.
pub(crate) fn client_ram() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CLIENT_LIMIT))
}

/// The budget of one call. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CallBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    /// The budget of the caller.
    budget: Option<Arc<dyn Budget>>,
    /// The RAM of the call and of all calls of its client, for headers that are not counted yet.
    ram: [Arc<Semaphore>; 2],
    /// The permit for the one header that may exceed the client's RAM.
    one: Arc<Semaphore>,
    large: Option<LargeCall>,
    /// Measures the waits for RAM.
    meter: CallMeter,
}

impl CallBudget {
    pub(crate) fn new(
        budget: Option<Arc<dyn Budget>>,
        client: Arc<Semaphore>,
        large: Option<&LargeCallLimit>,
        meter: CallMeter,
    ) -> Self {
        let ram = [Arc::new(Semaphore::new(CALL_LIMIT as usize)), client];
        let (one, large) = (Arc::new(Semaphore::new(1)), large.map(LargeCallLimit::call));
        Self(Arc::new(BudgetState { budget, ram, one, large, meter }))
    }

    /// Returns whether neither the caller nor a [`LargeCallLimit`] limits the call.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.0.budget.is_none() && self.0.large.is_none()
    }

    /// Admits a number of further requests.
    pub(crate) fn admit_requests(&self, requests: usize) -> Result<(), Refusal> {
        self.admit(Demand::Requests(requests))
    }

    fn admit(&self, demand: Demand) -> Result<(), Refusal> {
        let Some(budget) = &self.0.budget else { return Ok(()) };
        budget.admit(demand).map_err(|reason| Refusal(reason.into()))
    }

    /// Waits until the call may use `bytes` more bytes of RAM in total.
    pub(crate) async fn admit_bytes(&self, bytes: u64) -> Result<(), Refusal> {
        let Some(large) = self.0.large.as_ref().filter(|large| large.needs_permit(bytes)) else {
            return Ok(());
        };
        let meter = &self.0.meter;
        let _wait = meter.time_left().is_none().then(|| meter.start_wait());
        let acquire = || async {
            if large.limit.0.available_permits() == 0 {
                self.admit(Demand::LargeCall)?;
            }
            // The semaphore is never closed.
            Ok(Arc::clone(&large.limit.0).acquire_owned().await.ok())
        };
        large.permit.get_or_try_init(acquire).await.map(drop)
    }

    /// Waits for `bytes` bytes of RAM for a header. Values above the limit per call are clamped to it.
    pub(crate) async fn hold(&self, bytes: u64) -> RamPermit {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(CALL_LIMIT);
        let [call, client] = self.0.ram.each_ref().map(Arc::clone);
        // The semaphores are never closed.
        let call = call.acquire_many_owned(bytes).await.ok();
        let client = pin!(client.acquire_many_owned(bytes));
        let one = pin!(Arc::clone(&self.0.one).acquire_owned());
        match select(client, one).await {
            Either::Left((client, _)) => RamPermit { bytes: [call, client.ok()], _one: None },
            Either::Right((one, _)) => RamPermit { bytes: [call, None], _one: one.ok() },
        }
    }
}

impl Default for CallBudget {
    fn default() -> Self {
        Self::new(None, client_ram(), None, CallMeter::default())
    }
}

/// A permit for the RAM of a header, in the budgets of its call and its client.
#[derive(Debug, Default)]
pub(crate) struct RamPermit {
    bytes: [Option<OwnedSemaphorePermit>; 2],
    _one: Option<OwnedSemaphorePermit>,
}

impl Permit for RamPermit {
    fn shrink_to(&mut self, bytes: usize) {
        for permit in self.bytes.iter_mut().flatten() {
            let excess = permit.num_permits().saturating_sub(bytes);
            drop(permit.split(excess));
        }
    }
}

/// A limit on the number of concurrent calls that need a lot of RAM. Clones share the limit.
///
/// A call may use 8 MiB for its index and its headers, which is enough for almost every repository. The need of a call
/// is unknown until the bytes arrive: to use more, it waits for one of the permits, and holds it until it ends.
///
/// ```
/// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
/// let limit = hf_meta::LargeCallLimit::new(2);
/// let calls = ["bigscience/bloom", "deepseek-ai/DeepSeek-R1", "moonshotai/Kimi-K2.5"]
///     .map(|repo| client.model(repo).large_calls(&limit).count().into_future());
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

    /// Returns the RAM use of a new call under this limit.
    fn call(&self) -> LargeCall {
        LargeCall { limit: self.clone(), bytes: AtomicU64::new(0), permit: OnceCell::new() }
    }
}

/// The RAM use of a call under a [`LargeCallLimit`].
#[derive(Debug)]
struct LargeCall {
    limit: LargeCallLimit,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

impl LargeCall {
    /// Adds bytes, and returns whether the call now needs a permit.
    fn needs_permit(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) > MAX_SMALL_CALL
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::FutureExt;

    use super::*;

    #[test]
    fn memory_is_limited_per_call_and_per_client() {
        let client = client_ram();
        let start = || CallBudget::new(None, Arc::clone(&client), None, CallMeter::default());
        let calls = [(); 3].map(|()| start());
        let acquire = |call: usize, bytes| calls[call].hold(bytes).now_or_never();
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

    fn large_call(limit: &LargeCallLimit, budget: Option<Arc<dyn Budget>>) -> CallBudget {
        CallBudget::new(budget, client_ram(), Some(limit), CallMeter::default())
    }

    #[test]
    fn few_large_calls_run_at_once() {
        let limit = LargeCallLimit::new(2);
        let fits = |call: &CallBudget, bytes| call.admit_bytes(bytes).now_or_never().is_some();
        let mut calls: Vec<_> = (0..3).map(|_| large_call(&limit, None)).collect();
        assert!(calls.iter().all(|call| fits(call, MAX_SMALL_CALL)));
        let last = calls.pop().unwrap();
        assert!(calls.iter().all(|call| fits(call, 1)));
        assert!(!fits(&last, 1));
        assert!(fits(&large_call(&limit, None), MAX_SMALL_CALL));
        assert!(calls.iter().all(|call| fits(call, u64::MAX)), "a permit is enough for all bytes");
        calls.pop();
        assert!(fits(&last, 1));
    }

    /// A budget that admits nothing, and records the demands.
    #[derive(Debug, Default)]
    struct Nothing(Mutex<Vec<Demand>>);

    impl Budget for Nothing {
        fn admit(&self, demand: Demand) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.lock().unwrap().push(demand);
            Err("nothing is left".into())
        }
    }

    #[test]
    fn a_budget_is_asked_before_a_wait() {
        let (budget, limit) = (Arc::new(Nothing::default()), LargeCallLimit::new(1));
        let start = || large_call(&limit, Some(Arc::clone(&budget) as Arc<dyn Budget>));
        let [first, second] = [start(), start()];
        assert!(first.admit_bytes(u64::MAX).now_or_never().unwrap().is_ok());
        assert!(budget.0.lock().unwrap().is_empty(), "nothing to wait for");
        let Refusal(reason) = second.admit_bytes(u64::MAX).now_or_never().unwrap().unwrap_err();
        assert_eq!(reason.to_string(), "nothing is left");
        assert_eq!(*budget.0.lock().unwrap(), [Demand::LargeCall]);
        drop(first);
        assert!(second.admit_bytes(u64::MAX).now_or_never().unwrap().is_ok());
    }
}
