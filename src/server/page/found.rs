//! What the page tells of a set of weights.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::modules::largest;
use super::rows::{Row, Rows};
use super::sets::Sets;
use crate::badge::MetricValues;
use crate::count::DtypeCount;
use crate::formats::RepoPath;
use crate::hub::CommitSha;
use crate::report::tree::Tree;
use crate::report::{FetchStats, SafetensorsParseFromRepo};

/// The most findings that are told.
const MOST_FINDINGS: usize = 10;

/// What is told of a result: bounded in size, however large the result, but for the paths of its files.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(super) figures: MetricValues,
    pub(crate) commit: Option<CommitSha>,
    pub(super) totals: DtypeCount,
    /// The dtypes, the one of the most bytes first.
    pub(super) dtypes: Rows,
    /// The modules that they are mostly made of, with their elements as stored.
    pub(super) modules: Rows,
    /// The files of weights, in their order.
    pub(super) files: Rows,
    /// The sets of weights beside them.
    pub(crate) beside: Beside,
    pub(super) findings: Vec<String>,
    /// How many findings are left out.
    pub(super) more_findings: usize,
    pub(super) fetch: FetchStats,
}

/// What a result says of the other sets of weights that are there.
#[derive(Clone, Debug)]
pub(crate) enum Beside {
    /// They had to be listed.
    Listed(Sets),
    /// Nobody looked; those of a listing are the sets that these files are not.
    Unlisted(BTreeSet<RepoPath>),
}

impl Found {
    pub(crate) fn of(parsed: &SafetensorsParseFromRepo) -> Self {
        let facts = parsed.report();
        let count = parsed.parameter_count();
        let mut dtypes: Vec<_> =
            count.rows().map(|(dtype, row)| Row::new(dtype.as_str(), row)).collect();
        dtypes.sort_by_key(|row| Reverse(row.bytes));
        let files = parsed.files().map(|(path, header)| Row::of_file(path.as_str(), header));
        let findings = facts.findings.iter().take(MOST_FINDINGS);
        Self {
            figures: MetricValues::from_parsed(parsed),
            commit: facts.commit.clone(),
            totals: *count.totals(),
            dtypes: Rows::from_rows(dtypes.into_iter()),
            modules: Rows::from_rows(largest(Tree::new(parsed)).into_iter()),
            files: Rows::from_rows(files),
            beside: match &facts.other_sets {
                Some(sets) => Beside::Listed(Sets::of(sets)),
                None => Beside::Unlisted(parsed.report().filepaths.iter().cloned().collect()),
            },
            findings: findings.map(ToString::to_string).collect(),
            more_findings: facts.findings.len().saturating_sub(MOST_FINDINGS),
            fetch: facts.fetch,
        }
    }
}
