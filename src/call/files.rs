//! The files of a call of the client at their origin.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use hf_meta_format::formats::weight_sets::WeightSet;
use hf_meta_format::formats::{FileHeader, RepoPath, chain};
use hf_meta_inspect::{Files, Listing, Loaded, OpenIndex, Part, Work};
use tokio::time::timeout;

use crate::backends::{CachedCommit, Origin};
use crate::base::blocking::CallWork;
use crate::base::budget::CallBudget;
use crate::base::meter::CallMeter;
use crate::base::{Callback, FilePart, OnHeader, OnProgress, Progress};
use crate::cache::HeaderBytes;
use crate::error::Error;
use crate::hub::{CommitSha, HubReportedCount, ManifestFile, RepoId};

/// The maximum wait for the count that the Hub reports. The count is optional, and its quota may be exhausted for
/// minutes.
const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// The files of a call at their origin.
#[derive(Clone, Debug)]
pub(crate) struct CallFiles {
    origin: Origin,
    work: CallWork,
    on_progress: Option<OnProgress>,
    on_header: Option<OnHeader>,
    meter: CallMeter,
    /// The number of bytes in the meter before the call, which other calls may share.
    bytes_before: u64,
}

impl CallFiles {
    pub(crate) fn new(
        origin: Origin,
        on_progress: Option<OnProgress>,
        on_header: Option<OnHeader>,
        meter: CallMeter,
    ) -> Self {
        let (work, bytes_before) = (CallWork::default(), meter.stats().bytes_read);
        Self { origin, work, on_progress, on_header, meter, bytes_before }
    }

    /// Returns the same files, read from stored bytes only. The origin provides their names.
    pub(super) fn stored(&self, bytes: HeaderBytes, budget: CallBudget) -> Self {
        let origin = self.origin.clone();
        let origin = Origin::Cached(Arc::new(CachedCommit { origin, bytes, budget }));
        Self { origin, work: CallWork::default(), ..self.clone() }
    }

    /// Returns the same files at a commit.
    pub(super) fn pinned(&self, commit: &CommitSha) -> Self {
        Self { origin: self.origin.pinned(Some(commit)), ..self.clone() }
    }

    /// Runs work that reads no further bytes.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        self.work.run(0, work)
    }

    /// Reads a small file.
    pub(super) async fn read_file(&self, path: &RepoPath, limit: u64) -> Result<Vec<u8>, Error> {
        Ok(self.origin.files().load(path, limit).await?.value)
    }

    /// Lists all files of a repository with their hashes. Returns `None` for sources other than a Hub.
    pub(super) async fn hashed_files(
        &self,
    ) -> Result<Option<(Vec<ManifestFile>, Option<CommitSha>)>, Error> {
        let Some(repo) = self.origin.online() else { return Ok(None) };
        repo.hashed_files().await.map(Some)
    }

    /// Requests the parameter count that the Hub itself reports. Returns `None` if it reports none.
    pub(super) async fn hub_count(&self) -> Result<Option<HubReportedCount>, Error> {
        let Some(repo) = self.origin.online() else { return Ok(None) };
        repo.reported_count().await
    }
}

impl Files for CallFiles {
    fn read<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        async move {
            let read = self.origin.files().read_range(path, range).await?;
            let FilePart { bytes, file_size } = read.value;
            let (commit, sha256) = (read.commit, read.sha256);
            Ok(Part { bytes, file_size: Some(file_size), commit, sha256 })
        }
        .boxed()
    }

    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> BoxFuture<'a, Result<Loaded, Error>> {
        let loaded = self.origin.files().load(path, limit);
        loaded.map_ok(|read| Loaded { bytes: Arc::new(read.value), commit: read.commit }).boxed()
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
        let listed = self.origin.files().list(folder);
        let only_requested = move |mut listed: Option<Listing>| {
            if let Some(listing) = &mut listed {
                // A server may list files that were not requested.
                listing.files.retain(|file| file.is_below(folder));
            }
            listed
        };
        listed.map_ok(only_requested).boxed()
    }

    fn run_work(&self, bytes: usize, work: Work) -> BoxFuture<'static, ()> {
        self.work.run(bytes, work)
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.origin.files().file_name(path)
    }

    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        self.origin.files().open_index(path, limit)
    }

    fn at_commit(&self, commit: &CommitSha) -> Option<Arc<dyn Files>> {
        Some(Arc::new(self.pinned(commit)))
    }

    fn commit(&self) -> Option<CommitSha> {
        self.origin.repo().and_then(|repo| repo.revision.as_str().parse().ok())
    }

    fn is_repo(&self) -> bool {
        self.origin.repo().is_some()
    }

    fn renamed(&self) -> Option<RepoId> {
        self.origin.repo()?.canonical.get().cloned()
    }

    fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        self.origin.files().may_guess(path, requests)
    }

    fn on_header(&self, header: &FileHeader) {
        if let Some(Callback(on_header)) = &self.on_header {
            on_header(header);
        }
    }

    fn on_progress(&self, done: usize, total: usize) -> Result<(), Error> {
        if let Some(Callback(on_progress)) = &self.on_progress {
            let bytes_read = self.meter.stats().bytes_read.saturating_sub(self.bytes_before);
            on_progress(Progress { done, total, bytes_read });
        }
        Ok(())
    }

    fn parsed_headers<'a>(
        &'a self,
        index: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Loaded>, Error>> {
        async move {
            let Some(repo) = self.origin.online() else { return Ok(None) };
            let read = repo.parsed_headers(index, limit).await?;
            Ok(read.map(|read| Loaded { bytes: Arc::new(read.value), commit: read.commit }))
        }
        .boxed()
    }

    fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
        wait_for_hub(self.hub_count()).boxed()
    }

    fn missing_shards(&self, set: &WeightSet) -> Option<Error> {
        match &self.origin {
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
