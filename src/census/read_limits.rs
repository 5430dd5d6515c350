//! Limits of the repositories that are read at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{BoxFuture, FutureExt, ready};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::backends::CallGate;
use crate::http::transfer::RequestMeter;
use crate::hub::CommitSha;

/// The bytes of indexes and headers that each repository may have. Few of the Hub have more.
const SMALL: u64 = 8 << 20;

/// The repositories above [`SMALL`] that are read at once. The largest allowed header takes 240 MB while it is parsed.
const LARGE_AT_ONCE: usize = 2;

/// The limits of all reads of a census. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ReadLimits {
    /// One permit for each repository that is read at once.
    pub(super) jobs: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl ReadLimits {
    pub(super) fn new(jobs: usize) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_AT_ONCE));
        Self { jobs: Arc::new(Semaphore::new(jobs.max(1))), large }
    }

    /// Returns the gate of one repository. Its meter counts the time of a wait for other large ones, which is not a part of
    /// the call's time.
    pub(super) fn gate(self, meter: RequestMeter) -> Arc<dyn CallGate> {
        Arc::new(SizeGate {
            large: self.large,
            meter,
            bytes: AtomicU64::new(0),
            permit: OnceCell::new(),
        })
    }
}

/// The gate of one repository, which keeps its permit until it is read.
#[derive(Debug)]
struct SizeGate {
    large: Arc<Semaphore>,
    meter: RequestMeter,
    bytes: AtomicU64,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

impl CallGate for SizeGate {
    fn pass_commit<'a>(&'a self, _: &'a CommitSha, _: Option<String>) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn wants_current_commit(&self) -> bool {
        false
    }

    fn pass_files(&self, _: usize) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn pass_memory(&self, bytes: u64) -> BoxFuture<'_, ()> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= SMALL {
            return ready(()).boxed();
        }
        let acquire = async || {
            let _waiting = self.meter.start_wait();
            // The semaphore is never closed.
            Arc::clone(&self.large).acquire_owned().await.ok()
        };
        async move {
            self.permit.get_or_init(acquire).await;
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_repositories_are_read_at_once() {
        let limits = ReadLimits::new(32);
        let gate = || limits.clone().gate(RequestMeter::default());
        let pass =
            |gate: &Arc<dyn CallGate>, bytes| gate.pass_memory(bytes).now_or_never().is_some();
        let mut gates: Vec<_> = (0..=LARGE_AT_ONCE).map(|_| gate()).collect();
        assert!(gates.iter().all(|gate| pass(gate, SMALL)));
        let last = gates.pop().unwrap();
        assert!(gates.iter().all(|gate| pass(gate, 1)));
        assert!(!pass(&last, 1));
        assert!(gates.iter().all(|gate| pass(gate, u64::MAX)), "a permit is enough for all");
        gates.pop();
        assert!(pass(&last, 1));
    }
}
