//! The values of a report that its JSON can be read back into.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CountReport, FetchStats};
use crate::CommitSha;
use crate::formats::{Dtype, RepoPath};

/// The main values of a [`CountReport`], which can be read from the JSON of the command, the badge service, the
/// Python module, or `serde_json::to_string`.
///
/// ```
/// # let json = r#"{"source":"gpt2","format":"safetensors","sharded":false,"parameterCount":{"F32":137022720},
/// #     "parameterTotal":137022720,"parameterExact":true,"elementTotal":137022720,"byteTotal":548090880,
/// #     "filepaths":["model.safetensors"],"fetch":{"requests":4,"bytesRead":14283,"weightBytes":548105171,
/// #     "seconds":0.1}}"#;
/// let summary: hf_meta_format::CountSummary = serde_json::from_str(json)?;
/// assert_eq!(summary.parameter_total, 137_022_720);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CountSummary {
    /// The repository, URL or path that was read.
    pub source: String,
    /// The commit that all files belong to, if the source has commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSha>,
    /// The name of the format, such as `safetensors`.
    pub format: String,
    /// `true` if the weights are split across several files.
    pub sharded: bool,
    /// The parameters per dtype.
    pub parameter_count: BTreeMap<Dtype, u64>,
    /// The parameters of all dtypes.
    pub parameter_total: u64,
    /// `false` if the size of some modules could not be derived.
    pub parameter_exact: bool,
    /// The elements of all tensors as stored.
    pub element_total: u64,
    /// The size of all tensors in bytes.
    pub byte_total: u64,
    /// The paths of all files that were read, starting with the index if there is one.
    pub filepaths: Vec<RepoPath>,
    /// The requests, bytes and time that the call took.
    pub fetch: FetchStats,
}

impl From<&CountReport> for CountSummary {
    fn from(report: &CountReport) -> Self {
        let (count, totals) = (&report.parameter_count, report.parameter_count.totals());
        Self {
            source: report.source.clone(),
            commit: report.commit.clone(),
            format: report.format.to_owned(),
            sharded: report.sharded,
            parameter_count: count.iter().map(|(dtype, count)| (dtype.clone(), count)).collect(),
            parameter_total: count.total(),
            parameter_exact: report.is_exact(),
            element_total: totals.elements,
            byte_total: totals.bytes,
            filepaths: report.filepaths.clone(),
            fetch: report.fetch,
        }
    }
}
