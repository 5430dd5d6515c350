//! Our own header cache: one backend serves a cached commit, and another records header bytes for the cache.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, StreamExt};
use tokio::task::yield_now;

use super::{Backend, ByteStream, Fetch, Fetched, FileListing, ListFuture};
use crate::cache::{CachedFile, CachedHeaders, Deflated, Deflater, RecordedHeaders};
use crate::error::Error;
use crate::formats::weight_sets::WeightSet;
use crate::formats::{FileHeader, RepoPath};
use crate::http::blocking::spawn_blocking_if_large;
use crate::http::transfer::{BodyEvent, RangeBytes};
use crate::hub::CommitSha;

/// The chunk size of a streamed cached file, in bytes. Larger chunks would be parsed on another thread.
const PIECE: usize = 1 << 16;

/// A cached commit of another backend. It serves only what an earlier call has read.
///
/// Ranges are truncated at the end of the cached bytes, which is the end of the header.
#[derive(Debug)]
pub(crate) struct CachedCommit {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) commit: CommitSha,
    pub(crate) headers: CachedHeaders,
}

impl CachedCommit {
    /// Decompresses `length` bytes of a file. Returns `None` if the file is not cached or its entry is corrupt.
    async fn inflate<T: Send + 'static>(
        &self,
        path: &RepoPath,
        length: u64,
        inflate: impl FnOnce(CachedFile) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let file = self.headers.file(path)?;
        let length = usize::try_from(length.min(file.start.length())).unwrap_or(usize::MAX);
        spawn_blocking_if_large(length, move || inflate(file)).await
    }

    /// Checks a file against the size limit of this call. An earlier call may have had a larger limit.
    fn check_length(&self, path: &RepoPath, limit: u64) -> Result<(), Error> {
        match self.headers.file(path) {
            Some(file) if file.start.length() > limit => {
                Err(Error::TooLarge { file: self.file_name(path), limit })
            }
            _ => Ok(()),
        }
    }

    fn fetched<T>(
        &self,
        value: Option<T>,
        name: impl FnOnce() -> String,
    ) -> Result<Fetched<T>, Error> {
        let commit = Some(self.commit.clone());
        let missing = || Error::FileNotFound { file: name(), source: "it is not cached".into() };
        value.map(|value| Fetched::new(value, commit)).ok_or_else(missing)
    }
}

impl Backend for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let read = self.inflate(path, range.end, move |file| file.range(&range)).await;
            self.fetched(read, || self.file_name(path))
        }
        .boxed()
    }

    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        async move {
            self.check_length(path, limit)?;
            let read = self.inflate(path, limit, |file| file.whole()?.inflate()).await;
            self.fetched(read, || self.file_name(path))
        }
        .boxed()
    }

    /// Yields a file in chunks, as a download would. Shards are parsed in the meantime.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, ByteStream> {
        if let Err(error) = self.check_length(path, limit) {
            return ready(Err(error)).boxed();
        }
        let whole = self.headers.file(path).and_then(CachedFile::whole);
        let fetched = self.fetched(whole, || self.file_name(path));
        let name = self.file_name(path);
        let stream = fetched.map(|Fetched { value, commit, .. }| {
            let start =
                BodyEvent::Start { response: commit.clone(), content_length: Some(value.length()) };
            let pieces = stream::iter(value.pieces(PIECE)).then(move |piece| {
                let piece = piece.map(BodyEvent::Bytes);
                let piece = piece.map_err(|error| Error::from_io(name.clone(), error));
                yield_now().map(|()| piece)
            });
            let events = stream::iter([Ok(start)]).chain(pieces).boxed();
            Fetched::new(events, commit)
        });
        ready(stream).boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let listed = self.fetched(self.headers.listing(folder), || "list of files".to_owned());
        let listing = |Fetched { value: (files, is_complete), commit, .. }| {
            Some(FileListing { files, commit, is_complete })
        };
        ready(listed.map(listing)).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.inner.file_name(path)
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

/// Wraps another backend and records its header bytes for the cache. Clones share the recording, and so do the
/// backends that `at_commit` and `anonymous` return.
#[derive(Clone, Debug)]
pub(crate) struct CacheRecorder {
    inner: Arc<dyn Backend>,
    recorded: Arc<Mutex<Recorded>>,
    on_header: Option<OnHeader>,
}

