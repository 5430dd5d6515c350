//! What the page tells of a set of weights.

use std::cmp::Reverse;

use super::modules::largest;
use crate::badge::Figures;
use crate::hub::CommitSha;
use crate::parse::{Cost, SafetensorsParseFromRepo};
use crate::safetensors::{DtypeCount, SafetensorsFileHeader, clip};
use crate::tree::{Module, Tree};

/// The most rows of a table; a repo may have any number of files.
const MOST_ROWS: usize = 100;

/// The most findings that are told.
const MOST_FINDINGS: usize = 10;

/// What is told of a result: bounded in size, however large the result.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(super) figures: Figures,
    pub(super) commit: Option<CommitSha>,
    pub(super) totals: DtypeCount,
    /// The dtypes, the one of the most bytes first.
    pub(super) dtypes: Rows,
    /// The modules that they are mostly made of, with their elements as stored.
    pub(super) modules: Rows,
    /// The files of weights, in their order.
    pub(super) files: Rows,
    pub(super) findings: Vec<String>,
    /// How many findings are left out.
    pub(super) more_findings: usize,
    pub(super) cost: Cost,
}

/// The first rows of a table, and how many there are in all.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) all: usize,
}

/// A part of the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Parameters, or elements as stored.
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Found {
    pub(crate) fn of(parsed: &SafetensorsParseFromRepo) -> Self {
        let facts = parsed.facts();
        let count = parsed.parameter_count();
        let mut dtypes: Vec<_> =
            count.rows().map(|(dtype, row)| Row::new(dtype.as_str(), row)).collect();
        dtypes.sort_by_key(|row| Reverse(row.bytes));
        let files = parsed.files().map(|(path, header)| Row::of_file(path.as_str(), header));
        let findings = facts.findings.iter().take(MOST_FINDINGS);
        Self {
            figures: Figures::of(parsed),
            commit: facts.commit.clone(),
            totals: *count.totals(),
            dtypes: Rows::of(dtypes.into_iter()),
            modules: Rows::of(largest(Tree::of(parsed)).into_iter()),
            files: Rows::of(files),
            findings: findings.map(ToString::to_string).collect(),
            more_findings: facts.findings.len().saturating_sub(MOST_FINDINGS),
            cost: facts.cost,
        }
    }
}

impl Rows {
    fn of(mut rows: impl Iterator<Item = Row>) -> Self {
        let first: Vec<_> = rows.by_ref().take(MOST_ROWS).collect();
        Self { all: first.len() + rows.count(), rows: first }
    }
}

impl Row {
    fn new(name: &str, count: &DtypeCount) -> Self {
        Self { name: clip(name), count: count.parameters, bytes: count.bytes }
    }

    pub(super) fn of_module(module: &Module) -> Self {
        Self { name: clip(&module.name), count: module.elements, bytes: module.bytes }
    }

    fn of_file(path: &str, header: &SafetensorsFileHeader) -> Self {
        Self::new(path, header.parameter_count().totals())
    }
}
