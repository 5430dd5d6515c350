//! Waits that all requests of a client share: when a server asks one of them to wait, none leaves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::url::Origin;
use tokio::time::{Instant, sleep_until};

/// When each server may be asked again.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<HashMap<Origin, Instant>>);

impl Gate {
    /// Keeps requests to a server back for a while; never for less than was already asked.
    pub(super) fn close(&self, origin: &Origin, wait: Duration) {
        let Some(until) = Instant::now().checked_add(wait) else { return };
        let mut opens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opens = opens.entry(origin.clone()).or_insert(until);
        *opens = until.max(*opens);
    }

    /// How long a request to a server has to wait; `None` where it has not.
    pub(super) fn wait(&self, origin: &Origin) -> Option<Duration> {
        let now = Instant::now();
        let mut opens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opens.retain(|_, until| *until > now);
        opens.get(origin).map(|until| *until - now)
    }

    /// Waits until a server may be asked, or for `longest`. The rest of the wait, where it is longer.
    pub(super) async fn pass(&self, origin: &Origin, longest: Duration) -> Result<(), Duration> {
        let started = Instant::now();
        while let Some(wait) = self.wait(origin) {
            if started.elapsed().saturating_add(wait) > longest {
                return Err(wait);
            }
            sleep_until(Instant::now() + wait).await;
        }
        Ok(())
    }
}
