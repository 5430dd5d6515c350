//! What keeps a server that is gone from being waited for by every call.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server that failed is not asked.
const REST: Duration = Duration::from_secs(1);

/// Open for a while after each failure.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    opened: Option<Instant>,
    has_complained: bool,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.state().opened.is_some_and(|opened| opened.elapsed() < REST)
    }

    /// Notes how a command ended. Going and coming back are told of once.
    pub(super) fn note(&self, error: Option<&impl Display>) {
        let mut state = self.state();
        state.opened = error.map(|_| Instant::now());
        let has_changed = state.has_complained != error.is_some();
        state.has_complained = error.is_some();
        drop(state);
        match error {
            Some(error) if has_changed => {
                tracing::warn!(%error, "the shared cache does not answer; going on without it");
            }
            None if has_changed => tracing::warn!("the shared cache answers again"),
            _ => {}
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
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
        breaker.note(Some(&"gone"));
        assert!(breaker.is_open());
        breaker.note(None::<&&str>);
        assert!(!breaker.is_open());
    }
}
