//! Limits the number of repositories that are read concurrently.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use tokio::sync::Semaphore;

use hf_meta::CallMeter;
use hf_meta::CommitSha;
use hf_meta::{CallHooks, LargeCallPermit};

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
const LARGE_AT_ONCE: usize = 2;

/// The limits of all reads of a census. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ReadLimits {
    /// One permit per concurrent repository.
    pub(super) jobs: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl ReadLimits {
    pub(super) fn new(jobs: usize) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_AT_ONCE));
        Self { jobs: Arc::new(Semaphore::new(jobs.max(1))), large }
    }

    /// Returns the gate of one repository. The wait for other large repositories is counted by the meter, and does
    /// not count towards the call's timeout.
    pub(super) fn gate(self, meter: CallMeter) -> Arc<dyn CallHooks> {
        Arc::new(SizeGate { size: LargeCallPermit::new(self.large), meter })
    }
}

/// Limits the memory of one repository.
#[derive(Debug)]
struct SizeGate {
    size: LargeCallPermit,
    meter: CallMeter,
}

impl CallHooks for SizeGate {
    fn commit_resolved<'a>(&'a self, _: &'a CommitSha, _: Option<String>) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn must_revalidate(&self) -> bool {
        false
    }

    fn before_requests(&self, _: usize) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn before_allocation(&self, bytes: u64) -> BoxFuture<'_, ()> {
        let Some(permit) = self.size.add(bytes) else { return ready(()).boxed() };
        async move {
            let _waiting = self.meter.start_wait();
            permit.await;
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta::MAX_SMALL_CALL;

    #[test]
    fn few_large_repositories_are_read_at_once() {
        let limits = ReadLimits::new(32);
        let gate = || limits.clone().gate(CallMeter::default());
        let pass = |gate: &Arc<dyn CallHooks>, bytes| {
            gate.before_allocation(bytes).now_or_never().is_some()
        };
        let mut gates: Vec<_> = (0..=LARGE_AT_ONCE).map(|_| gate()).collect();
        assert!(gates.iter().all(|gate| pass(gate, MAX_SMALL_CALL)));
        let last = gates.pop().unwrap();
        assert!(gates.iter().all(|gate| pass(gate, 1)));
        assert!(!pass(&last, 1));
        assert!(gates.iter().all(|gate| pass(gate, u64::MAX)), "a permit is enough for all");
        gates.pop();
        assert!(pass(&last, 1));
    }
}
