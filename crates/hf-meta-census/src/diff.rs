//! Compares two censuses.

use itertools::{EitherOrBoth, Itertools};
use serde::Serialize;
use serde_json::{Map, Value};

use super::CensusError;
use super::layout_digest::hexadecimal;
use super::pack::{order, sorted_rows};
use super::row::CensusRow;
use super::table::is_digest;

/// A difference between two censuses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CensusChange {
    /// The kind of the difference.
    pub change: ChangeKind,
    /// The repository.
    pub repo: String,
    /// The column whose value has changed; `None` if the whole row was added or removed.
    pub column: Option<String>,
    /// The old value. Digests are hexadecimal.
    pub before: Value,
    /// The new value.
    pub after: Value,
}

/// The kind of a difference between two censuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The repository is only in the new census.
    Added,
    /// The repository is only in the old census.
    Removed,
    /// The value of a column has changed.
    Changed,
}

impl CensusChange {
    fn whole_row(change: ChangeKind, repo: String) -> Self {
        Self { change, repo, column: None, before: Value::Null, after: Value::Null }
    }

    /// Compares all columns of two rows.
    pub(super) fn between(
        before: &CensusRow,
        after: &CensusRow,
    ) -> impl Iterator<Item = Self> + use<> {
        let (repo, mut after) = (before.repo.clone(), values(after));
        values(before).into_iter().filter_map(move |(column, before)| {
            let after = after.remove(&column).unwrap_or_default();
            let (change, repo) = (ChangeKind::Changed, repo.clone());
            (before != after).then_some(Self { change, repo, column: Some(column), before, after })
        })
    }
}

/// Returns the values of a row by column.
fn values(row: &CensusRow) -> Map<String, Value> {
    // A row is an object with text as keys, so that it is always valid JSON.
    let Ok(Value::Object(mut values)) = serde_json::to_value(row) else { return Map::new() };
    values.iter_mut().filter(|(name, _)| is_digest(name)).for_each(|(_, value)| to_text(value));
    values
}

/// Converts the bytes of a digest, or of a list of digests, to text.
fn to_text(value: &mut Value) {
    let Value::Array(items) = value else { return };
    match items.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Option<Vec<_>>>() {
        Some(bytes) if !bytes.is_empty() => *value = hexadecimal(&bytes).into(),
        _ => items.iter_mut().for_each(to_text),
    }
}

/// Calls `report` for each difference between two censuses, sorted by repository. Each census is a folder, a URL, or a
/// file written by [`Census::pack`](super::Census::pack).
///
/// # Errors
///
/// Returns an error if a census cannot be read.
pub async fn diff(
    before: &str,
    after: &str,
    mut report: impl FnMut(CensusChange),
) -> Result<(), CensusError> {
    let (before, after) = (sorted_rows(before).await?, sorted_rows(after).await?);
    for rows in before.merge_join_by(after, order) {
        match rows {
            EitherOrBoth::Both(before, after) => {
                CensusChange::between(&before?, &after?).for_each(&mut report);
            }
            EitherOrBoth::Left(row) => {
                report(CensusChange::whole_row(ChangeKind::Removed, row?.repo));
            }
            EitherOrBoth::Right(row) => {
                report(CensusChange::whole_row(ChangeKind::Added, row?.repo));
            }
        }
    }
    Ok(())
}
