//! The JSON form of a verdict.

use serde::ser::{Serialize, Serializer};

use super::FetchDocument;
use crate::hub::CommitSha;
use crate::report::verify::VerifyReport;
use crate::report::{Finding, Severity};

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document {
            source: &self.source,
            commit: self.commit.as_ref(),
            valid: self.is_valid(),
            complete: self.is_complete(),
            files: self.files,
            valid_files: self.valid_files,
            tensors: self.tensors,
            findings: self.findings.iter().map(FindingDocument::from).collect(),
            cost: self.cost.into(),
        }
        .serialize(serializer)
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    valid: bool,
    complete: bool,
    files: usize,
    valid_files: usize,
    tensors: u64,
    findings: Vec<FindingDocument<'a>>,
    cost: FetchDocument,
}

/// A finding with what its kind means, for readers that do not know all kinds.
#[derive(serde::Serialize)]
struct FindingDocument<'a> {
    severity: Severity,
    message: String,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl<'a> From<&'a Finding> for FindingDocument<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self { severity: finding.severity(), message: finding.to_string(), finding }
    }
}
