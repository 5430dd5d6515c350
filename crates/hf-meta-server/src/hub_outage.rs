//! Logs each outage of the Hub once.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use hf_meta::{Error, ErrorKind};

/// The minimum time between two warnings. Without it, one repository that fails and others that do not would each log one
/// per lookup.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// The state of the Hub, as seen by lookups.
#[derive(Debug, Default)]
pub(super) struct HubOutage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_down: bool,
    warned_at: Option<Instant>,
}

impl HubOutage {
    /// Records a lookup that got no usable response.
    pub(super) fn failed(&self, error: &dyn Display) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = state.warned_at.is_some_and(|at| at.elapsed() < MIN_INTERVAL);
        if !state.is_down && !is_recent {
            state.warned_at = Some(Instant::now());
            state.is_down = true;
            tracing::warn!(%error, "the Hub is unavailable; known results are still served");
        }
    }

    /// Records a lookup that got a response of the Hub.
    pub(super) fn responded(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.is_down) {
            tracing::warn!("the Hub is available again");
        }
    }

    /// Returns whether an error means that the Hub is unavailable. The timeout of a call does not: the model may be large.
    pub(super) fn is_outage(error: &Error) -> bool {
        use ErrorKind::{Network, RateLimited, Refused, Timeout};
        matches!(error.kind(), Network | RateLimited | Refused | Timeout)
            && !matches!(error, Error::DeadlineExceeded { .. })
    }
}
