//! Runs a census: reads the repositories of a manifest, and writes parts to a folder or an object store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};

use super::manifest::REPOS_PER_PART;
use super::outage::{CensusStop, CircuitBreaker, MAX_OUTAGE};
use super::part::{CensusPart, PartFooter, PendingPart};
use super::previous::PreviousCensus;
use super::read_repo::{RepoReader, recount};
use super::row::{CensusRow, TOOL, integer};
use super::run::CensusRun;
use super::storage::Storage;
use super::{CensusError, ListedRepo, Manifest, StoredHeader};
use hf_meta::formats::{chain, clip};
use hf_meta::{Client, ErrorKind};

/// The maximum number of incomplete parts, so that one slow repository does not delay all others.
const MAX_CONCURRENT_PARTS: usize = 8;

/// The number of parts of an earlier run to check concurrently.
const MAX_CONCURRENT_CHECKS: usize = 32;

/// A census: the rows and headers of repositories, in a local folder or an object store.
///
/// Repositories are read in parts of 256, one part after the other. A part is stored atomically, once all its
/// repositories have been read or the run ends early. So an interrupted census resumes with the missing repositories,
/// and several processes can each read a slice.
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
    concurrency: usize,
    slice: (usize, usize),
    previous: Option<String>,
    all_quantizations: bool,
    max_outage: Duration,
    pub(super) tool: String,
    pub(super) stop: CensusStop,
    progress: Arc<ProgressReporter>,
}

type OnProgress = dyn Fn(CensusProgress) + Send + Sync;

/// The progress of a run, and the function that is called with it.
#[derive(Default)]
pub(super) struct ProgressReporter {
    current: Mutex<CensusProgress>,
    on_progress: Option<Box<OnProgress>>,
}

impl fmt::Debug for ProgressReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressReporter")
    }
}

impl ProgressReporter {
    pub(super) fn new(report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { current: Mutex::default(), on_progress: Some(Box::new(report)) }
    }

    /// Counts a repository and reports the progress.
    pub(super) fn add(&self, row: &CensusRow) {
        self.update(|progress| {
            progress.done += 1;
            progress.failed += usize::from(row.has_failed());
        });
    }

    fn lock(&self) -> MutexGuard<'_, CensusProgress> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the progress and reports it.
    pub(super) fn update(&self, change: impl FnOnce(&mut CensusProgress)) {
        let mut progress = self.lock();
        change(&mut progress);
        if let Some(report) = &self.on_progress {
            report(*progress);
        }
    }
}

