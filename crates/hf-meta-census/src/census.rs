//! Runs a census: reads the repositories of a manifest, and writes parts to a folder or an object store.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::OptionFuture;
use itertools::Itertools;

use super::error::{CensusError, Result};
use super::manifest::{Manifest, REPOS_PER_PART};
use super::part::CensusPart;
use super::read_repo::recount;
use super::reads::{CensusProgress, CensusStop, ProgressReporter, ReadSettings, Reads};
use super::row::{SCHEMA_VERSION, TOOL};
use super::run::{CensusRun, CensusSummary, PreviousCensus, ReadRun, unix_millis};
use super::storage::Storage;
use super::stored_header::StoredHeader;
use super::table::integer;
use hf_meta::Client;
use hf_meta::internal::quota_share;
use hf_meta_count::count::RuleSet;
use hf_meta_format::formats::{chain, clip};

/// A census: the rows and headers of repositories, in a local folder or an object store.
///
/// Repositories are read in the order of the list. Each 256 are a part, which is stored atomically, once all its
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
    pub(super) settings: ReadSettings,
    slice: (usize, usize),
    previous: Option<String>,
    pub(super) tool: String,
}

impl Census {
    /// Creates or resumes a census in a local folder, or at a URL such as `s3://bucket/folder` with credentials from
    /// the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created, or if the URL or its settings are invalid.
    pub fn create(client: Client, target: &str) -> Result<Self> {
        Ok(Self::new(client, Storage::create_or_open(target)?))
    }

    /// Opens an existing census in a local folder or at a URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder does not exist, or if the URL or its settings are invalid.
    pub fn open(client: Client, target: &str) -> Result<Self> {
        Ok(Self::new(client, Storage::open_existing(target)?))
    }

    fn new(client: Client, storage: Storage) -> Self {
        Self {
            client,
            storage,
            settings: ReadSettings::default(),
            slice: (0, 1),
            previous: None,
            tool: TOOL.to_owned(),
        }
    }

    /// Sets the number of repositories that are read concurrently, 32 by default.
    pub fn concurrency(mut self, repos: usize) -> Self {
        self.settings.concurrency = repos.max(1);
        self
    }

    /// Reads only the parts whose number modulo `slices` is `slice`, so `slice` must be less than `slices`. By
    /// default all parts are read.
    pub fn slice(self, slice: usize, slices: usize) -> Self {
        Self { slice: (slice, slices.max(1)), ..self }
    }

    /// Sets an earlier census. The rows of repositories with an unchanged commit are copied from it without a
    /// request.
    pub fn previous(self, target: impl AsRef<str>) -> Self {
        Self { previous: Some(target.as_ref().to_owned()), ..self }
    }

    /// Sets the duration of an outage of the Hub or the network that ends a run, 10 minutes by default. An outage begins
    /// with 16 consecutive failures.
    pub fn max_outage(mut self, duration: Duration) -> Self {
        self.settings.max_outage = duration;
        self
    }

