//! Backends: the places that files are read from, behind one trait.
//!
//! | module | reads |
//! |---|---|
//! | `hub` | a repository on a Hub |
//! | `web` | the folder of a file on any web server |
//! | `disk` | a local folder |
//! | `hub_cache` | a repository without a request: its snapshot in the disk cache of `huggingface_hub` |
//! | `cached` | a commit from our own header cache; or another backend, whose headers it records |
//!
//! To add a backend, write a module that implements [`Backend`], and add one match arm where a
//! [`Source`](crate::Source) becomes a backend (`client/model.rs`).

mod cached;
mod call_hooks;
mod disk;
mod header_cache;
mod http_error;
mod hub;
mod hub_cache;
mod large_call;
mod stream;
mod web;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};

pub use self::cached::OnHeader;
pub(crate) use self::cached::{CacheRecorder, CachedCommit};
pub use self::call_hooks::CallHooks;
pub(crate) use self::disk::DiskFolder;
pub(crate) use self::header_cache::{CacheTarget, HeaderCache};
pub(crate) use self::http_error::explain;
pub(crate) use self::hub::HubRepo;
pub(crate) use self::hub_cache::OfflineRepo;
pub use self::large_call::{LargeCallPermit, MAX_SMALL_CALL};
pub(crate) use self::stream::{ByteStream, poll_alongside};
pub(crate) use self::web::WebFolder;
use crate::cache::CacheIdentity;
use crate::error::Error;
use crate::formats::weight_sets::{ListedFile, WeightSet};
use crate::formats::{FileHeader, RepoPath};
use crate::http::transfer::RangeBytes;
use crate::hub::{CommitSha, HubReportedCount};

/// The future of a value read from a file.
pub(crate) type Fetch<'a, T> = BoxFuture<'a, Result<Fetched<T>, Error>>;

/// The future of a listing.
pub(crate) type ListFuture<'a> = BoxFuture<'a, Result<Option<FileListing>, Error>>;

/// A folder of files, addressed by their paths in it. A backend is created for one call, and counts the requests and
/// bytes of that call.
///
/// Methods with a default body are for repositories. A plain folder does not need them.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0.
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes>;

    /// Reads a whole file of at most `limit` bytes.
    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>>;

    /// Streams a whole file of at most `limit` bytes. Completes once the file is known to exist.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, ByteStream> {
        self.read_whole(path, limit).map(|read| read.map(stream::from_bytes)).boxed()
    }

    /// Lists all files below a folder, or all files of the backend. Returns `None` if there is no listing, or this
    /// reader has no access to it.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a>;

    /// Reports that the header of a file was read. Bytes that were read past its end are not cached.
    fn header_read<'a>(
        &'a self,
        _path: &'a RepoPath,
        _header: &'a FileHeader,
    ) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Returns the name of a file for messages.
    fn file_name(&self, path: &RepoPath) -> String;

    /// Returns whether files belong to commits.
    fn has_commits(&self) -> bool {
        false
    }

    /// Returns whether files come from the header cache and cost no requests.
    fn is_cached(&self) -> bool {
        false
    }

    /// Returns whether this backend reads without requests. Offline backends take precedence over the header cache.
    fn is_offline(&self) -> bool {
        false
    }

    /// Returns the canonical name of the repository if it differs from the requested one.
    fn canonical_name(&self) -> Option<String> {
        None
    }

    /// Requests the current commit of the revision with one request for `path`. Returns `None` if the server does not
    /// report a commit.
    fn current_commit<'a>(
        &'a self,
        _path: &'a RepoPath,
    ) -> BoxFuture<'a, Result<Option<CommitSha>, Error>> {
        ready(Ok(None)).boxed()
    }

    /// Returns this backend pinned to a commit; `None` if it already is or has no commits.
    fn at_commit(&self, _commit: &CommitSha) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Returns this backend without its token; `None` if it has no token.
    fn anonymous(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Logs that the token is invalid and that the files are read without it.
    fn token_is_rejected(&self) {}

    /// Requests all headers of an index at once, in the form parsed by the Hub. Returns `None` if the Hub does not
    /// have them.
    fn hub_headers<'a>(
        &'a self,
        _index: &'a RepoPath,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Option<Fetched<Vec<u8>>>, Error>> {
        ready(Ok(None)).boxed()
    }

    /// Requests the parameter count that the Hub itself reports. Returns `None` if it reports none.
    fn reported_count(&self) -> BoxFuture<'_, Result<Option<HubReportedCount>, Error>> {
        ready(Ok(None)).boxed()
    }

    /// Returns the part of the cache keys that identifies this backend; `None` if its files are not cached.
    fn cache_identity(&self) -> Option<CacheIdentity<'_>> {
        None
    }

    /// Returns the error for a set that lacks some of its `total` shards.
    fn missing_shards(&self, set: &WeightSet, total: u32) -> Error {
        Error::IncompleteShards { set: self.file_name(&set.path), found: set.files, total }
    }
}

/// Pins a backend to a commit, if the commit is known and the backend has commits.
pub(crate) fn pinned(backend: &Arc<dyn Backend>, commit: Option<&CommitSha>) -> Arc<dyn Backend> {
    commit.and_then(|commit| backend.at_commit(commit)).unwrap_or_else(|| Arc::clone(backend))
}

/// A value read from a file, with the origin of the file.
pub(crate) struct Fetched<T> {
    pub(crate) value: T,
    /// The commit of the file, if the server reports it.
    pub(crate) commit: Option<CommitSha>,
    /// The SHA-256 hash of the whole file in hexadecimal, if the server reports it.
    pub(crate) sha256: Option<String>,
}

impl<T> Fetched<T> {
    pub(crate) fn new(value: T, commit: Option<CommitSha>) -> Self {
        Self { value, commit, sha256: None }
    }
}

/// The files of a backend, or of a folder in it.
#[derive(Clone, Debug)]
pub(crate) struct FileListing {
    pub(crate) files: Vec<ListedFile>,
    /// The commit of the files, if the server reports it.
    pub(crate) commit: Option<CommitSha>,
    /// True if no file is missing from the listing.
    pub(crate) is_complete: bool,
}
