//! Compares two censuses.

use std::collections::HashMap;
use std::path::Path;

use itertools::{Itertools, izip};

use super::part::CensusPart;
use super::row::CensusRow;
use super::storage::Storage;
use super::{CensusError, model_rows};

/// A difference between two censuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CensusChange {
    /// The repository is only in the new census.
    Added {
        /// The repository.
        repo: String,
    },
    /// The repository is only in the old census.
    Removed {
        /// The repository.
        repo: String,
    },
    /// The value of a column has changed.
    Changed {
        /// The repository.
        repo: String,
        /// The column: `status`, `error_kind`, `parameter_total`, `findings`, `commit` or `rules`.
        column: &'static str,
        /// The old value; empty if absent.
        before: String,
        /// The new value; empty if absent.
        after: String,
    },
}

/// The columns that are compared.
const COLUMNS: [&str; 6] =
    ["status", "error_kind", "parameter_total", "findings", "commit", "rules"];

/// The compared values of a row.
fn values(row: CensusRow) -> [String; 6] {
    let total = row.parameter_total.map(|total| total.to_string());
    let findings = row.findings.map(|findings| findings.join(" "));
    let [error, total, findings, commit] =
        [row.error_kind, total, findings, row.commit].map(Option::unwrap_or_default);
    [row.status, error, total, findings, commit, row.rules]
}

/// Calls `report` for each difference between two censuses. Each census is a folder, a URL, or a file written by
/// [`Census::pack`](super::Census::pack).
///
/// # Errors
///
/// Returns an error if a census cannot be read.
pub async fn diff(
    before: &str,
    after: &str,
    mut report: impl FnMut(CensusChange),
) -> Result<(), CensusError> {
    let mut old = HashMap::new();
    for_each_row(before, |row| drop(old.insert(row.repo.clone(), values(row)))).await?;
    for_each_row(after, |row| {
        let repo = row.repo.clone();
        let Some(before) = old.remove(&repo) else { return report(CensusChange::Added { repo }) };
        for (column, before, after) in izip!(COLUMNS, before, values(row)) {
            if before != after {
                report(CensusChange::Changed { repo: repo.clone(), column, before, after });
            }
        }
    })
    .await?;
    for repo in old.into_keys().sorted_unstable() {
        report(CensusChange::Removed { repo });
    }
    Ok(())
}

async fn for_each_row(
    census: &str,
    mut function: impl FnMut(CensusRow),
) -> Result<(), CensusError> {
    if Path::new(census).is_file() {
        return model_rows(Path::new(census))?.try_for_each(|row| row.map(&mut function));
    }
    let storage = Storage::open_existing(census)?;
    for part in CensusPart::list_existing(&storage).await? {
        part.read(&storage).await?.1.into_iter().for_each(&mut function);
    }
    Ok(())
}
