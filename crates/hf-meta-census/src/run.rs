//! Runs: reads the incomplete parts of a census, and describes what a run did.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::mem::take;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::error::{CensusError, Result};
use super::manifest::{ListedRepo, Manifest};
use super::part::{CensusPart, PendingPart, StoredPart};
use super::read_repo::RepoRead;
use super::reads::{ProgressReporter, Reads};
use super::row::CensusRow;
use super::storage::Storage;
use super::stored_header::short_hash;
use super::table::{TableRow, each_row, encode};
use hf_meta_count::count::RuleSet;

/// The number of parts of an earlier run to check concurrently.
const MAX_CONCURRENT_CHECKS: usize = 32;

/// The number of rows of a census by status and error code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusSummary {
    /// The number of rows by status and error code; the code of rows without an error is empty.
    pub rows: BTreeMap<(String, String), usize>,
    /// The number of rows in parts that existed before.
    pub already_read: usize,
    /// The number of rows that were copied from an earlier census.
    pub carried_over: usize,
    /// The number of rows that [`Census::count`](crate::Census::count) left unchanged because their headers are not stored.
    pub not_recounted: usize,
}

impl CensusSummary {
    /// Returns the number of rows.
    pub fn repos(&self) -> usize {
        self.rows.values().sum()
    }

    /// Returns the number of rows with the status `failed`.
    pub fn failed(&self) -> usize {
        let failed = self.rows.iter().filter(|((status, _), _)| status == "failed");
        failed.map(|(_, rows)| rows).sum()
    }

    pub(super) fn add_rows(&mut self, rows: &[CensusRow]) {
        for row in rows {
            let kind = row.error_kind.clone().unwrap_or_default();
            *self.rows.entry((row.status.clone(), kind)).or_default() += 1;
        }
    }
}

/// A run that reads the repositories of some parts.
pub(super) struct ReadRun<'a> {
    storage: &'a Storage,
    /// `None` if only existing parts are read.
    manifest: Option<&'a Manifest>,
    previous: Option<PreviousCensus>,
    progress: ProgressReporter,
    /// The parts to start.
    incomplete: VecDeque<CensusPart>,
    /// The repositories of the last started part that have not been started, with the number of the part.
    repos: VecDeque<(usize, ListedRepo)>,
    /// The started parts, by number.
    pending: BTreeMap<usize, PendingPart>,
    /// The complete parts.
    pub(super) summary: CensusSummary,
}

impl<'a> ReadRun<'a> {
    /// Starts a run that reads the repositories without a row in some parts; without a manifest, those that failed, too.
    pub(super) async fn start(
        storage: &'a Storage,
        manifest: Option<&'a Manifest>,
        parts: &[CensusPart],
        existing: &BTreeSet<CensusPart>,
        previous: Option<PreviousCensus>,
        progress: ProgressReporter,
    ) -> Result<Self> {
        let (mut total, mut incomplete) = (0, VecDeque::new());
        let mut summary = CensusSummary::default();
        let checks = stream::iter(parts.to_vec()).map(|part| {
            let exists = existing.contains(&part);
            async move {
                let found =
                    if exists { part.find(storage, manifest.is_some()).await? } else { None };
                Ok::<_, CensusError>((part, found))
            }
        });
        let mut checks = checks.buffered(MAX_CONCURRENT_CHECKS);
        while let Some((part, stored)) = checks.try_next().await? {
            let unread = match &stored {
                Some(stored) => stored.unread(manifest.is_none()).count(),
                None => manifest.map_or(0, |manifest| manifest.part_len(part.number)),
            };
            total += unread;
            if unread > 0 {
                incomplete.push_back(part);
            } else if let Some(stored) = stored {
                summary.already_read += stored.rows.len();
                summary.add_rows(&stored.rows);
            }
        }
        progress.update(|progress| progress.total = total);
        let (repos, pending) = Default::default();
        Ok(Self { storage, manifest, previous, progress, incomplete, repos, pending, summary })
    }

    /// Reads the repositories of all incomplete parts, until a file cannot be written, an outage ends the run, or it is
    /// stopped.
    pub(super) async fn read_parts(&mut self, mut reads: Reads) -> Result<()> {
        loop {
            while reads.has_room()
                && let Some((part, repo)) = self.next().await?
            {
                reads.start(part, repo);
            }
            let Some(done) = reads.next().await? else { return Ok(()) };
            for (part, read) in done {
                self.add(part, read).await?;
            }
        }
    }

    /// Returns the next repository and the number of its part.
    async fn next(&mut self) -> Result<Option<(usize, ListedRepo)>> {
        while self.repos.is_empty() {
            let Some(part) = self.incomplete.pop_front() else { return Ok(None) };
            self.start_part(part).await?;
        }
        Ok(self.repos.pop_front())
    }

    async fn start_part(&mut self, part: CensusPart) -> Result<()> {
        let number = part.number;
        let (storage, manifest) = (self.storage, self.manifest);
        let stored = part.find(storage, manifest.is_some()).await?;
        let (mut pending, mut repos) = match (stored, manifest) {
            (Some(stored), _) => PendingPart::resume(storage, stored, manifest.is_none()).await?,
            (None, Some(manifest)) => {
                let repos = manifest.part(number)?;
                (PendingPart::new(part, manifest.parts(), &repos)?, repos)
            }
            (None, None) => return Ok(()),
        };
        let already_read = pending.content.rows.len();
        self.summary.already_read += already_read;
        if let Some(previous) = &self.previous {
            repos = previous.carry_over(&mut pending, repos).await?;
            let carried_over = pending.content.rows.len() - already_read;
            self.summary.carried_over += carried_over;
            self.progress.update(|progress| progress.done += carried_over);
        }
        self.repos = repos.into_iter().map(|repo| (number, repo)).collect();
        self.pending.insert(number, pending);
        self.store_if_complete(number).await
    }

