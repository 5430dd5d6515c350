//! The JSON form of a verification report.

use serde::ser::{Serialize, Serializer};

use crate::CommitSha;
use crate::report::verify::{ParameterSources, VerifyReport};
use crate::report::{FetchStats, Finding};

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        VerifyDocument {
            source: &self.source,
            commit: self.commit.as_ref(),
            valid: self.is_valid(),
            complete: self.is_complete(),
            files: self.files,
            valid_files: self.valid_files,
            tensors: self.tensors,
            parameters: self.parameters,
            findings: &self.findings,
            fetch: self.fetch,
        }
        .serialize(serializer)
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyDocument<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    valid: bool,
    complete: bool,
    files: usize,
    valid_files: usize,
    tensors: u64,
    parameters: ParameterSources,
    findings: &'a [Finding],
    fetch: FetchStats,
}
