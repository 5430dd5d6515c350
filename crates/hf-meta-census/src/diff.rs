//! Compares two censuses, or a random sample of one with the Hub.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use itertools::EitherOrBoth::{Both, Left, Right};
use itertools::Itertools;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::{CensusError, Result};
use super::pack::{for_each_part, order, sorted_rows};
use super::read_repo::{MAX_LARGE_READS, read_again};
use super::row::CensusRow;
use super::stored_header::{hexadecimal, short_hash};
use hf_meta::{Client, LargeCallLimit};

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
    fn between(before: &CensusRow, after: &CensusRow) -> impl Iterator<Item = Self> + use<> {
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
    let is_digest = |name: &str| name.ends_with("_digest") || name.ends_with("sha256");
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

/// Returns the differences between two censuses, sorted by repository. Each census is a folder, a URL, or a
/// file written by [`Census::pack`](super::Census::pack).
///
/// # Errors
///
/// Returns an error if a census cannot be read.
pub async fn diff(before: &str, after: &str) -> Result<Vec<CensusChange>> {
    let (before, after) = (sorted_rows(before).await?, sorted_rows(after).await?);
    let mut changes = Vec::new();
    for rows in before.merge_join_by(after, order) {
        match rows {
            Both(before, after) => changes.extend(CensusChange::between(&before?, &after?)),
            Left(row) => changes.push(CensusChange::whole_row(ChangeKind::Removed, row?.repo)),
            Right(row) => changes.push(CensusChange::whole_row(ChangeKind::Added, row?.repo)),
        }
    }
    Ok(changes)
}

/// The number of repositories that are read concurrently.
const MAX_CONCURRENT_READS: usize = 32;

/// Reads the weights of a random sample of a census again, at the same commits, and returns the number of repositories
/// in the sample and the differences. The census is a folder, a URL, or a packed file.
///
/// The sample has at most `repos` repositories with counts. It depends only on the census and the seed.
///
/// # Errors
///
/// Returns an error if the census cannot be read, or if the Hub or the network fails.
pub async fn verify(
    client: &Client,
    census: &str,
    repos: usize,
    seed: u64,
) -> Result<(usize, Vec<CensusChange>)> {
    let mut sample = BTreeMap::<[u8; 16], CensusRow>::new();
    for_each_part(census, |rows| {
        for row in rows.into_iter().filter(|row| row.path.is_some() && row.commit.is_some()) {
            sample.insert(short_hash(&format!("{seed}\n{}", row.repo)), row);
            if sample.len() > repos {
                sample.pop_last();
            }
        }
        Ok(())
    })
    .await?;
    let count = sample.len();
    let large = &LargeCallLimit::new(MAX_LARGE_READS);
    let reads = stream::iter(sample.into_values()).map(|row| async move {
        let found = read_again(client, &row, large).await?;
        Ok::<_, CensusError>(CensusChange::between(&row, &found).collect::<Vec<_>>())
    });
    let changes: Vec<_> = reads.buffered(MAX_CONCURRENT_READS).try_collect().await?;
    Ok((count, changes.into_iter().flatten().collect()))
}
