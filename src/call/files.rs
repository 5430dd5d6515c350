//! The files of a call of the client: read from their origin or from the header cache, recorded for it, and limited by
//! the budget of the call.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use hf_meta_format::formats::weight_sets::WeightSet;
use hf_meta_format::formats::{FileHeader, RepoPath, chain};
use hf_meta_inspect::{Files, HeldMemory, Listing, Loaded, OpenIndex, Part, Work};
use tokio::time::timeout;

use crate::backends::{CachedCommit, Origin};
use crate::base::blocking::CallWork;
use crate::base::budget::CallBudget;
use crate::base::{Callback, OnHeader, OnProgress, Progress};
use crate::cache::{HeaderBytes, Recorder, Recording};
use crate::error::Error;
use crate::hub::{CommitSha, HubReportedCount, RepoId};

/// The maximum wait for the count that the Hub reports. The count is optional, and its quota may be exhausted for
/// minutes.
const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// The files of a call.
#[derive(Clone, Debug)]
pub(crate) struct CallFiles(Arc<CallState>);

/// The origin of the files, and what the call does with them.
#[derive(Clone, Debug)]
struct CallState {
    recorded: Recorded,
    budget: CallBudget,
    work: CallWork,
    on_progress: Option<OnProgress>,
    on_header: Option<OnHeader>,
}

/// An origin whose bytes are recorded. Clones share the recorder.
#[derive(Clone, Debug)]
struct Recorded {
    origin: Origin,
    recorder: Recorder,
}

impl Recorded {
    async fn read(&self, path: &RepoPath, range: Range<u64>) -> Result<Part, Error> {
        let start = range.start;
        let read = self.origin.files().read_range(path, range).await?;
        let sha256 = read.sha256.as_deref();
        self.recorder.update(|recording| recording.add_range(path, start, &read.value, sha256));
        let (bytes, file_size) = (read.value.bytes, Some(read.value.file_size));
        Ok(Part { bytes, file_size, commit: read.commit })
    }

    /// Reads a whole file. If access is denied or the file is over the limit, another reader could get another
    /// result, so the commit is not cached.
    async fn load(&self, path: &RepoPath, limit: u64) -> Result<Loaded, Error> {
        let read = self.origin.files().load(path, limit).await;
        match &read {
            Ok(read) => self.recorder.add_file(path, &read.value),
            Err(error) if error.is_denied() || matches!(error, Error::TooLarge { .. }) => {
                self.recorder.update(Recording::discard);
            }
            Err(_) => {}
        }
        read.map(|read| Loaded { bytes: Arc::new(read.value), commit: read.commit })
    }

    /// Starts reading an index. It is recorded once it is complete.
    async fn open_index(&self, path: &RepoPath, limit: u64) -> Result<OpenIndex, Error> {
        let opened = self.origin.files().open_index(path, limit).await?;
        if !self.recorder.is_active() {
            return Ok(opened);
        }
        let (recorder, path, rest) = (self.recorder.clone(), path.clone(), opened.rest);
        let rest = rest.inspect_ok(move |index| recorder.start_file(path, &index.bytes));
        Ok(OpenIndex { rest: rest.boxed(), ..opened })
    }

    /// Lists files. A missing listing may be temporary, so the commit is then not cached.
    async fn list(&self, folder: Option<&RepoPath>) -> Result<Option<Listing>, Error> {
        let mut listed = self.origin.files().list(folder).await?;
        if let Some(listing) = &mut listed {
            // A server may list files that were not requested.
            listing.files.retain(|file| file.is_below(folder));
        }
        self.recorder.update(|recording| match &listed {
            Some(Listing { files, is_complete, .. }) => {
                recording.add_listing(folder, files, *is_complete);
            }
            None => recording.discard(),
        });
        Ok(listed)
    }

    /// Returns the same files at a commit.
    fn at_commit(&self, commit: &CommitSha) -> Self {
        self.recorder.update(|recording| recording.commit = Some(commit.clone()));
        Self { origin: self.origin.pinned(Some(commit)), recorder: self.recorder.clone() }
    }
}

impl CallFiles {
    pub(crate) fn new(
        origin: Origin,
        budget: CallBudget,
        on_progress: Option<OnProgress>,
        on_header: Option<OnHeader>,
    ) -> Self {
        let recorded = Recorded { origin, recorder: Recorder::default() };
        let work = CallWork::default();
        Self(Arc::new(CallState { recorded, budget, work, on_progress, on_header }))
    }

    /// Returns the same files, read from stored bytes only. The origin provides their names.
    pub(super) fn stored(&self, bytes: HeaderBytes) -> Self {
        let origin = self.0.recorded.origin.clone();
        let origin = Origin::Cached(Arc::new(CachedCommit { origin, bytes }));
        self.with(Recorded { origin, recorder: Recorder::default() })
    }

    /// Returns the same files, with a new recording.
    pub(super) fn recorded(&self) -> Self {
        let origin = self.0.recorded.origin.clone();
        self.with(Recorded { origin, recorder: Recorder::start() })
    }

    /// Returns the same files at a commit.
    pub(super) fn pinned(&self, commit: &CommitSha) -> Self {
        let recorded = self.0.recorded.at_commit(commit);
        Self(Arc::new(CallState { recorded, ..CallState::clone(&self.0) }))
    }

    fn with(&self, recorded: Recorded) -> Self {
        let work = CallWork::default();
        Self(Arc::new(CallState { recorded, work, ..CallState::clone(&self.0) }))
    }

