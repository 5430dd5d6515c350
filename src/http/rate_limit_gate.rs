//! The gate that holds back all requests of a client to an origin that rate-limits it.

use std::collections::HashMap;
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::url::Origin;
use tokio::time::{Instant, sleep_until};

/// The shortest wait that is logged as a warning. Shorter ones are usual and do not look like a hang.
const LONG_WAIT: Duration = Duration::from_secs(12);

/// The origins that must not be requested yet, shared by all requests of a client.
#[derive(Debug, Default)]
pub(super) struct RateLimitGate(Mutex<HashMap<Origin, HeldOrigin>>);

/// The end of the wait for one origin.
#[derive(Debug)]
struct HeldOrigin {
    until: Instant,
    has_warned: bool,
}

impl RateLimitGate {
    /// Holds back requests to an origin for a while. A longer wait that already applies is kept.
    pub(super) fn hold(&self, origin: &Origin, wait: Duration) {
        let Some(until) = Instant::now().checked_add(wait) else { return };
        let mut held = self.lock();
        let held = held.entry(origin.clone());
        let held = held.or_insert(HeldOrigin { until, has_warned: false });
        held.until = until.max(held.until);
    }

    /// Waits until an origin may be requested. Returns the remaining wait as an error as soon as the
    /// total would be longer than `max_wait`.
    pub(super) async fn pass(&self, origin: &Origin, max_wait: Duration) -> Result<(), Duration> {
        let started = Instant::now();
        while let Some(wait) = self.remaining(origin) {
            if started.elapsed().saturating_add(wait) > max_wait {
                return Err(wait);
            }
            self.log(origin, wait);
            sleep_until(Instant::now() + wait).await;
        }
        Ok(())
    }

    fn remaining(&self, origin: &Origin) -> Option<Duration> {
        let now = Instant::now();
        let mut held = self.lock();
        held.retain(|_, held| held.until > now);
        held.get(origin).map(|held| held.until - now)
    }

    /// Logs a wait: a long one as one warning per origin, everything else for debugging.
    fn log(&self, origin: &Origin, wait: Duration) {
        let server = origin.ascii_serialization();
        if wait > LONG_WAIT && self.take_warning(origin) {
            tracing::warn!(server, ?wait, "rate limited; waiting");
        } else {
            tracing::debug!(server, ?wait, "request held back by a rate limit");
        }
    }

    /// Returns whether this wait has not been logged as a warning yet, and marks it.
    fn take_warning(&self, origin: &Origin) -> bool {
        self.lock().get_mut(origin).is_some_and(|held| !replace(&mut held.has_warned, true))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, HeldOrigin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
