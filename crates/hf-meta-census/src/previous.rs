//! Carries over rows of an earlier census.

use std::collections::{BTreeMap, HashMap};

use super::part::CensusPart;
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use super::table_file::HeaderWriter;
use super::{CensusError, ListedRepo};
use hf_meta::count::RuleSet;

/// Locates each row of an earlier census: its part, and its index in the part.
///
/// Takes 32 bytes per row: repositories are identified by the first 16 bytes of a hash of name and commit.
#[derive(Debug)]
pub(super) struct PreviousCensus {
    storage: Storage,
    parts: Vec<CensusPart>,
    rows: HashMap<[u8; 16], (u32, u32)>,
}

impl PreviousCensus {
    /// Reads the names of all rows.
    pub(super) async fn open(target: &str) -> Result<Self, CensusError> {
        let storage = Storage::existing(target)?;
        let parts = CensusPart::list_existing(&storage).await?;
        let mut rows = HashMap::new();
        for (part, name) in (0_u32..).zip(&parts) {
            for (at, row) in (0_u32..).zip(name.read(&storage).await?.rows) {
                if let Some(key) = row_key(&row) {
                    rows.insert(key, (part, at));
                }
            }
        }
        Ok(Self { storage, parts, rows })
    }

    /// Returns the rows of all repositories with an unchanged commit, and copies their headers. The others remain in
    /// `repos`.
    pub(super) async fn carry_over(
        &self,
        repos: &mut Vec<(usize, ListedRepo)>,
        headers: &mut HeaderWriter,
    ) -> Result<Vec<(usize, CensusRow)>, CensusError> {
        let mut by_part = BTreeMap::<u32, Vec<(u32, usize, ListedRepo)>>::new();
        let mut others = Vec::new();
        for (at, repo) in std::mem::take(repos) {
            match repo_key(&repo).and_then(|key| self.rows.get(&key)) {
                Some((part, row)) => by_part.entry(*part).or_default().push((*row, at, repo)),
                None => others.push((at, repo)),
            }
        }
        *repos = others;
        let mut carried = Vec::new();
        for (part, found) in by_part {
            let Some(name) = self.parts.get(part as usize) else { continue };
            let rows = name.read(&self.storage).await?.rows;
            let mut commits = HashMap::new();
            for (row, at, repo) in found {
                match rows
                    .get(row as usize)
                    .filter(|row| row.repo == repo.repo && row.commit == repo.commit)
                {
                    Some(row) => {
                        commits.insert(repo.repo.clone(), row.commit.clone().unwrap_or_default());
                        carried.push((at, row.carried_over(repo)));
                    }
                    None => repos.push((at, repo)),
                }
            }
            for header in name.read_headers(&self.storage).await? {
                let header = header?;
                if commits.get(&header.repo) == Some(&header.commit) {
                    headers.write(header)?;
                }
            }
        }
        Ok(carried)
    }
}

/// Returns the key of a row; `None` if the row cannot be carried over, because a retry or the current rules could
/// change it.
fn row_key(row: &CensusRow) -> Option<[u8; 16]> {
    let is_final = matches!(&*row.status, "ok" | "no_weights" | "several_sets" | "malformed");
    let is_current =
        row.rules == RuleSet::CURRENT.to_string() && row.schema_version == SCHEMA_VERSION;
    let commit = row.commit.as_deref().filter(|_| is_final && is_current)?;
    Some(key(&row.repo, commit))
}

fn repo_key(repo: &ListedRepo) -> Option<[u8; 16]> {
    Some(key(&repo.repo, repo.commit.as_deref()?))
}

fn key(repo: &str, commit: &str) -> [u8; 16] {
    super::layout_digest::short_hash(&format!("{repo}\n{commit}"))
}
