//! What the Hub wants its readers to know, `X-HF-Warning`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::formats::clip;

/// The most notices that are remembered, and so passed on.
const MOST: usize = 16;

/// The notices of a client, each passed on once: the Hub repeats them with every answer.
#[derive(Debug, Default)]
pub(crate) struct HubWarnings(Mutex<BTreeSet<String>>);

impl HubWarnings {
    /// Logs a notice, `topic; message`, if it is a new one.
    pub(crate) fn warn_once(&self, notice: Option<&str>) {
        if let Some(notice) = notice.map(clip).filter(|notice| self.is_new(notice)) {
            tracing::warn!(?notice, "the Hub says");
        }
    }

    fn is_new(&self, notice: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MOST && known.insert(notice.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_is_new_once_and_there_is_an_end_of_them() {
        let notices = HubWarnings::default();
        assert!(notices.is_new("unauthenticated; Warning: …"));
        assert!(!notices.is_new("unauthenticated; Warning: …"));
        let new = (0..100).filter(|n| notices.is_new(&n.to_string())).count();
        assert_eq!(new, MOST - 1);
    }
}
