//! The report of a verification.

pub(crate) mod arithmetic;
pub mod numbering;
pub mod tying;

use serde::Serialize;

use crate::CommitSha;
use crate::report::FetchStats;
use crate::report::{Finding, Severity};

/// The result of verifying every file of a checkpoint, returned by `Model::verify`.
///
/// ```no_run
/// # async fn example() -> Result<(), hf_meta_format::Error> {
/// use hf_meta_format::report::Severity;
///
/// let client = hf_meta_format::Client::builder().build()?;
/// let report = client.model("bigscience/bloom").verify().await?;
/// for finding in report.findings.iter().filter(|f| f.severity() == Severity::Error) {
///     println!("{finding}");
/// }
/// assert!(report.is_valid() && report.is_complete());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The repository, URL or path that was read, as formatted by `Source`.
    pub source: String,
    /// The commit of the files, or `None` if the source has no commits.
    pub commit: Option<CommitSha>,
    /// The number of weight files that should exist.
    pub files: usize,
    /// The number of weight files with a valid header.
    pub valid_files: usize,
    /// The number of tensors in the valid files.
    pub tensors: u64,
    /// The parameter count according to each source.
    pub parameters: ParameterSources,
    /// All findings, grouped by kind.
    pub findings: Vec<Finding>,
    /// The requests, bytes and time that the verification took.
    pub fetch: FetchStats,
}

/// The parameter count of a model according to each source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ParameterSources {
    /// The count over all tensors, or `None` if a file is missing or invalid.
    pub counted: Option<u64>,
    /// `true` if the count is exact, or `None` if there is no count.
    pub exact: Option<bool>,
    /// The `total_parameters` declared by the index, or by the metadata of a single file.
    pub declared: Option<u64>,
    /// The count computed from `config.json`, or `None` if the architecture is not supported.
    pub config: Option<u64>,
    /// The count that the Hub reports, or `None` if it reports none for these files.
    pub hub: Option<u64>,
}

impl VerifyReport {
    /// Returns whether there are no errors. Warnings and notes are allowed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity() < Severity::Error)
    }

    /// Returns whether every file could be read. If not, because the server or the network failed, verifying again
    /// may reveal more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding, Finding::Unreadable { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_file_is_not_complete() {
        let unreadable = Finding::Unreadable { file: "a".to_owned(), reason: "timeout".to_owned() };
        let cases = [
            (vec![], true, true),
            (vec![Finding::NotPinned], true, true),
            (vec![Finding::CountOverflow], false, true),
            (vec![Finding::CountOverflow, unreadable], false, false),
        ];
        for (findings, is_valid, is_complete) in cases {
            let report = VerifyReport {
                source: "org/name".to_owned(),
                commit: None,
                files: 1,
                valid_files: 1,
                tensors: 1,
                parameters: ParameterSources::default(),
                findings,
                fetch: FetchStats::default(),
            };
            assert_eq!((report.is_valid(), report.is_complete()), (is_valid, is_complete));
        }
    }
}
