//! The census of a manifest: parts of rows in a folder or an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, StreamExt, TryStreamExt};

use super::part::CensusPart;
use super::previous::PreviousCensus;
use super::read_limits::ReadLimits;
use super::read_repo::read_repo;
use super::row::CensusRow;
use super::storage::Storage;
use super::table_file::HeaderWriter;
use super::{CensusError, ListedRepo, Manifest, StoredHeader};
use crate::client::{Client, ResultOrder};

/// The parts that are read at once. Several are, so that one slow repository does not delay all others.
const PARTS_AT_ONCE: usize = 8;

/// The parts of an earlier run that are read at once.
const CHECKS_AT_ONCE: usize = 32;

/// A census: the rows and headers of repositories, in a local folder or an object store.
///
/// Repositories are read in parts of 256, and a part appears at once, when all its repositories were read. So a census
/// that was interrupted continues with the parts that are missing, and several processes can each read a slice.
///
/// ```no_run
/// use hf_meta::census::{Census, Manifest};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = hf_meta::Client::builder().user_agent("statistics/1.0 (me@example.org)").build()?;
/// let manifest = Manifest::open("repos.parquet".as_ref(), None)?;
/// let summary = Census::create(client, "census")?.read(&manifest).await?;
/// println!("{} repositories, {} failed", summary.repos(), summary.failed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Census {
    pub(super) client: Client,
    pub(super) storage: Storage,
    pub(super) jobs: usize,
    slice: (usize, usize),
    previous: Option<String>,
    on_progress: Option<OnCensusProgress>,
}

#[derive(Clone)]
struct OnCensusProgress(Arc<dyn Fn(CensusProgress) + Send + Sync>);

impl fmt::Debug for OnCensusProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnCensusProgress")
    }
}

/// The progress of a census, in repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusProgress {
    /// Repositories that were read, or carried over.
    pub done: usize,
    /// Repositories to read, without those of parts that exist.
    pub total: usize,
    /// Repositories that failed.
    pub failed: usize,
}

/// The numbers of rows of a census by status and kind of error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusSummary {
    /// The numbers of rows by status, then by kind of error; the kind of rows without an error is empty.
    pub rows: BTreeMap<(String, String), usize>,
    /// The rows of parts that existed before.
    pub existing: usize,
    /// The rows that were carried over from an earlier census.
    pub carried_over: usize,
    /// The rows that [`Census::count`] left as they were, because their headers are not stored.
    pub not_counted: usize,
}

impl CensusSummary {
    /// Returns the number of rows.
    #[must_use]
    pub fn repos(&self) -> usize {
        self.rows.values().sum()
    }

    /// Returns the number of rows with the status `failed`.
    #[must_use]
    pub fn failed(&self) -> usize {
        let failed = self.rows.iter().filter(|((status, _), _)| status == "failed");
        failed.map(|(_, rows)| rows).sum()
    }

    pub(super) fn add(&mut self, rows: &[CensusRow]) {
        for row in rows {
            let kind = row.error_kind.clone().unwrap_or_default();
            *self.rows.entry((row.status.clone(), kind)).or_default() += 1;
        }
    }
}

/// The state that the parts of a run share.
struct CensusRun<'a> {
    census: &'a Census,
    manifest: &'a Manifest,
    previous: Option<PreviousCensus>,
    limits: ReadLimits,
    progress: Mutex<CensusProgress>,
}

