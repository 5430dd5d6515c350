//! Waits that all requests of a client share: when a server asks one of them to wait, none leaves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::url::Origin;
use tokio::time::{Instant, sleep_until};

/// A wait that people should be told of.
const LONG_WAIT: Duration = Duration::from_secs(12);

/// The servers that may not be asked yet.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<HashMap<Origin, Closed>>);

/// Until when, and whether a request waits for it already.
#[derive(Debug)]
struct Closed {
    until: Instant,
    is_waited_for: bool,
}

impl Gate {
    /// Keeps requests to a server back for a while; never for less than was already asked.
    pub(super) fn close(&self, origin: &Origin, wait: Duration) {
        let Some(until) = Instant::now().checked_add(wait) else { return };
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.entry(origin.clone());
        let server = server.or_insert(Closed { until, is_waited_for: false });
        server.until = until.max(server.until);
    }

    /// How long a request to a server has to wait; `None` where it has not.
    fn wait(&self, origin: &Origin) -> Option<Duration> {
        let now = Instant::now();
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, server| server.until > now);
        servers.get(origin).map(|server| server.until - now)
    }

    /// Waits until a server may be asked, or for `longest`. The rest of the wait, where it is longer.
    pub(super) async fn pass(&self, origin: &Origin, longest: Duration) -> Result<(), Duration> {
        let started = Instant::now();
        while let Some(wait) = self.wait(origin) {
            if started.elapsed().saturating_add(wait) > longest {
                return Err(wait);
            }
            self.tell(origin, wait);
            sleep_until(Instant::now() + wait).await;
        }
        Ok(())
    }

    /// Says that a request waits. Of a long wait people are told, but not by each request anew.
    fn tell(&self, origin: &Origin, wait: Duration) {
        let server = origin.ascii_serialization();
        if wait > LONG_WAIT && self.is_first(origin) {
            tracing::warn!(server, ?wait, "waiting as the server asks");
        } else {
            tracing::debug!(server, ?wait, "held back, as the server asks");
        }
    }

    /// Whether a request is the first to wait for a server.
    fn is_first(&self, origin: &Origin) -> bool {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.get_mut(origin);
        server.is_some_and(|server| !std::mem::replace(&mut server.is_waited_for, true))
    }
}