/// The progress of a census, as numbers of repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusProgress {
    /// Repositories that were read or copied from an earlier census.
    pub done: usize,
    /// Repositories to read, or, for [`Census::count`], the maximum number of rows.
    pub total: usize,
    /// Repositories that failed.
    pub failed: usize,
    /// The kind of the failures during an outage, in which single repositories are read as probes until one succeeds.
    pub outage: Option<ErrorKind>,
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

    fn add_rows(&mut self, rows: &[CensusRow]) {
        for row in rows {
            let kind = row.error_kind.clone().unwrap_or_default();
            *self.rows.entry((row.status.clone(), kind)).or_default() += 1;
        }
    }

    fn add(&mut self, part: &Self) {
        for (status, rows) in &part.rows {
            *self.rows.entry(status.clone()).or_default() += rows;
        }
        self.already_read += part.already_read;
        self.carried_over += part.carried_over;
        self.not_recounted += part.not_recounted;
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
        Self {
            client,
            storage,
            concurrency: 32,
            slice: (0, 1),
            previous: None,
            all_quantizations: false,
            max_outage: MAX_OUTAGE,
            tool: TOOL.to_owned(),
            stop: CensusStop::default(),
            progress: Arc::default(),
        }
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

    /// Sets whether the `files` table contains the headers of all quantizations of GGUF repositories, not only of the
    /// counted one; `false` by default.
    pub fn all_quantizations(self, enabled: bool) -> Self {
        Self { all_quantizations: enabled, ..self }
    }

    /// Sets the duration of an outage of the Hub or the network that ends a run, 10 minutes by default. An outage begins
    /// with 16 consecutive failures.
    pub fn max_outage(self, duration: Duration) -> Self {
        Self { max_outage: duration, ..self }
    }

    /// Sets the program, its version and its commit for the [`runs`](CensusRun::tool) table, `hf-meta` and its version by
    /// default.
    pub fn tool(self, tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), ..self }
    }

    /// Sets a function to be called after each repository, and at the start and end of an outage.
    /// [`count`](Self::count) calls it after each part.
    pub fn on_progress(self, report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { progress: Arc::new(ProgressReporter::new(report)), ..self }
    }

    /// Returns a handle that ends every run early, for example on a signal.
    #[must_use]
    pub fn stop_handle(&self) -> CensusStop {
        self.stop.clone()
    }

    /// Reads the repositories of a manifest. Existing rows with the current counting rules are not read again.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest, the target or the earlier census cannot be read, if the target cannot be
    /// written, or if it contains the census of a different manifest. Returns an error if the run ends early: in an
    /// outage, if the Hub rejects the token, or on request. All complete rows are stored in this case, so that the next
    /// run continues there. A repository that cannot be read becomes a row, not an error.
    pub async fn read(&self, manifest: &Manifest) -> Result<CensusSummary, CensusError> {
        let existing = CensusPart::list(&self.storage).await?;
        if existing.iter().any(|part| !part.belongs_to(manifest)) {
            return Err(CensusError::ManifestMismatch { target: self.storage.name().to_owned() });
        }
        let (slice, slices) = self.slice;
        let in_slice = manifest.part_numbers().filter(|number| number % slices == slice);
        let parts: Vec<_> = in_slice.map(|number| CensusPart::new(manifest, number)).collect();
        let summary = self.recorded("read", self.run(existing, &parts, Some(manifest))).await?;
        // The target may have been removed during the run.
        let existing = CensusPart::list(&self.storage).await?;
        match parts.iter().filter(|part| !existing.contains(part)).count() {
            0 => Ok(summary),
            missing => Err(self.incomplete(missing, parts.len())),
        }
    }

    /// Reads the repositories whose status is `failed` again, in the same way as [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, or cannot be read or written, or if the run ends early.
    pub async fn retry(&self) -> Result<CensusSummary, CensusError> {
        let parts = CensusPart::list_existing(&self.storage).await?;
        let all: Vec<_> = parts.iter().cloned().collect();
        self.recorded("retry", self.run(parts, &all, None)).await
    }

    /// Reads the repositories without a row in some parts; without a manifest, those that failed, too.
    async fn run(
        &self,
        existing: BTreeSet<CensusPart>,
        parts: &[CensusPart],
        manifest: Option<&Manifest>,
    ) -> Result<CensusSummary, CensusError> {
        let mut run = ReadRun::start(self, manifest, existing).await?;
        let mut summary = CensusSummary::default();
        let mut todo = run.find_incomplete(parts, &mut summary).await?;
        loop {
            let (mut failed, mut missing) = (Vec::new(), 0);
            let reads = stream::iter(take(&mut todo)).map(|part| run.read_part(part));
            let mut reads = reads.buffer_unordered(MAX_CONCURRENT_PARTS);
            while let Some((part, read)) = reads.try_next().await? {
                match read {
                    None => missing += 1,
                    Some(read) if read.failed() > 0 => failed.push((part, read)),
                    Some(read) => summary.add(&read),
                }
            }
            drop(reads);
            run.breaker.result()?;
            if missing > 0 {
                return Err(self.incomplete(missing, parts.len()));
            }
            let suspects = run.breaker.take_suspects();
            if suspects.is_empty() {
                for (_, read) in &failed {
                    summary.add(read);
                }
                return Ok(summary);
            }
            // The first failures of an outage, and its probes, are rows.
            run.existing.extend(failed.iter().map(|(part, _)| part.clone()));
            let rows = failed.iter().map(|(_, read)| read.failed()).sum::<usize>();
            let rows = rows.min(suspects.len());
            (run.reads_failed, run.suspects) = (true, Some(suspects));
            self.progress.update(|progress| {
                (progress.done, progress.failed) = (progress.done - rows, progress.failed - rows);
            });
            todo = failed.into_iter().map(|(part, _)| part).collect();
        }
    }

    /// Stores a row about a run in the table `runs`.
    async fn recorded(
        &self,
        action: &str,
        run: impl Future<Output = Result<CensusSummary, CensusError>>,
    ) -> Result<CensusSummary, CensusError> {
        *self.progress.lock() = CensusProgress::default();
        let (mut row, before) = CensusRun::start(action, &self.client, &self.tool);
        (row.slice, row.slices) = (integer(self.slice.0 as u64), integer(self.slice.1 as u64));
        let result = run.await;
        row.error = result.as_ref().err().map(|error| clip(&chain(error)));
        let progress = *self.progress.lock();
        let written = row.write(&self.storage, &before, &self.client.stats(), progress).await;
        // The error of the run is more important.
        result.and_then(|summary| written.map(|()| summary))
    }

    pub(super) fn incomplete(&self, missing: usize, parts: usize) -> CensusError {
        CensusError::Incomplete { target: self.storage.name().to_owned(), missing, parts }
    }

    /// Recounts all rows from the stored headers with the current rules, without sending a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, cannot be read or written, or if the run ends on request.
    pub async fn count(&self) -> Result<CensusSummary, CensusError> {
        let parts = CensusPart::list_existing(&self.storage).await?;
        self.recorded("count", self.count_parts(parts)).await
    }

    async fn count_parts(&self, parts: BTreeSet<CensusPart>) -> Result<CensusSummary, CensusError> {
        let mut summary = CensusSummary::default();
        let total = parts.len() * REPOS_PER_PART;
        self.progress.update(|progress| *progress = CensusProgress { total, ..Default::default() });
        for part in &parts {
            self.stop.check()?;
            let (footer, mut rows) = part.read(&self.storage).await?;
            summary.not_recounted += self.count_part(part, &footer, &mut rows).await?;
            part.write_rows(&self.storage, &rows, footer).await?;
            summary.add_rows(&rows);
            self.progress.update(|progress| {
                (progress.done, progress.failed) = (summary.repos(), summary.failed());
            });
        }
        Ok(summary)
    }

    /// Counts the rows of a part. Returns the number of rows that were left unchanged.
    async fn count_part(
        &self,
        part: &CensusPart,
        footer: &PartFooter,
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
        let mut headers = part.read_headers(&self.storage, footer).await?.peekable();
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

/// The state shared by all parts of a run.
struct ReadRun<'a> {
    census: &'a Census,
    manifest: Option<&'a Manifest>,
    /// The number of parts of the manifest.
    parts: usize,
    existing: BTreeSet<CensusPart>,
    /// True if failed repositories are read again.
    reads_failed: bool,
    /// The failed repositories to read again; `None` for all.
    suspects: Option<BTreeSet<String>>,
    previous: Option<PreviousCensus>,
    breaker: Arc<CircuitBreaker>,
    reader: RepoReader,
    /// Locked by the part whose repositories are started, so that parts are completed one after the other.
    turn: tokio::sync::Mutex<()>,
}

