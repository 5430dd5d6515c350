//! What a call waited for: a measure of time that does not hang on the machine's pace.

use std::fmt;
use std::time::Duration;

use crate::traces::Capture;

/// Deadlines that passed, and waits between attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spent {
    deadlines: usize,
    waits: usize,
}

impl Spent {
    /// What was told of a call.
    pub(super) fn told(capture: &Capture) -> Self {
        let is_timeout = |error: &str| error.starts_with("timed out");
        let failed = capture.all("failed");
        Self {
            deadlines: failed.iter().filter(|told| is_timeout(told.field("error"))).count(),
            waits: capture.all("retrying").len(),
        }
    }

    /// The least time that this takes.
    pub(super) fn least(self, deadline: Duration) -> Duration {
        deadline * u32::try_from(self.deadlines).unwrap()
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { deadlines, waits } = *self;
        match (deadlines, waits) {
            (0, 0) => f.write_str("nothing"),
            (0, _) => write!(f, "{waits} wait{}", plural(waits)),
            _ => write!(
                f,
                "{deadlines} deadline{}, {waits} wait{}",
                plural(deadlines),
                plural(waits)
            ),
        }
    }
}
