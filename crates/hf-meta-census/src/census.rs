//! Runs a census: reads the repositories of a manifest, and writes parts to a folder or an object store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::PutMode;

use super::manifest::REPOS_PER_PART;
use super::part::{CensusPart, PendingPart};
use super::previous::PreviousCensus;
use super::read_repo::{RepoReader, recount};
use super::row::CensusRow;
use super::storage::Storage;
use super::{CensusError, Manifest, StoredHeader};
use hf_meta::Client;

/// The number of parts to read concurrently, so that one slow repository does not delay all others.
const MAX_CONCURRENT_PARTS: usize = 8;

/// The number of parts of an earlier run to check concurrently.
const MAX_CONCURRENT_CHECKS: usize = 32;

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
    client: Client,
    pub(super) storage: Storage,
    concurrency: usize,
    slice: (usize, usize),
    previous: Option<String>,
    on_progress: Option<OnCensusProgress>,
}

struct OnCensusProgress(Box<dyn Fn(CensusProgress) + Send + Sync>);

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
    /// Repositories to read, excluding those in existing parts. For [`Census::retry`] and [`Census::count`], the
    /// maximum number of repositories in the existing parts.
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
    pub already_read: usize,
    /// The number of rows that were copied from an earlier census.
    pub carried_over: usize,
    /// The number of rows that [`Census::count`] left unchanged because their headers are not stored.
    pub not_recounted: usize,
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

    fn add(&mut self, rows: &[CensusRow]) {
        for row in rows {
            let kind = row.error_kind.clone().unwrap_or_default();
            *self.rows.entry((row.status.clone(), kind)).or_default() += 1;
        }
    }
}

impl Census {
    /// Creates or resumes a census in a local folder, or at a URL such as `s3://bucket/folder` with credentials from
    /// the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created, or if the URL or its settings are invalid.
    pub fn create(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::create_or_open(target)?))
    }

    /// Opens an existing census in a local folder or at a URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder does not exist, or if the URL or its settings are invalid.
    pub fn open(client: Client, target: &str) -> Result<Self, CensusError> {
        Ok(Self::new(client, Storage::open_existing(target)?))
    }

    fn new(client: Client, storage: Storage) -> Self {
        Self { client, storage, concurrency: 32, slice: (0, 1), previous: None, on_progress: None }
    }

    /// Sets the number of repositories that are read concurrently, 32 by default.
    pub fn concurrency(self, repos: usize) -> Self {
        Self { concurrency: repos.max(1), ..self }
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

    /// Sets a function to be called after each repository. [`retry`](Self::retry) and [`count`](Self::count) call it
    /// after each part.
    pub fn on_progress(self, report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(OnCensusProgress(Box::new(report))), ..self }
    }

    /// Reads the repositories of a manifest. Existing parts with the current counting rules are not read again.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest, the target or the earlier census cannot be read, if the target cannot be
    /// written, or if it contains the census of a different manifest. A repository that cannot be read becomes a row,
    /// not an error.
    pub async fn read(&self, manifest: &Manifest) -> Result<CensusSummary, CensusError> {
        let existing = CensusPart::list(&self.storage).await?;
        if existing.iter().any(|part| !part.belongs_to(manifest)) {
            return Err(CensusError::ManifestMismatch { target: self.storage.name().to_owned() });
        }
        let (slice, slices) = self.slice;
        let in_slice = (0..manifest.parts()).filter(|number| number % slices == slice);
        let parts: Vec<_> = in_slice.map(|number| CensusPart::new(manifest, number)).collect();
        let (present, mut missing): (Vec<_>, Vec<_>) =
            parts.iter().cloned().partition(|part| existing.contains(part));
        let mut summary = CensusSummary::default();
        let check = |part: CensusPart| async move {
            let rows = part.read_current(&self.storage).await?;
            Ok::<_, CensusError>((part, rows))
        };
        let mut checks = stream::iter(present).map(check).buffered(MAX_CONCURRENT_CHECKS);
        while let Some((part, rows)) = checks.try_next().await? {
            match rows {
                Some(rows) => {
                    summary.already_read += rows.len();
                    summary.add(&rows);
                }
                None => missing.push(part),
            }
        }
        let run = ReadRun::start(self, manifest, existing, &missing).await?;
        let reads = stream::iter(missing).map(|part| run.read_part(part));
        let mut reads = reads.buffer_unordered(MAX_CONCURRENT_PARTS);
        while let Some((rows, carried_over)) = reads.try_next().await? {
            summary.carried_over += carried_over;
            summary.add(&rows);
        }
        self.check_all_exist(&parts).await?;
        Ok(summary)
    }

    /// Checks that all parts exist, because the target may have been removed during the run.
    async fn check_all_exist(&self, parts: &[CensusPart]) -> Result<(), CensusError> {
        let existing = CensusPart::list(&self.storage).await?;
        match parts.iter().filter(|part| !existing.contains(part)).count() {
            0 => Ok(()),
            missing => Err(self.incomplete(missing, parts.len())),
        }
    }

    pub(super) fn incomplete(&self, missing: usize, parts: usize) -> CensusError {
        CensusError::Incomplete { target: self.storage.name().to_owned(), missing, parts }
    }

    fn report(&self, progress: CensusProgress) {
        if let Some(OnCensusProgress(report)) = &self.on_progress {
            report(progress);
        }
    }

    /// Returns the existing parts and the progress before the first one.
    async fn existing_parts(&self) -> Result<(BTreeSet<CensusPart>, CensusProgress), CensusError> {
        let parts = CensusPart::list_existing(&self.storage).await?;
        let total = parts.len().saturating_mul(REPOS_PER_PART);
        let progress = CensusProgress { total, ..CensusProgress::default() };
        self.report(progress);
        Ok((parts, progress))
    }

    /// Adds the rows of a part to the summary and the progress.
    fn add_part(
        &self,
        rows: &[CensusRow],
        summary: &mut CensusSummary,
        progress: &mut CensusProgress,
    ) {
        summary.add(rows);
        progress.done += rows.len();
        progress.failed = summary.failed();
        self.report(*progress);
    }

    /// Reads the repositories whose status is `failed` again.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, or cannot be read or written.
    pub async fn retry(&self) -> Result<CensusSummary, CensusError> {
        let mut summary = CensusSummary::default();
        let reader = RepoReader::new(&self.client, self.concurrency, true);
        let (parts, mut progress) = self.existing_parts().await?;
        for part in parts {
            let (mut rows, parts) = part.read(&self.storage).await?;
            if rows.iter().any(CensusRow::has_failed) {
                let pending = self.without_failed(&part, rows).await?;
                let read = pending.complete(&reader, |_| ()).await?;
                rows = part.write(&self.storage, read, parts, PutMode::Overwrite).await?;
            }
            self.add_part(&rows, &mut summary, &mut progress);
        }
        Ok(summary)
    }

    /// Returns a part without its failed rows, which are read again.
    async fn without_failed(
        &self,
        part: &CensusPart,
        rows: Vec<CensusRow>,
    ) -> Result<PendingPart, CensusError> {
        let (mut pending, mut failed) = (PendingPart::new(part)?, Vec::new());
        let copy = |(at, row): (usize, CensusRow)| {
            if !row.has_failed() {
                return Some((at, row));
            }
            failed.push((at, row.into_listing()));
            None
        };
        pending.copy_rows(&self.storage, part, rows, copy).await?;
        pending.repos = failed;
        Ok(pending)
    }

    /// Recounts all rows from the stored headers with the current rules, without sending a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, or cannot be read or written.
    pub async fn count(&self) -> Result<CensusSummary, CensusError> {
        let mut summary = CensusSummary::default();
        let (parts, mut progress) = self.existing_parts().await?;
        for part in parts {
            let (mut rows, parts) = part.read(&self.storage).await?;
            summary.not_recounted += self.count_part(&part, &mut rows).await?;
            part.write_rows(&self.storage, &rows, parts, PutMode::Overwrite).await?;
            self.add_part(&rows, &mut summary, &mut progress);
        }
        Ok(summary)
    }

    /// Counts the rows of a part. Returns the number of rows that were left unchanged.
    async fn count_part(
        &self,
        part: &CensusPart,
        rows: &mut [CensusRow],
    ) -> Result<usize, CensusError> {
        let (mut waiting, mut not_counted) = (HashMap::new(), 0);
        for (at, row) in rows.iter_mut().enumerate() {
            if row.depends_on_headers() {
                waiting.insert(row.repo.clone(), at);
            } else {
                row.set_current();
            }
        }
        let mut headers = part.read_headers(&self.storage).await?.peekable();
        while let Some(first) = headers.next().transpose()? {
            let repo = first.repo.clone();
            let mut of_repo = vec![first];
            let is_same = |next: &Result<StoredHeader, CensusError>| {
                next.as_ref().is_ok_and(|next| next.repo == repo)
            };
            while let Some(next) = headers.next_if(is_same) {
                of_repo.push(next?);
            }
            let Some(at) = waiting.remove(&repo) else { continue };
            match recount(&self.client, &rows[at], &of_repo).await {
                Some(counted) => rows[at] = counted,
                None => not_counted += 1,
            }
        }
        Ok(waiting.len() + not_counted)
    }
}