    async fn add(&mut self, part: usize, read: RepoRead) -> Result<()> {
        let Some(pending) = self.pending.get_mut(&part) else { return Ok(()) };
        self.progress.add(&read.row);
        pending.add(read.row, read.headers)?;
        self.store_if_complete(part).await
    }

    async fn store_if_complete(&mut self, part: usize) -> Result<()> {
        if let Entry::Occupied(pending) = self.pending.entry(part)
            && pending.get().missing == 0
        {
            let rows = pending.remove().write(self.storage).await?;
            self.summary.add_rows(&rows);
        }
        Ok(())
    }

    /// Stores the complete rows of incomplete parts. Returns the number of these parts.
    pub(super) async fn store_incomplete(&mut self) -> Result<usize> {
        let missing = self.incomplete.len() + self.pending.len();
        for pending in take(&mut self.pending).into_values() {
            pending.write(self.storage).await?;
        }
        Ok(missing)
    }
}

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
    pub(super) async fn open(target: &str) -> Result<Self> {
        let storage = Storage::open_existing(target)?;
        let parts: Vec<_> = CensusPart::list_existing(&storage).await?.into_iter().collect();
        let mut rows = HashMap::new();
        for (at, part) in parts.iter().enumerate() {
            let stored = part.read(&storage).await?;
            if stored.footer.has_current_columns() {
                let copied = stored.rows.iter().filter(|row| can_carry_over(row));
                rows.extend(copied.map(|row| (key(&row.repo, row.commit.as_deref()), at)));
            }
        }
        Ok(Self { storage, parts, rows })
    }

    /// Copies the rows and headers of all repositories with an unchanged commit. Returns the other repositories.
    pub(super) async fn carry_over(
        &self,
        pending: &mut PendingPart,
        mut repos: Vec<ListedRepo>,
    ) -> Result<Vec<ListedRepo>> {
        let keys = repos.iter().map(|repo| key(&repo.repo, repo.commit.as_deref()));
        let parts: BTreeSet<_> = keys.filter_map(|key| self.rows.get(&key)).collect();
        for part in parts.into_iter().filter_map(|part| self.parts.get(*part)) {
            let stored = part.read(&self.storage).await?;
            let copied = stored.rows.into_iter().filter(can_carry_over).filter_map(|row| {
                let is_same =
                    |repo: &ListedRepo| repo.repo == row.repo && repo.commit == row.commit;
                let at = repos.iter().position(is_same)?;
                Some(row.carried_over(repos.swap_remove(at)))
            });
            let copied = StoredPart { rows: copied.collect(), ..stored };
            pending.copy_rows(&self.storage, copied).await?;
        }
        pending.missing = repos.len();
        Ok(repos)
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

/// The folder with runs.
const RUNS: &str = "runs";

/// A run that read or counted repositories of a census.
///
/// The fields are the columns of the `runs` table. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CensusRun {
    /// `read`, `retry` or `count`.
    pub action: String,
    /// The URL of the Hub.
    pub endpoint: String,
    /// The time at which the run started.
    pub started_at: i64,
    /// The time at which the run ended.
    pub ended_at: i64,
    /// The program, its version and its commit.
    pub tool: String,
    /// The version of the counting rules, such as `hf-meta 1`.
    pub rules: String,
    /// The version of the table columns: [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).
    pub schema_version: i64,
    /// The number of the slice.
    pub slice: i64,
    /// The number of slices.
    pub slices: i64,
    /// The number of repositories that were read, copied or counted.
    pub repos: i64,
    /// The number of repositories that failed.
    pub failed: i64,
    /// The number of HTTP requests, including redirects and retries.
    pub requests: i64,
    /// The number of bytes read.
    pub bytes_read: i64,
    /// The share of the Hub's quota that the run was allowed to use.
    pub quota_share: f64,
    /// The time during which the run waited for the quota, in milliseconds.
    pub waited_ms: i64,
    /// The error that ended the run.
    pub error: Option<String>,
}

impl TableRow for CensusRun {
    const NAME: &str = "The table `runs`";
    const KEY: &[&str] = &["started_at", "slice"];
}

/// Returns all runs of a census, in the order of their time.
pub(super) async fn read_runs(storage: &Storage) -> Result<Vec<CensusRun>> {
    let mut runs = Vec::new();
    for name in storage.list(RUNS).await? {
        let name = format!("{RUNS}/{name}");
        let Some(file) = storage.read(&name).await? else { continue };
        for run in each_row::<CensusRun, _>(&name, file, None)? {
            runs.push(run?);
        }
    }
    runs.sort_by_key(|run| (run.started_at, run.slice));
    Ok(runs)
}

impl CensusRun {
    /// Writes the run to a separate file. A run that did nothing is not written.
    pub(super) async fn write(self, storage: &Storage) -> Result<()> {
        if self.repos == 0 && self.requests == 0 {
            return Ok(());
        }
        // Slices may start at the same time.
        let unique = RandomState::new().hash_one(self.started_at);
        let file = format!("{RUNS}/{}-{unique:016x}.parquet", self.started_at);
        storage.write(&file, encode(&file, &[self], &())?).await
    }
}

/// Returns the time in milliseconds since 1970.
pub(super) fn unix_millis() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