impl Census {
    /// Creates or continues a census in a local folder, or at a URL such as `s3://bucket/folder` with the credentials of
    /// the environment.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or the URL or its settings are not valid.
    pub fn create(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::open(target)?))
    }

    /// Opens a census that exists.
    ///
    /// # Errors
    ///
    /// If there is no such folder, or the URL or its settings are not valid.
    pub fn open(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::existing(target)?))
    }

    fn new(client: Client, storage: Storage) -> Self {
        Self { client, storage, jobs: 32, slice: (0, 1), previous: None, on_progress: None }
    }

    /// Sets the number of repositories that are read at once; 32 by default.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs: jobs.max(1), ..self }
    }

    /// Sets the slice to read: the parts whose number is `slice` modulo `slices`. By default all parts are read.
    pub fn slice(self, slice: usize, slices: usize) -> Self {
        Self { slice: (slice, slices.max(1)), ..self }
    }

    /// Sets an earlier census. Rows of repositories that are at the same commit are copied from it without a request.
    pub fn previous(self, target: impl Into<String>) -> Self {
        Self { previous: Some(target.into()), ..self }
    }

    /// Sets a function that is called after each repository.
    pub fn on_progress(self, report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(OnCensusProgress(Arc::new(report))), ..self }
    }

    /// Reads the repositories of a manifest. Parts that exist are not read again.
    ///
    /// # Errors
    ///
    /// If the manifest or the target fails. A repository that cannot be read is a row.
    pub async fn read(&self, manifest: &Manifest) -> Result<CensusSummary, CensusError> {
        let existing = self.existing_parts().await?;
        if existing.iter().any(|part| !part.is_of(manifest)) {
            return Err(CensusError::OtherManifest { target: self.storage.name().to_owned() });
        }
        let (slice, slices) = self.slice;
        let in_slice = || (0..manifest.parts()).filter(move |part| part % slices == slice);
        let mut summary = CensusSummary::default();
        let mut missing = Vec::new();
        let mut checks = stream::iter(in_slice())
            .map(|part| {
                let name = CensusPart::new(manifest, part);
                let exists = existing.contains(&name);
                async move {
                    let rows = if exists { name.read_current(&self.storage).await? } else { None };
                    Ok::<_, CensusError>((part, name, exists, rows))
                }
            })
            .buffered(CHECKS_AT_ONCE);
        while let Some((part, name, exists, rows)) = checks.try_next().await? {
            match rows {
                Some(rows) => {
                    summary.existing += rows.len();
                    summary.add(&rows);
                }
                None => missing.push((part, name, !exists)),
            }
        }
        drop(checks);
        let run = self.run(manifest, &missing).await?;
        let mut parts = stream::iter(missing)
            .map(|(part, name, is_new)| run.read_part(part, name, is_new))
            .buffer_unordered(PARTS_AT_ONCE);
        while let Some((rows, carried_over)) = parts.try_next().await? {
            summary.carried_over += carried_over;
            summary.add(&rows);
        }
        self.check_parts(in_slice().map(|part| CensusPart::new(manifest, part))).await?;
        Ok(summary)
    }

    /// Checks that all parts are there: somebody may have removed the target in the meantime.
    async fn check_parts(
        &self,
        parts: impl Iterator<Item = CensusPart>,
    ) -> Result<(), CensusError> {
        let existing = self.existing_parts().await?;
        let (found, missing): (Vec<_>, Vec<_>) = parts.partition(|part| existing.contains(part));
        if missing.is_empty() {
            return Ok(());
        }
        let parts = found.len() + missing.len();
        let target = self.storage.name().to_owned();
        Err(CensusError::Incomplete { target, missing: missing.len(), parts })
    }

    async fn existing_parts(&self) -> Result<BTreeSet<CensusPart>, CensusError> {
        Ok(CensusPart::list(&self.storage).await?.into_iter().collect())
    }

    pub(super) async fn parts(&self) -> Result<Vec<CensusPart>, CensusError> {
        CensusPart::list_existing(&self.storage).await
    }

    async fn run<'a>(
        &'a self,
        manifest: &'a Manifest,
        missing: &[(usize, CensusPart, bool)],
    ) -> Result<CensusRun<'a>, CensusError> {
        let previous = match &self.previous {
            Some(target) => Some(PreviousCensus::open(target).await?),
            None => None,
        };
        let total = missing.iter().map(|(part, ..)| manifest.part_len(*part)).sum();
        let progress = Mutex::new(CensusProgress { total, ..CensusProgress::default() });
        let run = CensusRun {
            census: self,
            manifest,
            previous,
            limits: ReadLimits::new(self.jobs),
            progress,
        };
        run.report(0, 0);
        Ok(run)
    }
}

impl CensusRun<'_> {
    /// Reads a part. Returns its rows, and how many were carried over.
    async fn read_part(
        &self,
        part: usize,
        name: CensusPart,
        is_new: bool,
    ) -> Result<(Vec<CensusRow>, usize), CensusError> {
        let mut repos: Vec<_> = self.manifest.part(part)?.into_iter().enumerate().collect();
        let mut headers = name.start_headers()?;
        let mut rows = match &self.previous {
            Some(previous) => previous.carry_over(&mut repos, &mut headers).await?,
            None => Vec::new(),
        };
        let carried_over = rows.len();
        if carried_over > 0 {
            self.report(carried_over, 0);
        }
        let Census { client, jobs, .. } = self.census;
        let report = |row: &CensusRow| self.report(1, usize::from(row.has_failed()));
        rows.append(
            &mut read_rows(client, repos, &self.limits, *jobs, Some(&mut headers), false, report)
                .await?,
        );
        rows.sort_unstable_by_key(|(at, _)| *at);
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        let (storage, parts) = (&self.census.storage, self.manifest.parts());
        if is_new {
            name.create(storage, &rows, headers, parts).await?;
        } else {
            name.replace(storage, &rows, Some(headers), parts).await?;
        }
        Ok((rows, carried_over))
    }

    fn report(&self, done: usize, failed: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.done += done;
        progress.failed += failed;
        if let Some(OnCensusProgress(report)) = &self.census.on_progress {
            report(*progress);
        }
    }
}

/// Reads repositories, each with its position. The headers are written as they come. `lists_sets` asks for the other sets
/// of repositories whose files are not known.
pub(super) async fn read_rows(
    client: &Client,
    repos: Vec<(usize, ListedRepo)>,
    limits: &ReadLimits,
    jobs: usize,
    mut headers: Option<&mut HeaderWriter>,
    lists_sets: bool,
    on_row: impl Fn(&CensusRow),
) -> Result<Vec<(usize, CensusRow)>, CensusError> {
    let limits = limits.clone();
    let read = move |client, (at, repo): (usize, ListedRepo)| {
        let limits = limits.clone();
        async move {
            // The semaphore is never closed. The permit is kept until the headers are written: they take memory.
            let permit = Arc::clone(&limits.jobs).acquire_owned().await;
            (at, read_repo(client, repo, lists_sets, limits).await, permit)
        }
    };
    let mut reads = client.read_many(stream::iter(repos), jobs, ResultOrder::Completion, read);
    let mut rows = Vec::new();
    while let Some((at, read, _permit)) = reads.next().await {
        if let (Some(writer), Some((commit, files))) = (&mut headers, read.headers) {
            for header in StoredHeader::all(&read.row.repo, &commit, files) {
                writer.write(header)?;
            }
        }
        on_row(&read.row);
        rows.push((at, read.row));
    }
    Ok(rows)
}
