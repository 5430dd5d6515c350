//! The data that the page shows for a checkpoint.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::rows::{TableRow, TableRows};
use super::sets::SetRows;
use hf_meta::CommitSha;
use hf_meta::count::DtypeCount;
use hf_meta::formats::RepoPath;
use hf_meta::report::{CountReport, FetchStats};
use hf_meta_badge::MetricValues;

/// The maximum number of findings on the page.
const MAX_FINDINGS: usize = 10;

/// The data that the page shows for a checkpoint.
///
/// Its size is bounded for any checkpoint, except for the paths in `known_sets`.
#[derive(Clone, Debug)]
pub(crate) struct WeightsSummary {
    pub(super) values: MetricValues,
    pub(crate) commit: Option<CommitSha>,
    pub(super) totals: DtypeCount,
    /// The dtypes in descending order of size.
    pub(super) dtypes: TableRows,
    /// The number of weight files.
    pub(super) files: usize,
    /// The other sets of weights in the repository.
    pub(crate) known_sets: KnownSets,
    pub(super) findings: Vec<String>,
    /// The number of omitted findings.
    pub(super) more_findings: usize,
    pub(super) fetch: FetchStats,
}

/// The other sets of weights in the repository that are known from reading the checkpoint.
#[derive(Clone, Debug)]
pub(crate) enum KnownSets {
    /// The sets were listed to find the checkpoint.
    Listed(SetRows),
    /// The sets were not listed. `files` are the checkpoint's own files, which a listing would include, too.
    Unlisted { files: BTreeSet<RepoPath> },
}

impl WeightsSummary {
    pub(crate) fn from_report(report: &CountReport) -> Self {
        let count = &report.parameter_count;
        let mut dtypes: Vec<_> =
            count.rows().map(|(dtype, row)| TableRow::new(dtype.as_str(), row)).collect();
        dtypes.sort_by_key(|row| Reverse(row.bytes));
        let findings = report.findings.iter().take(MAX_FINDINGS);
        Self {
            values: MetricValues::from_report(report),
            commit: report.commit.clone(),
            totals: *count.totals(),
            dtypes: TableRows::from_rows(dtypes.into_iter()),
            files: report.files(),
            known_sets: match &report.other_sets {
                Some(sets) => KnownSets::Listed(SetRows::from_sets(sets)),
                None => KnownSets::Unlisted { files: report.filepaths.iter().cloned().collect() },
            },
            findings: findings.map(ToString::to_string).collect(),
            more_findings: report.findings.len().saturating_sub(MAX_FINDINGS),
            fetch: report.fetch,
        }
    }
}
