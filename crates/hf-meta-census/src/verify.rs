//! Reads a random sample of a census again and compares the counts.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};

use super::CensusError;
use super::diff::CensusChange;
use super::layout_digest::short_hash;
use super::pack::for_each_part;
use super::read_repo::{MAX_LARGE_READS, read_again};
use super::row::CensusRow;
use hf_meta::{Client, LargeCallLimit};

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
) -> Result<(usize, Vec<CensusChange>), CensusError> {
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
