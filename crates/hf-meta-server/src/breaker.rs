//! A circuit breaker, so that an unreachable server does not delay every call.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after a failure during which no commands are sent.
const OPEN_TIME: Duration = Duration::from_secs(1);

/// A circuit breaker that opens for [`OPEN_TIME`] after each failure.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    opened: Option<Instant>,
    has_warned: bool,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.state().opened.is_some_and(|opened| opened.elapsed() < OPEN_TIME)
    }

    /// Records the outcome of a command. Logs each outage and each recovery once.
    pub(super) fn record(&self, error: Option<&impl Display>) {
        let mut state = self.state();
        state.opened = error.map(|_| Instant::now());
        let has_changed = state.has_warned != error.is_some();
        state.has_warned = error.is_some();
        drop(state);
        match error {
            Some(error) if has_changed => {
                tracing::warn!(%error, "the shared cache is unreachable; continuing without it");
            }
            None if has_changed => tracing::warn!("the shared cache is reachable again"),
            _ => {}
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BreakerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_opens_it_and_one_success_closes_it() {
        let breaker = Breaker::default();
        assert!(!breaker.is_open());
        breaker.record(Some(&"down"));
        assert!(breaker.is_open());
        breaker.record(None::<&&str>);
        assert!(!breaker.is_open());
    }
}