    /// Sets the program, its version and its commit for the [`runs`](CensusRun::tool) table, `hf-meta` and its version by
    /// default.
    pub fn tool(self, tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), ..self }
    }

    /// Sets a function to be called after each repository, and at the start and end of an outage.
    /// [`count`](Self::count) calls it after each part.
    pub fn on_progress(mut self, report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        self.settings.progress = ProgressReporter::new(report);
        self
    }

    /// Returns a handle that ends every run early, for example on a signal.
    pub fn stop_handle(&self) -> CensusStop {
        self.settings.stop.clone()
    }

    /// Reads the repositories of a manifest. Existing rows with the current counting rules are not read again.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest, the target or the earlier census cannot be read, if the target cannot be
    /// written, or if it contains the census of a different manifest. Returns an error if the run ends early: in an
    /// outage, if the Hub rejects the token, or on request. All complete rows are stored in this case, so that the next
    /// run continues there. A repository that cannot be read becomes a row, not an error.
    pub async fn read(&self, manifest: &Manifest) -> Result<CensusSummary> {
        let existing = CensusPart::list(&self.storage).await?;
        if existing.iter().any(|part| !part.belongs_to(manifest)) {
            return Err(CensusError::ManifestMismatch { target: self.storage.name.clone() });
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
    pub async fn retry(&self) -> Result<CensusSummary> {
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
    ) -> Result<CensusSummary> {
        let previous = self.previous.as_deref().map(PreviousCensus::open);
        let previous = OptionFuture::from(previous).await.transpose()?;
        let progress = self.settings.progress.clone();
        let run = ReadRun::start(&self.storage, manifest, parts, &existing, previous, progress);
        let mut run = run.await?;
        let reads = Reads::new(&self.client, self.settings.clone());
        // On the heap, because it contains the state of a file that is written.
        let read = Box::pin(run.read_parts(reads)).await;
        let stored = run.store_incomplete().await;
        // The error of the run is more important.
        match read.and(stored)? {
            0 => Ok(run.summary),
            missing => Err(self.incomplete(missing, parts.len())),
        }
    }

    /// Stores a row about a run in the table `runs`.
    async fn recorded(
        &self,
        action: &str,
        run: impl Future<Output = Result<CensusSummary>>,
    ) -> Result<CensusSummary> {
        self.settings.progress.reset();
        let (started_at, before) = (unix_millis(), self.client.stats());
        let result = run.await;
        let (progress, after) = (self.settings.progress.current(), self.client.stats());
        let waited = after.waited.saturating_sub(before.waited).as_millis();
        let row = CensusRun {
            action: action.to_owned(),
            endpoint: self.client.endpoint().to_string(),
            started_at,
            ended_at: unix_millis(),
            tool: self.tool.clone(),
            rules: RuleSet::CURRENT.to_string(),
            schema_version: SCHEMA_VERSION,
            slice: integer(self.slice.0 as u64),
            slices: integer(self.slice.1 as u64),
            repos: integer(progress.done as u64),
            failed: integer(progress.failed as u64),
            requests: integer(after.requests.saturating_sub(before.requests)),
            bytes_read: integer(after.bytes_read.saturating_sub(before.bytes_read)),
            quota_share: quota_share(&self.client),
            waited_ms: i64::try_from(waited).unwrap_or(i64::MAX),
            error: result.as_ref().err().map(|error| clip(&chain(error))),
        };
        let written = row.write(&self.storage).await;
        // The error of the run is more important.
        result.and_then(|summary| written.map(|()| summary))
    }

    pub(super) fn incomplete(&self, missing: usize, parts: usize) -> CensusError {
        CensusError::Incomplete { target: self.storage.name.clone(), missing, parts }
    }

    /// Recounts all rows from the stored headers with the current rules, without sending a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, cannot be read or written, or if the run ends on request.
    pub async fn count(&self) -> Result<CensusSummary> {
        let parts = CensusPart::list_existing(&self.storage).await?;
        self.recorded("count", self.count_parts(parts)).await
    }

    async fn count_parts(&self, parts: BTreeSet<CensusPart>) -> Result<CensusSummary> {
        let (mut summary, progress) = (CensusSummary::default(), &self.settings.progress);
        progress.update(|progress| progress.total = parts.len() * REPOS_PER_PART);
        for part in &parts {
            self.settings.stop.check()?;
            let mut stored = part.read(&self.storage).await?;
            let mut headers = stored.read_headers(&self.storage).await?.peekable();
            for row in &mut stored.rows {
                // Both tables are sorted by repository.
                let is_next = |next: &Result<StoredHeader>| {
                    next.as_ref().map_or(true, |next| next.repo <= row.repo)
                };
                let of_repo = headers.peeking_take_while(is_next);
                let of_repo = of_repo.filter_ok(|header| header.repo == row.repo);
                let of_repo: Vec<_> = of_repo.try_collect()?;
                if !row.depends_on_headers() {
                    row.set_current();
                } else if let Some(counted) = recount(&self.client, row, &of_repo).await {
                    *row = counted;
                } else {
                    summary.not_recounted += 1;
                }
            }
            stored.write(&self.storage).await?;
            summary.add_rows(&stored.rows);
            progress.update(|progress| {
                (progress.done, progress.failed) = (summary.repos(), summary.failed());
            });
        }
        Ok(summary)
    }
}
