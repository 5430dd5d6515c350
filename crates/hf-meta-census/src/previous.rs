//! Carries over rows of an earlier census.

use std::collections::{BTreeMap, HashMap};

use super::CensusError;
use super::layout_digest::short_hash;
use super::part::{CensusPart, PendingPart};
use super::row::CensusRow;
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
        let storage = Storage::open_existing(target)?;
        let parts: Vec<_> = CensusPart::list_existing(&storage).await?.into_iter().collect();
        let mut rows = HashMap::new();
        for (at, part) in parts.iter().enumerate() {
            let (footer, read) = part.read(&storage).await?;
            let copied =
                read.iter().filter(|row| footer.has_current_columns() && can_carry_over(row));
            rows.extend(copied.map(|row| (key(&row.repo, row.commit.as_deref()), at)));
        }
        Ok(Self { storage, parts, rows })
    }

    /// Copies the rows and headers of all repositories with an unchanged commit.
    pub(super) async fn carry_over(&self, pending: &mut PendingPart) -> Result<(), CensusError> {
        let mut by_part = BTreeMap::<usize, HashMap<_, _>>::new();
        for repo in std::mem::take(&mut pending.repos) {
            match self.rows.get(&key(&repo.repo, repo.commit.as_deref())) {
                Some(part) => {
                    let name = (repo.repo.clone(), repo.commit.clone());
                    by_part.entry(*part).or_default().insert(name, repo);
                }
                None => pending.repos.push(repo),
            }
        }
        for (part, mut repos) in by_part {
            let Some(part) = self.parts.get(part) else { continue };
            let (footer, rows) = part.read(&self.storage).await?;
            let copy = |row: CensusRow| {
                let repo = repos.remove(&(row.repo.clone(), row.commit.clone()))?;
                Some(row.carried_over(repo))
            };
            pending.copy_rows(&self.storage, part, (&footer, rows), copy).await?;
            // The earlier census may have changed since it was opened.
            pending.repos.extend(repos.into_values());
        }
        Ok(())
    }
}

/// Returns whether neither a retry nor the current rules could change a row.
fn can_carry_over(row: &CensusRow) -> bool {
    matches!(
        &*row.status,
        "ok" | "empty" | "no_weights" | "several_sets" | "malformed" | "too_large"
    ) && row.commit.is_some()
        && row.rules == RuleSet::CURRENT.to_string()
}

fn key(repo: &str, commit: Option<&str>) -> [u8; 16] {
    short_hash(&format!("{repo}\n{}", commit.unwrap_or_default()))
}
