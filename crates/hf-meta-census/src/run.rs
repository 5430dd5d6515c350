//! Runs a census: reads the repositories of a manifest, and writes parts to a folder or an object store.

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
use hf_meta::{Client, ResultOrder};

/// The number of parts to read concurrently, so that one slow repository does not delay all others.
const PARTS_AT_ONCE: usize = 8;

/// The number of parts of an earlier run to check concurrently.
const CHECKS_AT_ONCE: usize = 32;

/// A census: the rows and headers of repositories, in a local folder or an object store.
///
/// Repositories are read in parts of 256. A part is stored atomically, once all its repositories have been read. So
/// an interrupted census resumes with the missing parts, and several processes can each read a slice.
///
/// ```no_run
/// use hf_meta_census::{Census, Manifest};
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

/// The progress of a census, as numbers of repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusProgress {
    /// Repositories that were read or copied from an earlier census.
    pub done: usize,
    /// Repositories to read, excluding those in existing parts.
    pub total: usize,
    /// Repositories that failed.
    pub failed: usize,
}

/// The number of rows of a census by status and error code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusSummary {
    /// The number of rows by status and error code; the code of rows without an error is empty.
    pub rows: BTreeMap<(String, String), usize>,
    /// The number of rows in parts that existed before.
    pub existing: usize,
    /// The number of rows that were copied from an earlier census.
    pub carried_over: usize,
    /// The number of rows that [`Census::count`] left unchanged because their headers are not stored.
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

/// The state shared by all parts of a run.
struct CensusRun<'a> {
    census: &'a Census,
    manifest: &'a Manifest,
    previous: Option<PreviousCensus>,
    limits: ReadLimits,
    progress: Mutex<CensusProgress>,
}

impl Census {
    /// Creates or resumes a census in a local folder, or at a URL such as `s3://bucket/folder` with credentials from
    /// the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created, or if the URL or its settings are invalid.
    pub fn create(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::open(target)?))
    }

    /// Opens an existing census in a local folder or at a URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder does not exist, or if the URL or its settings are invalid.
    pub fn open(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::existing(target)?))
    }

    fn new(client: Client, storage: Storage) -> Self {
        Self { client, storage, jobs: 32, slice: (0, 1), previous: None, on_progress: None }
    }

    /// Sets the number of repositories that are read concurrently, 32 by default.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs: jobs.max(1), ..self }
    }

    /// Reads only the parts whose number modulo `slices` is `slice`, so `slice` must be less than `slices`. By
    /// default all parts are read.
    pub fn slice(self, slice: usize, slices: usize) -> Self {
        Self { slice: (slice, slices.max(1)), ..self }
    }

    /// Sets an earlier census. The rows of repositories with an unchanged commit are copied from it without a
    /// request.
    pub fn previous(self, target: impl Into<String>) -> Self {
        Self { previous: Some(target.into()), ..self }
    }

    /// Sets a function to be called after each repository.
    pub fn on_progress(self, report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(OnCensusProgress(Arc::new(report))), ..self }
    }

    /// Reads the repositories of a manifest. Existing parts with the current counting rules are not read again.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest, the target or the earlier census cannot be read, if the target cannot be
    /// written, or if it contains the census of a different manifest. A repository that cannot be read becomes a row,
    /// not an error.
    pub async fn read(&self, manifest: &Manifest) -> Result<CensusSummary, CensusError> {
        let existing = self.existing_parts().await?;
        if existing.iter().any(|part| !part.is_of(manifest)) {
            return Err(CensusError::ManifestMismatch { target: self.storage.name().to_owned() });
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

    /// Checks that all parts exist, because the target may have been removed during the run.
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
    /// Reads a part. Returns its rows and the number of rows that were carried over.
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

/// Reads repositories. Each has its index in the part. Headers are written as they arrive. With `lists_sets`, also
/// lists the other sets of repositories whose files are unknown.
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
            // The semaphore is never closed. The permit is held until the headers are written, because they take
            // memory.
            let permit = Arc::clone(&limits.jobs).acquire_owned().await;
            (at, read_repo(client, repo, lists_sets, limits).await, permit)
        }
    };
    let mut reads = client.run_many(stream::iter(repos), jobs, ResultOrder::Completion, read);
    let mut rows = Vec::new();
    while let Some((at, read, _permit)) = reads.next().await {
        if let (Some(writer), Some(files)) = (&mut headers, read.headers) {
            for header in StoredHeader::all(&read.row.repo, files) {
                writer.write(header)?;
            }
        }
        on_row(&read.row);
        rows.push((at, read.row));
    }
    Ok(rows)
}