/// A callback for each header that is read.
#[derive(Clone)]
pub struct OnHeader(pub Arc<dyn Fn(&FileHeader) + Send + Sync>);

impl fmt::Debug for OnHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnHeader")
    }
}

#[derive(Debug, Default)]
struct Recorded {
    headers: RecordedHeaders,
    /// The commit of the call, once it is known.
    commit: Option<CommitSha>,
}

impl CacheRecorder {
    pub(super) fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, recorded: Arc::default(), on_header: None }
    }

    /// Creates a recorder that passes each header to a callback.
    pub(crate) fn observed(inner: Arc<dyn Backend>, on_header: OnHeader) -> Self {
        Self { on_header: Some(on_header), ..Self::new(inner) }
    }

    /// Takes the recorded bytes. Returns `None` if they must not be cached or the commit is unknown.
    pub(crate) fn take(&self) -> Option<(CommitSha, CachedHeaders)> {
        let Recorded { headers, commit } = self.record(std::mem::take);
        Some((commit?, headers.finish(self.canonical_name())?))
    }

    fn record<T>(&self, record: impl FnOnce(&mut Recorded) -> T) -> T {
        record(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn around(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, ..self.clone() })
    }
}

impl Backend for CacheRecorder {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        let start = range.start;
        let read = self.inner.read_range(path, range);
        read.inspect(move |read| {
            if let Ok(read) = read {
                self.record(|to| {
                    to.headers.fill_gap(path, start);
                    to.headers.add_range(path, start, &read.value, read.sha256.as_deref());
                });
            }
        })
        .boxed()
    }

    /// Records a whole file. If access is denied or the file is over the limit, another reader could get another
    /// result, so the commit is not cached.
    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        let read = self.inner.read_whole(path, limit);
        read.inspect(move |read| match read {
            Ok(read) => {
                let file = Deflated::from_bytes(&read.value);
                self.record(|to| to.headers.add_file(path, file));
            }
            Err(error) if error.is_denied() || matches!(error, Error::TooLarge { .. }) => {
                self.record(|to| to.headers.skip_caching());
            }
            Err(_) => {}
        })
        .boxed()
    }

    /// Records a streamed file once it is complete.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, ByteStream> {
        async move {
            let Fetched { value, commit, .. } = self.inner.stream(path, limit).await?;
            let (recorder, path, mut file) = (self.clone(), path.clone(), None);
            let events = value.map(Some).chain(stream::iter([None]));
            let events = events.filter_map(move |event| {
                match &event {
                    Some(Ok(BodyEvent::Start { .. })) => file = Some(Deflater::default()),
                    Some(Ok(BodyEvent::Bytes(bytes))) => {
                        if let Some(file) = &mut file {
                            file.add(bytes);
                        }
                    }
                    Some(Err(_)) => file = None,
                    None => {
                        if let Some(file) = file.take() {
                            recorder.record(|to| to.headers.add_file(&path, file.finish()));
                        }
                    }
                }
                ready(event)
            });
            Ok(Fetched::new(events.boxed(), commit))
        }
        .boxed()
    }

    /// Records a listing. A missing listing may be temporary, so the commit is then not cached.
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

    /// Compresses the header, so that the uncompressed headers of a call are never all in memory.
    fn header_read<'a>(&'a self, path: &'a RepoPath, header: &'a FileHeader) -> BoxFuture<'a, ()> {
        async move {
            if let Some(OnHeader(on_header)) = &self.on_header {
                on_header(header);
            }
            let end = header.header_range().end;
            let Some(start) = self.record(|to| to.headers.take_start(path, end)) else { return };
            let file = spawn_blocking_if_large(start.len(), move || start.compress()).await;
            self.record(|to| to.headers.add_start(path, file));
        }
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.inner.file_name(path)
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

    /// Forwards the request. The response is not cached, because it contains no header bytes.
    fn hub_headers<'a>(
        &'a self,
        index: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Fetched<Vec<u8>>>, Error>> {
        let read = self.inner.hub_headers(index, limit);
        read.inspect(|read| {
            if matches!(read, Ok(Some(_))) {
                self.record(|to| to.headers.skip_caching());
            }
        })
        .boxed()
    }

    fn anonymous(&self) -> Option<Arc<dyn Backend>> {
        Some(self.around(self.inner.anonymous()?))
    }

    fn missing_shards(&self, set: &WeightSet, total: u32) -> Error {
        self.inner.missing_shards(set, total)
    }
}
