//! Our own header cache: a backend that serves a cached commit, and one that records another.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, StreamExt};

use super::{Backend, ByteStream, Fetch, Fetched, FileListing, ListFuture};
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::http::transfer::{BodyEvent, RangeBytes};
use crate::hub::CommitSha;

/// A cached commit of another backend. It serves what an earlier call has read, and nothing else.
///
/// A range ends with the cached bytes: they end with the header.
#[derive(Debug)]
pub(super) struct CachedCommit {
    pub(super) inner: Arc<dyn Backend>,
    pub(super) commit: CommitSha,
    pub(super) headers: CachedHeaders,
}

impl CachedCommit {
    fn fetched<'a, T: Send + 'a>(
        &'a self,
        value: Option<T>,
        name: impl FnOnce() -> String,
    ) -> BoxFuture<'a, Result<Fetched<T>, Error>> {
        let fetched = match value {
            Some(value) => Ok(Fetched { value, commit: Some(self.commit.clone()) }),
            None => {
                Err(Error::FileNotFound { file: name(), source: "it is not in the cache".into() })
            }
        };
        ready(fetched).boxed()
    }
}

impl Backend for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        self.fetched(self.headers.range(path, &range), || self.file_name(path))
    }

    fn read_whole<'a>(&'a self, path: &'a RepoPath, _limit: u64) -> Fetch<'a, Vec<u8>> {
        self.fetched(self.headers.whole(path), || self.file_name(path))
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let name = || format!("list of files of {}", self.name());
        let listed = self.fetched(self.headers.listing(folder), name);
        let listing = |Fetched { value: (files, is_complete), commit }| {
            Some(FileListing { files, commit, is_complete })
        };
        listed.map(move |listed| listed.map(listing)).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.inner.file_name(path)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn has_commits(&self) -> bool {
        true
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn canonical_name(&self) -> Option<String> {
        self.headers.canonical_name.clone()
    }
}

/// Another backend, whose header bytes are recorded for the cache. Clones, and the backend at a commit or
/// without its token, record in one place.
#[derive(Clone, Debug)]
pub(super) struct CacheRecorder {
    inner: Arc<dyn Backend>,
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    headers: CachedHeaders,
    /// The commit of the call, if it is known.
    commit: Option<CommitSha>,
}

impl CacheRecorder {
    pub(super) fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, recorded: Arc::default() }
    }

    /// Takes what was recorded. Returns `None` if it is not to be cached, or its commit is not known.
    pub(super) fn take(&self) -> Option<(CommitSha, CachedHeaders)> {
        let mut recorded = self.record(std::mem::take);
        recorded.headers.canonical_name = self.canonical_name();
        Some((recorded.commit?, recorded.headers)).filter(|(_, headers)| !headers.is_skipped())
    }

    fn record<T>(&self, record: impl FnOnce(&mut Recorded) -> T) -> T {
        record(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn around(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, recorded: Arc::clone(&self.recorded) })
    }
}

impl Backend for CacheRecorder {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        let start = range.start;
        let read = self.inner.read_range(path, range);
        read.inspect(move |read| {
            if let Ok(read) = read {
                self.record(|to| to.headers.add_range(path, start, &read.value));
            }
        })
        .boxed()
    }

    /// Records a whole file. If this reader may not read it, or not all of it, the result is not what
    /// another reader would get, and is not cached.
    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        let read = self.inner.read_whole(path, limit);
        read.inspect(move |read| match read {
            Ok(read) => self.record(|to| to.headers.add_file(path, read.value.clone())),
            Err(error) if error.is_denied() || matches!(error, Error::TooLarge { .. }) => {
                self.record(|to| to.headers.skip_caching());
            }
            Err(_) => {}
        })
        .boxed()
    }

    /// Records a streamed file once its end is reached.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, ByteStream> {
        async move {
            let Fetched { value, commit } = self.inner.stream(path, limit).await?;
            let (recorder, path, mut file) = (self.clone(), path.clone(), Some(Vec::new()));
            let events = value.map(Some).chain(stream::iter([None]));
            let events = events.filter_map(move |event| {
                match &event {
                    Some(Ok(BodyEvent::Start { .. })) => file = Some(Vec::new()),
                    Some(Ok(BodyEvent::Bytes(bytes))) => {
                        if let Some(file) = &mut file {
                            file.extend_from_slice(bytes);
                        }
                    }
                    Some(Err(_)) => file = None,
                    None => {
                        if let Some(file) = file.take() {
                            recorder.record(|to| to.headers.add_file(&path, file));
                        }
                    }
                }
                ready(event)
            });
            Ok(Fetched { value: events.boxed(), commit })
        }
        .boxed()
    }

    /// Records a listing. A server may have none today only, so its absence is not cached.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let listed = self.inner.list(folder);
        listed
            .inspect(move |listed| match listed {
                Ok(Some(FileListing { files, is_complete, .. })) => {
                    self.record(|to| to.headers.add_listing(folder, files, *is_complete));
                }
                Ok(None) => self.record(|to| to.headers.skip_caching()),
                Err(_) => {}
            })
            .boxed()
    }

    fn header_end(&self, path: &RepoPath, end: u64) {
        self.record(|to| to.headers.end_header(path, end));
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.inner.file_name(path)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn has_commits(&self) -> bool {
        self.inner.has_commits()
    }

    fn canonical_name(&self) -> Option<String> {
        self.inner.canonical_name()
    }

    fn at_commit(&self, commit: &CommitSha) -> Option<Arc<dyn Backend>> {
        self.record(|to| to.commit = Some(commit.clone()));
        Some(self.around(self.inner.at_commit(commit)?))
    }

    fn token_is_rejected(&self) {
        self.inner.token_is_rejected();
    }

    fn anonymous(&self) -> Option<Arc<dyn Backend>> {
        Some(self.around(self.inner.anonymous()?))
    }
}
