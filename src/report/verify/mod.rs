//! The report of a check of every file.

pub(crate) mod arithmetic;
pub(crate) mod numbering;
pub(crate) mod tying;

use serde::Serialize;

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
    /// The number of parameters by each source that gives one.
    pub parameters: ParameterFigures,
    /// All findings, grouped by kind.
    pub findings: Vec<Finding>,
    /// Requests, bytes and time of the check.
    pub fetch: FetchStats,
}

/// The number of parameters of a model, by each source that gives one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ParameterFigures {
    /// The count of all tensors; `None` if a file is missing or invalid.
    pub counted: Option<u64>,
    /// True if the count is certain; `None` without a count.
    pub exact: Option<bool>,
    /// `total_parameters` of the index, or of the metadata of a single file.
    pub declared: Option<u64>,
    /// The arithmetic of `config.json`; `None` if the architecture is not known.
    pub config: Option<u64>,
    /// The figure that the Hub shows; `None` if it shows none, or has none for these files.
    pub hub: Option<u64>,
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
                parameters: ParameterFigures::default(),
                findings,
                fetch: FetchStats::default(),
            };
            assert_eq!((report.is_valid(), report.is_complete()), (is_valid, is_complete));
        }
    }
}
