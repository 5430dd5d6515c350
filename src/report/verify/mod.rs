//! The result of a check.

pub(crate) mod numbering;
pub(crate) mod tying;

use crate::hub::CommitSha;
use crate::report::FetchStats;
use crate::report::{Finding, Severity};

/// What is wrong or odd about a set of weights, every file of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// What was read, in the form of [`Source`](crate::Source).
    pub source: String,
    /// The commit that every byte is of; `None` where there are no commits.
    pub commit: Option<CommitSha>,
    /// The files of weights that there should be.
    pub files: usize,
    /// Those of them whose header was read and breaks no rule.
    pub valid_files: usize,
    /// The tensors in the valid files.
    pub tensors: u64,
    /// What was found: errors, then warnings, then notes.
    pub findings: Vec<Finding>,
    /// What it took.
    pub fetch: FetchStats,
}

impl VerifyReport {
    /// Whether nothing found is an error.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity() < Severity::Error)
    }

    /// Whether every file was read, or found to be missing. Where the server or the network failed,
    /// another call may find more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding, Finding::Unreadable { .. }))
    }
}
