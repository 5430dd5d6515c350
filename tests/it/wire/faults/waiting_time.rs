//! The waiting time of a call, independent of the speed of the machine.

use std::fmt;
use std::time::Duration;

use crate::wire::traces::Capture;

/// The number of passed timeouts, and of waits between attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingTime {
    timeouts: usize,
    waits: usize,
}

impl WaitingTime {
    /// Counts the log events of a call.
    pub(super) fn from_events(capture: &Capture) -> Self {
        let is_timeout = |error: &str| error.starts_with("timed out");
        let failed = capture.all("failed");
        Self {
            timeouts: failed.iter().filter(|event| is_timeout(event.field("error"))).count(),
            waits: capture.all("retrying").len(),
        }
    }

    /// Returns the minimum time that this takes.
    pub(super) fn minimum(self, timeout: Duration) -> Duration {
        timeout * u32::try_from(self.timeouts).unwrap()
    }
}

impl fmt::Display for WaitingTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { timeouts, waits } = *self;
        match (timeouts, waits) {
            (0, 0) => f.write_str("nothing"),
            (0, _) => write!(f, "{waits} wait{}", plural(waits)),
            _ => write!(f, "{timeouts} timeout{}, {waits} wait{}", plural(timeouts), plural(waits)),
        }
    }
}
