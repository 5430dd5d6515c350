//! The JSON form of a verification report.

use serde::ser::{Serialize, Serializer};

use super::FetchDocument;
use crate::hub::CommitSha;
use crate::report::Finding;
use crate::report::verify::VerifyReport;

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
            findings: &self.findings,
            cost: self.cost.into(),
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
    findings: &'a [Finding],
    cost: FetchDocument,
}
