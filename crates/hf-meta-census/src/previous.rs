//! Carries over rows of an earlier census.

use std::collections::{BTreeMap, HashMap};

use super::{CensusError, ListedRepo, StoredHeader};

use super::layout_digest::short_hash;
use super::part::{CensusPart, PendingPart};
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use hf_meta::count::RuleSet;

/// Locates each row of an earlier census.
///
/// Takes about 32 bytes per row: repositories are identified by the first 16 bytes of a hash of name and commit.
#[derive(Debug)]
pub(super) struct PreviousCensus {
    storage: Storage,
    parts: Vec<CensusPart>,
    /// The indexes in `parts`.
    rows: HashMap<[u8; 16], usize>,
}

impl PreviousCensus {
    /// Reads the names of all rows.
    pub(super) async fn open(target: &str) -> Result<Self, CensusError> {
        let storage = Storage::existing(target)?;
        let parts: Vec<_> = CensusPart::list_existing(&storage).await?.into_iter().collect();
        let mut rows = HashMap::new();
        for (at, part) in parts.iter().enumerate() {
            let (read, _) = part.read(&storage).await?;
            rows.extend(
                read.iter()
                    .filter(|row| can_carry_over(row))
                    .filter_map(|row| Some((key(&row.repo, row.commit.as_deref())?, at))),
            );
        }
        Ok(Self { storage, parts, rows })
    }

    /// Copies the rows and headers of all repositories with an unchanged commit.
    pub(super) async fn carry_over(&self, pending: &mut PendingPart) -> Result<(), CensusError> {
        let mut by_part = BTreeMap::<usize, Vec<(usize, ListedRepo)>>::new();
        for (at, repo) in std::mem::take(&mut pending.repos) {
            let part = key(&repo.repo, repo.commit.as_deref()).and_then(|key| self.rows.get(&key));
            let repos = part.map_or(&mut pending.repos, |part| by_part.entry(*part).or_default());
            repos.push((at, repo));
        }
        for (part, repos) in by_part {
            let Some(part) = self.parts.get(part) else { continue };
            let (rows, _) = part.read(&self.storage).await?;
            let rows: HashMap<_, _> = rows.iter().map(|row| (&row.repo, row)).collect();
            let mut copied = HashMap::new();
            for (at, repo) in repos {
                // The earlier census may have changed since it was opened.
                match rows.get(&repo.repo).filter(|row| row.commit == repo.commit) {
                    Some(row) => {
                        copied.insert(repo.repo.clone(), row.commit.clone().unwrap_or_default());
                        pending.rows.push((at, row.carried_over(repo)));
                    }
                    None => pending.repos.push((at, repo)),
                }
            }
            let is_copied =
                |header: &StoredHeader| copied.get(&header.repo) == Some(&header.commit);
            part.copy_headers(&self.storage, &mut pending.headers, is_copied).await?;
        }
        Ok(())
    }
}

/// Returns whether neither a retry nor the current rules could change a row.
fn can_carry_over(row: &CensusRow) -> bool {
    matches!(&*row.status, "ok" | "no_weights" | "several_sets" | "malformed")
        && row.rules == RuleSet::CURRENT.to_string()
        && row.schema_version == SCHEMA_VERSION
}

fn key(repo: &str, commit: Option<&str>) -> Option<[u8; 16]> {
    Some(short_hash(&format!("{repo}\n{}", commit?)))
}