/// The state shared by all parts that [`Census::read`] reads.
struct ReadRun<'a> {
    census: &'a Census,
    manifest: &'a Manifest,
    existing: BTreeSet<CensusPart>,
    previous: Option<PreviousCensus>,
    reader: RepoReader,
    progress: Mutex<CensusProgress>,
}

impl<'a> ReadRun<'a> {
    async fn start(
        census: &'a Census,
        manifest: &'a Manifest,
        existing: BTreeSet<CensusPart>,
        missing: &[CensusPart],
    ) -> Result<Self, CensusError> {
        let previous = match &census.previous {
            Some(target) => Some(PreviousCensus::open(target).await?),
            None => None,
        };
        let reader = RepoReader::new(&census.client, census.concurrency, false);
        let total = missing.iter().map(|part| manifest.part_len(part.number)).sum();
        let progress = Mutex::new(CensusProgress { total, ..CensusProgress::default() });
        let run = Self { census, manifest, existing, previous, reader, progress };
        run.report(0, 0);
        Ok(run)
    }

    /// Reads a part. Returns its rows and the number of rows that were carried over.
    async fn read_part(&self, part: CensusPart) -> Result<(Vec<CensusRow>, usize), CensusError> {
        let mut pending = PendingPart::new(&part)?;
        pending.repos.extend(self.manifest.part(part.number)?.into_iter().enumerate());
        if let Some(previous) = &self.previous {
            previous.carry_over(&mut pending).await?;
        }
        let carried_over = pending.rows.len();
        if carried_over > 0 {
            self.report(carried_over, 0);
        }
        let report = |row: &CensusRow| self.report(1, usize::from(row.has_failed()));
        let read = pending.complete(&self.reader, report).await?;
        let exists = self.existing.contains(&part);
        let mode = if exists { PutMode::Overwrite } else { PutMode::Create };
        let rows = part.write(&self.census.storage, read, self.manifest.parts(), mode).await?;
        Ok((rows, carried_over))
    }

    fn report(&self, done: usize, failed: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.done += done;
        progress.failed += failed;
        self.census.report(*progress);
    }
}