    /// Takes the recorded bytes. Returns `None` if they must not be cached or the commit is unknown.
    pub(super) async fn take_recorded(&self) -> Option<HeaderBytes> {
        let recorder = &self.0.recorded.recorder;
        recorder.finish_files().await;
        recorder.update(|recording| recording.finish(self.renamed()))
    }

    /// Runs work that reads no further bytes.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        self.0.work.run(0, work)
    }

    /// Reads a small file.
    pub(super) async fn read_file(&self, path: &RepoPath, limit: u64) -> Result<Vec<u8>, Error> {
        Ok(self.0.recorded.origin.files().load(path, limit).await?.value)
    }

    /// Requests the parameter count that the Hub itself reports. Returns `None` if it reports none.
    pub(super) async fn hub_count(&self) -> Result<Option<HubReportedCount>, Error> {
        let Some(repo) = self.0.recorded.origin.online() else { return Ok(None) };
        repo.reported_count().await
    }
}

impl Files for CallFiles {
    fn read<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        self.0.recorded.read(path, range).boxed()
    }

    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> BoxFuture<'a, Result<Loaded, Error>> {
        self.0.recorded.load(path, limit).boxed()
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
        self.0.recorded.list(folder).boxed()
    }

    fn run_work(&self, bytes: usize, work: Work) -> BoxFuture<'static, ()> {
        self.0.work.run(bytes, work)
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.0.recorded.origin.files().file_name(path)
    }

    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        async move {
            if let Origin::Cached(cached) = &self.0.recorded.origin {
                // It is decompressed as a whole.
                let length = cached.bytes.headers.file(path).map_or(0, |file| file.start.length);
                self.0.budget.admit_bytes(length).await?;
            }
            self.0.recorded.open_index(path, limit).await
        }
        .boxed()
    }

    fn at_commit(&self, commit: &CommitSha) -> Option<Arc<dyn Files>> {
        Some(Arc::new(self.pinned(commit)))
    }

    fn commit(&self) -> Option<CommitSha> {
        self.0.recorded.origin.repo().and_then(|repo| repo.revision.as_str().parse().ok())
    }

    fn is_repo(&self) -> bool {
        self.0.recorded.origin.repo().is_some()
    }

    fn renamed(&self) -> Option<RepoId> {
        self.0.recorded.origin.repo()?.canonical.get().cloned()
    }

    fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        // A call with a budget waits for the number of its requests instead.
        self.0.budget.is_unlimited() && self.0.recorded.origin.files().may_guess(path, requests)
    }

    /// Cached files cost no requests.
    fn admit_requests(&self, requests: usize) -> Result<(), Error> {
        match self.0.recorded.origin {
            Origin::Cached(_) => Ok(()),
            _ => Ok(self.0.budget.admit_requests(requests)?),
        }
    }

    fn admit_bytes(&self, bytes: u64) -> BoxFuture<'_, Result<(), Error>> {
        self.0.budget.admit_bytes(bytes).map_err(Error::from).boxed()
    }

    fn hold(&self, bytes: u64) -> BoxFuture<'_, HeldMemory> {
        self.0.budget.hold(bytes).map(|permit| -> HeldMemory { Some(Box::new(permit)) }).boxed()
    }

    fn end_header<'a>(&'a self, path: &'a RepoPath, header: &'a FileHeader) -> BoxFuture<'a, ()> {
        self.0.recorded.recorder.end_header(path, header.header_range().end).boxed()
    }

    fn on_header(&self, header: &FileHeader) {
        if let Some(Callback(on_header)) = &self.0.on_header {
            on_header(header);
        }
    }

    fn on_progress(&self, done: usize, total: usize) -> Result<(), Error> {
        if let Some(Callback(on_progress)) = &self.0.on_progress {
            on_progress(Progress { done, total });
        }
        Ok(())
    }

    /// The response contains no header bytes, so the commit is not cached.
    fn parsed_headers<'a>(
        &'a self,
        index: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Loaded>, Error>> {
        async move {
            let Some(repo) = self.0.recorded.origin.online() else { return Ok(None) };
            let read = repo.parsed_headers(index, limit).await?;
            if read.is_some() {
                self.0.recorded.recorder.update(Recording::discard);
            }
            Ok(read.map(|read| Loaded { bytes: Arc::new(read.value), commit: read.commit }))
        }
        .boxed()
    }

    fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
        wait_for_hub(self.hub_count()).boxed()
    }

    fn missing_shards(&self, set: &WeightSet) -> Option<Error> {
        match &self.0.recorded.origin {
            Origin::Offline(repo) => Some(repo.missing_shards(set)),
            _ => None,
        }
    }
}

/// Waits at most [`HUB_TIMEOUT`] for the count that the Hub reports. Returns a message if it cannot be read.
async fn wait_for_hub(
    request: impl Future<Output = Result<Option<HubReportedCount>, Error>>,
) -> Result<Option<u64>, String> {
    match timeout(HUB_TIMEOUT, request).await {
        Ok(Ok(reported)) => Ok(reported.map(|reported| reported.total)),
        // Mirrors serve the files, but often little of the API.
        Ok(Err(error)) if error.is_not_found() || error.status() == Some(404) => Ok(None),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("no response within {} s", HUB_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use tokio::time::Instant;

    use super::*;

    /// The quota of the Hub's API can be exhausted for 300 s.
    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_hub_count_is_bounded() {
        let started = Instant::now();
        let reason = wait_for_hub(pending()).await.unwrap_err();
        assert_eq!((&*reason, started.elapsed()), ("no response within 5 s", HUB_TIMEOUT));
    }
}