impl<'a> ReadRun<'a> {
    async fn start(
        census: &'a Census,
        manifest: Option<&'a Manifest>,
        existing: BTreeSet<CensusPart>,
    ) -> Result<Self, CensusError> {
        let previous = match &census.previous {
            Some(target) => Some(PreviousCensus::open(target).await?),
            None => None,
        };
        let (stop, progress) = (census.stop.clone(), Arc::clone(&census.progress));
        let breaker = Arc::new(CircuitBreaker::new(census.max_outage, stop, progress));
        let reader = RepoReader::new(&census.client, census.concurrency, Arc::clone(&breaker));
        let reader = reader.all_quantizations(census.all_quantizations);
        let (reads_failed, suspects) = (manifest.is_none(), None);
        let turn = tokio::sync::Mutex::default();
        let parts = manifest.map_or(0, Manifest::parts);
        Ok(Self {
            census,
            manifest,
            parts,
            existing,
            reads_failed,
            suspects,
            previous,
            breaker,
            reader,
            turn,
        })
    }

    /// Returns the parts that have to be read, and adds the others to the summary.
    async fn find_incomplete(
        &self,
        parts: &[CensusPart],
        summary: &mut CensusSummary,
    ) -> Result<Vec<CensusPart>, CensusError> {
        let (mut todo, mut total) = (Vec::new(), 0);
        let check = async |part: &CensusPart| -> Result<_, CensusError> {
            Ok((part.clone(), self.stored(part).await?))
        };
        let mut checks = stream::iter(parts).map(check).buffered(MAX_CONCURRENT_CHECKS);
        while let Some((part, stored)) = checks.try_next().await? {
            let unread = match &stored {
                Some((footer, rows)) => footer.unread(rows, self.reads_failed).count(),
                None => self.manifest.map_or(0, |manifest| manifest.part_len(part.number)),
            };
            total += unread;
            if unread > 0 {
                todo.push(part);
            } else if let Some((_, rows)) = stored {
                summary.already_read += rows.len();
                summary.add_rows(&rows);
            }
        }
        self.census
            .progress
            .update(|progress| *progress = CensusProgress { total, ..Default::default() });
        Ok(todo)
    }

