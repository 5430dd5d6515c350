//! The JSON form of a comparison.

use std::collections::BTreeMap;

use serde::ser::{Serialize, Serializer};

use super::{column, elements};
use crate::CommitSha;
use crate::formats::Dtype;
use crate::report::diff::{ChangeKind, Diff, DiffSide, TensorChange};

impl Serialize for Diff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DiffDocument {
            equal: self.is_empty(),
            before: DiffSideDocument::from(&self.before),
            after: DiffSideDocument::from(&self.after),
            removed: self.count(ChangeKind::Removed),
            added: self.count(ChangeKind::Added),
            reshaped: self.count(ChangeKind::Reshaped),
            retyped: self.count(ChangeKind::Retyped),
            moved: self.count(ChangeKind::Moved),
            unchanged: self.unchanged,
            changes: &self.changes,
        }
        .serialize(serializer)
    }
}

#[derive(serde::Serialize)]
struct DiffDocument<'a> {
    equal: bool,
    before: DiffSideDocument<'a>,
    after: DiffSideDocument<'a>,
    removed: u64,
    added: u64,
    reshaped: u64,
    retyped: u64,
    moved: u64,
    unchanged: u64,
    changes: &'a [TensorChange],
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct DiffSideDocument<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    files: usize,
    tensors: u64,
    parameter_count: BTreeMap<&'a Dtype, u64>,
    parameter_total: u64,
    element_count: BTreeMap<&'a Dtype, u64>,
    element_total: u64,
    byte_count: BTreeMap<&'a Dtype, u64>,
    byte_total: u64,
}

impl<'a> From<&'a DiffSide> for DiffSideDocument<'a> {
    fn from(side: &'a DiffSide) -> Self {
        let count = &side.parameter_count;
        Self {
            source: &side.source,
            commit: side.commit.as_ref(),
            files: side.files,
            tensors: count.totals().tensors,
            parameter_count: count.iter().collect(),
            parameter_total: count.total(),
            element_count: elements(count),
            element_total: count.totals().elements,
            byte_count: column(count, |row| row.bytes),
            byte_total: count.totals().bytes,
        }
    }
}
