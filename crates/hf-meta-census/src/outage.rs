//! Ends a run early: on request, in an outage, or if the Hub rejects the token.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, watch};

use super::CensusError;
use super::census::ProgressReporter;
use hf_meta::{Error, ErrorKind};

/// The number of consecutive failures that begin an outage. A few repositories in a row may fail for their own reasons.
const MAX_CONSECUTIVE_FAILURES: u32 = 16;

/// The time before the first probe in an outage. It doubles after each failed probe.
const FIRST_PROBE_DELAY: Duration = Duration::from_secs(1);

/// The maximum time between two probes.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(60);

/// The default limit on the duration of an outage.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(600);

/// A handle that ends the runs of a census early. The rows that are complete are stored.
#[derive(Clone, Debug, Default)]
pub struct CensusStop(Arc<watch::Sender<bool>>);

impl CensusStop {
    /// Ends the current run and all later ones.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) fn check(&self) -> Result<(), CensusError> {
        if self.is_stopped() { Err(CensusError::Stopped) } else { Ok(()) }
    }

    /// Waits until the run has to end.
    pub(super) async fn stopped(self) {
        let mut receiver = self.0.subscribe();
        // The sender is in this handle, so waiting cannot fail.
        let _ = receiver.wait_for(|stopped| *stopped).await;
    }
}

/// A circuit breaker for the calls of a run.
///
/// An outage begins with 16 consecutive failures of calls that began after the last success. Failures of older calls do
/// not count, because successes are faster, so that in the end all calls could be failures. Then only one call at a time
/// reads its repository, as a probe, after a growing delay. Each probe is a different repository, so a series of defective
/// repositories is passed. The first success ends the outage, and the repositories that failed in it are read again.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    state: Mutex<BreakerState>,
    /// Locked by the call that probes.
    probe: AsyncMutex<()>,
    max_outage: Duration,
    stop: CensusStop,
    progress: Arc<ProgressReporter>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// The number of consecutive failures. In an outage, only probes count.
    failures: u32,
    /// The time of the first of these failures.
    first_failure: Option<Instant>,
    last_success: Option<Instant>,
    /// The repositories that have failed since the last success.
    failed: Vec<String>,
    /// The end of the last outage.
    outage_end: Option<Instant>,
    /// The repositories that failed in an outage.
    suspects: BTreeSet<String>,
    /// The reason for the end of the run.
    error: Option<CensusError>,
}

impl BreakerState {
    /// Returns the time to wait before the next call in an outage; `None` if there is none.
    fn probe_delay(&self) -> Option<Duration> {
        let probes = self.failures.checked_sub(MAX_CONSECUTIVE_FAILURES)?;
        Some(FIRST_PROBE_DELAY.saturating_mul(1 << probes.min(16)).min(MAX_PROBE_DELAY))
    }
}

impl CircuitBreaker {
    pub(super) fn new(
        max_outage: Duration,
        stop: CensusStop,
        progress: Arc<ProgressReporter>,
    ) -> Self {
        let (state, probe) = Default::default();
        Self { state, probe, max_outage, stop, progress }
    }

    /// Makes the call for a repository, and repeats it as a probe if it fails in an outage. The call returns its result,
    /// the number of its requests, and its error.
    pub(super) async fn call<T, Reading>(&self, repo: &str, call: impl Fn() -> Reading) -> T
    where
        Reading: Future<Output = (T, u64, Option<Error>)>,
    {
        loop {
            let mut probe = None;
            if self.probe_delay().is_some() {
                probe = Some(self.probe.lock().await);
            }
            match self.probe_delay() {
                // The delay may be longer than the time that is left of the outage.
                Some(delay) => tokio::time::sleep(delay.min(self.max_outage)).await,
                None => drop(probe.take()),
            }
            let began = Instant::now();
            let (result, requests, error) = call().await;
            // Without a request, a call says nothing about the Hub.
            if requests == 0 || self.is_final(repo, began, error, probe.is_some()) {
                return result;
            }
        }
    }

    fn probe_delay(&self) -> Option<Duration> {
        self.lock().probe_delay()
    }

    /// Records the result of a call. Returns whether it is final.
    fn is_final(&self, repo: &str, began: Instant, error: Option<Error>, is_probe: bool) -> bool {
        use ErrorKind::{Network, RateLimited, Refused, RejectedToken, Timeout};
        let is_outage = |error: &Error| {
            let kind = error.kind();
            error.is_transient() && matches!(kind, Network | RateLimited | Refused | Timeout)
        };
        let mut state = self.lock();
        let was_open = state.probe_delay().is_some();
        match error {
            Some(error) if error.kind() == RejectedToken => {
                self.end(&mut state, error.into());
                false
            }
            Some(error) if is_outage(&error) => {
                let first = *state.first_failure.get_or_insert_with(Instant::now);
                let is_new = state.last_success.is_none_or(|success| success <= began);
                state.failures += u32::from(is_probe || (is_new && !was_open));
                if state.outage_end.is_some_and(|end| began < end) {
                    state.suspects.insert(repo.to_owned());
                } else {
                    state.failed.push(repo.to_owned());
                }
                let is_open = state.probe_delay().is_some();
                if is_open && is_probe && first.elapsed() >= self.max_outage {
                    self.end(&mut state, CensusError::Outage { source: error.into() });
                } else if is_open && !was_open {
                    self.progress.update(|progress| progress.outage = Some(error.kind()));
                }
                !is_open || is_probe
            }
            _ => {
                let (now, failed) = (Instant::now(), take(&mut state.failed));
                (state.failures, state.first_failure, state.last_success) = (0, None, Some(now));
                if was_open {
                    state.outage_end = Some(now);
                    state.suspects.extend(failed);
                    self.progress.update(|progress| progress.outage = None);
                }
                true
            }
        }
    }

    fn end(&self, state: &mut BreakerState, error: CensusError) {
        state.error.get_or_insert(error);
        self.stop.stop();
    }

    /// Takes the repositories that failed in an outage that has ended.
    pub(super) fn take_suspects(&self) -> BTreeSet<String> {
        take(&mut self.lock().suspects)
    }

    /// Returns the reason for the end of the run, if it is an error.
    pub(super) fn result(&self) -> Result<(), CensusError> {
        self.lock().error.take().map_or(Ok(()), Err)
    }

    pub(super) fn stop(&self) -> &CensusStop {
        &self.stop
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
