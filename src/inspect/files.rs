//! The files of a call: read from their origin or from the header cache, and recorded for it.

use std::ops::Range;
use std::sync::Arc;

use futures::future::{FutureExt, TryFutureExt};

use crate::backends::{CachedCommit, Fetched, FileListing, OpenIndex, Origin};
use crate::base::RangeBytes;
use crate::cache::{HeaderBytes, Recorder, Recording};
use crate::error::Error;
use crate::formats::weight_sets::{IncompleteShards, WeightSet};
use crate::formats::{FileHeader, RepoPath};
use crate::hub::{CommitSha, HubReportedCount, RepoId};

/// The files of a call. Clones share the recorder.
#[derive(Clone, Debug)]
pub(crate) struct CallFiles {
    pub(super) origin: Origin,
    /// Records the bytes that are read.
    recorder: Recorder,
}

impl CallFiles {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin, recorder: Recorder::default() }
    }

    /// Returns the same files, read from cached bytes only. The origin provides their names.
    pub(super) fn cached(&self, bytes: HeaderBytes) -> Self {
        let origin = self.origin.clone();
        Self::new(Origin::Cached(Arc::new(CachedCommit { origin, bytes })))
    }

    /// Returns the same files, with a new recording.
    pub(super) fn recorded(&self) -> Self {
        Self { origin: self.origin.clone(), recorder: Recorder::start() }
    }

    /// Takes the recorded bytes. Returns `None` if they must not be cached or the commit is unknown.
    pub(super) async fn take_recorded(&self) -> Option<HeaderBytes> {
        self.recorder.finish_files().await;
        self.recorder.update(|recording| recording.finish(self.canonical_name()))
    }

    /// Returns the files at a commit, if the commit is known.
    pub(super) fn pinned(&self, commit: Option<&CommitSha>) -> Self {
        if let Some(commit) = commit {
            self.recorder.update(|recording| recording.commit = Some(commit.clone()));
        }
        Self { origin: self.origin.pinned(commit), ..self.clone() }
    }

    /// Reads a range of a file; see `FileSource::read_range`.
    pub(super) async fn read_range(
        &self,
        path: &RepoPath,
        range: Range<u64>,
    ) -> Result<Fetched<RangeBytes>, Error> {
        let start = range.start;
        let read = self.origin.files().read_range(path, range).await?;
        let sha256 = read.sha256.as_deref();
        self.recorder.update(|recording| recording.add_range(path, start, &read.value, sha256));
        Ok(read)
    }

    /// Reads a whole file. If access is denied or the file is over the limit, another reader could get another
    /// result, so the commit is not cached.
    pub(crate) async fn read_whole(
        &self,
        path: &RepoPath,
        limit: u64,
    ) -> Result<Fetched<Vec<u8>>, Error> {
        let read = self.origin.files().load(path, limit).await;
        match &read {
            Ok(read) => self.recorder.add_file(path, &read.value),
            Err(error) if error.is_denied() || matches!(error, Error::TooLarge { .. }) => {
                self.recorder.update(Recording::discard);
            }
            Err(_) => {}
        }
        read
    }

    /// Starts reading an index. It is recorded once it is complete.
    pub(super) async fn open_index(&self, path: &RepoPath, limit: u64) -> Result<OpenIndex, Error> {
        let opened = self.origin.files().open_index(path, limit).await?;
        if !self.recorder.is_active() {
            return Ok(opened);
        }
        let (recorder, path, rest) = (self.recorder.clone(), path.clone(), opened.rest);
        let rest = rest.inspect_ok(move |index| recorder.start_file(path, &index.value));
        Ok(OpenIndex { rest: rest.boxed(), ..opened })
    }

    /// Returns whether shards may be read before the index names them, which may turn out to be useless.
    pub(super) fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        self.origin.files().may_guess(path, requests)
    }

    /// Lists files. A missing listing may be temporary, so the commit is then not cached.
    pub(super) async fn list(
        &self,
        folder: Option<&RepoPath>,
    ) -> Result<Option<FileListing>, Error> {
        let mut listed = self.origin.files().list(folder).await?;
        if let Some(listing) = &mut listed {
            // A server may list files that were not requested.
            listing.files.retain(|file| file.is_below(folder));
        }
        self.recorder.update(|recording| match &listed {
            Some(FileListing { files, is_complete, .. }) => {
                recording.add_listing(folder, files, *is_complete);
            }
            None => recording.discard(),
        });
        Ok(listed)
    }

    /// Ends the recording of a header that was parsed.
    pub(super) async fn header_read(&self, path: &RepoPath, header: &FileHeader) {
        self.recorder.end_header(path, header.header_range().end).await;
    }

    /// Requests all headers of an index at once, as parsed by the Hub. They contain no header bytes, so the commit is
    /// not cached.
    pub(super) async fn parsed_headers(
        &self,
        index: &RepoPath,
        limit: u64,
    ) -> Result<Option<Fetched<Vec<u8>>>, Error> {
        let Some(repo) = self.origin.online() else { return Ok(None) };
        let read = repo.parsed_headers(index, limit).await?;
        if read.is_some() {
            self.recorder.update(Recording::discard);
        }
        Ok(read)
    }

    /// Requests the parameter count that the Hub itself reports. Returns `None` if it reports none.
    pub(crate) async fn reported_count(&self) -> Result<Option<HubReportedCount>, Error> {
        let Some(repo) = self.origin.online() else { return Ok(None) };
        repo.reported_count().await
    }

    /// Returns the name of a file for messages.
    pub(super) fn file_name(&self, path: &RepoPath) -> String {
        self.origin.files().file_name(path)
    }

    /// Returns whether files come from the header cache and cost no requests.
    pub(super) fn is_cached(&self) -> bool {
        matches!(self.origin, Origin::Cached(_))
    }

    /// Returns the length of a cached file, which is decompressed as a whole; 0 if it is not cached.
    pub(super) fn cached_length(&self, path: &RepoPath) -> u64 {
        let Origin::Cached(cached) = &self.origin else { return 0 };
        cached.bytes.headers.file(path).map_or(0, |file| file.start.length)
    }

    /// Returns the canonical name of the repository if it differs from the requested one.
    pub(super) fn canonical_name(&self) -> Option<RepoId> {
        self.origin.repo()?.canonical.get().cloned()
    }

    /// Returns the error for a set that lacks some of its shards.
    pub(super) fn missing_shards(&self, set: &WeightSet, missing: IncompleteShards) -> Error {
        if let Origin::Offline(repo) = &self.origin {
            return repo.missing_shards(set);
        }
        let IncompleteShards { total, first_missing, .. } = missing;
        let name = self.file_name(&set.path);
        Error::IncompleteShards { set: name, found: set.files, total, first_missing }
    }
}
