//! The report of a check of every file.

pub(crate) mod numbering;
pub(crate) mod tying;

use crate::hub::CommitSha;
use crate::report::FetchStats;
use crate::report::{Finding, Severity};

/// The report of a check of every file of a checkpoint, from `Model::verify`.
///
/// ```no_run
/// # #[cfg(feature = "client")]
/// # async fn example() -> Result<(), hf_meta::Error> {
/// use hf_meta::report::Severity;
///
/// let client = hf_meta::Client::builder().build()?;
/// let report = client.model("bigscience/bloom").verify().await?;
/// for finding in report.findings.iter().filter(|f| f.severity() == Severity::Error) {
///     println!("{finding}");
/// }
/// assert!(report.is_valid() && report.is_complete());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The repository, URL or path that was read, in the form of `Source`.
    pub source: String,
    /// The commit of the files; `None` if the source has no commits.
    pub commit: Option<CommitSha>,
    /// The number of files of weights that should exist.
    pub files: usize,
    /// The number of those files whose header is valid.
    pub valid_files: usize,
    /// The number of tensors in the valid files.
    pub tensors: u64,
    /// All findings, grouped by kind.
    pub findings: Vec<Finding>,
    /// Requests, bytes and time of the check.
    pub fetch: FetchStats,
}

impl VerifyReport {
    /// Returns whether no finding is an error.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity() < Severity::Error)
    }

    /// Returns whether every file was checked. If the server or the network failed, a second check may
    /// find more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding, Finding::Unreadable { .. }))
    }
}