    /// Returns the rows of an existing part to which rows can be added.
    async fn stored(
        &self,
        part: &CensusPart,
    ) -> Result<Option<(PartFooter, Vec<CensusRow>)>, CensusError> {
        let storage = &self.census.storage;
        if !self.existing.contains(part) {
            return Ok(None);
        }
        if self.manifest.is_some() && !self.reads_failed {
            return part.read_current(storage).await;
        }
        part.read(storage).await.map(Some)
    }

    /// Reads a part and stores it. Returns the number of its rows; `None` if it is incomplete.
    async fn read_part(
        &self,
        part: CensusPart,
    ) -> Result<(CensusPart, Option<CensusSummary>), CensusError> {
        if self.breaker.stop().is_stopped() {
            return Ok((part, None));
        }
        let storage = &self.census.storage;
        let mut pending = match (self.stored(&part).await?, self.manifest) {
            (Some((footer, rows)), _) => {
                let is_suspect = |repo: &&ListedRepo| {
                    self.suspects.as_ref().is_none_or(|suspects| suspects.contains(&repo.repo))
                };
                let unread = footer.unread(&rows, self.reads_failed).filter(is_suspect);
                let unread: Vec<_> = unread.cloned().collect();
                if unread.is_empty() {
                    let mut summary = CensusSummary::default();
                    summary.add_rows(&rows);
                    return Ok((part, Some(summary)));
                }
                PendingPart::resume(storage, &part, footer, rows, unread).await?
            }
            (None, Some(manifest)) => {
                PendingPart::new(&part, self.parts, manifest.part(part.number)?)?
            }
            (None, None) => return Ok((part, None)),
        };
        let mut summary = CensusSummary { already_read: pending.rows.len(), ..Default::default() };
        if let Some(previous) = &self.previous {
            previous.carry_over(&mut pending).await?;
            summary.carried_over = pending.rows.len() - summary.already_read;
            self.census.progress.update(|progress| progress.done += summary.carried_over);
        }
        let report = |row: &CensusRow| self.census.progress.add(row);
        let turn = self.turn.lock().await;
        pending.complete(&self.reader, turn, report).await?;
        let is_complete = pending.is_complete();
        let exists = self.existing.contains(&part);
        let rows = part.write(storage, pending, exists).await?;
        summary.add_rows(&rows);
        Ok((part, is_complete.then_some(summary)))
    }
}
