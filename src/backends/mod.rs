//! Backends: the places that files are read from.
//!
//! | module | reads |
//! |---|---|
//! | `hub` | a repository on a Hub |
//! | `snapshot` | a repository offline: the files that `huggingface_hub` has downloaded |
//! | `web` | the folder of a file on any web server |
//! | `disk` | a local folder |
//! | `cached_commit` | a commit from our own header cache |
//! | `store` | a store that the caller implements, such as a bucket |
//!
//! Each of them is a [`FileSource`]. Only a repository on a Hub also has commits, a token and an API; [`Origin`] tells
//! them apart. To add a folder without commits, implement [`FileSource`] and add a match arm where a
//! [`Source`](crate::Source) becomes an origin (`client/model_call.rs`).

mod cached_commit;
mod disk;
mod hub;
mod snapshot;
mod store;
mod stream;
mod web;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;

pub(crate) use self::cached_commit::CachedCommit;
pub(crate) use self::disk::DiskFolder;
pub(crate) use self::hub::HubRepo;
pub(crate) use self::snapshot::OfflineRepo;
pub use self::store::FileStore;
pub(crate) use self::store::StoreFolder;
pub(crate) use self::stream::{FileStream, poll_alongside};
pub(crate) use self::web::{WebFolder, explain};
use crate::base::RangeBytes;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::hub::CommitSha;

/// The future of a value read from a file.
pub(crate) type Fetch<'a, T> = BoxFuture<'a, Result<Fetched<T>, Error>>;

/// The future of a listing.
pub(crate) type ListFuture<'a> = BoxFuture<'a, Result<Option<FileListing>, Error>>;

/// A folder of files, addressed by their paths in it. A source is created for one call, and counts the requests and
/// bytes of that call.
pub(crate) trait FileSource: Debug + Send + Sync {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0.
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes>;

    /// Streams a whole file of at most `limit` bytes. Completes once the file is known to exist.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, FileStream>;

    /// Lists all files below a folder, or all files of the source. Returns `None` if there is no listing, or this
    /// reader has no access to it.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a>;

    /// Returns the name of a file for messages.
    fn file_name(&self, path: &RepoPath) -> String;
}

/// The origin of a call's files.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per call, and it is usually a Hub")]
pub(crate) enum Origin {
    /// A repository on a Hub.
    Hub(HubRepo),
    /// The downloaded files of a repository. They are read without requests, and take precedence over the header
    /// cache.
    Offline(Arc<OfflineRepo>),
    /// A commit in our own header cache, which costs no requests.
    Cached(Arc<CachedCommit>),
    /// A folder without commits.
    Folder(Arc<dyn FileSource>),
}

impl Origin {
    pub(crate) fn files(&self) -> &dyn FileSource {
        match self {
            Self::Hub(repo) => repo,
            Self::Offline(repo) => &**repo,
            Self::Cached(commit) => &**commit,
            Self::Folder(folder) => &**folder,
        }
    }

    /// Returns the repository if it can be requested from its Hub.
    pub(crate) fn online(&self) -> Option<&HubRepo> {
        match self {
            Self::Hub(repo) => Some(repo),
            Self::Offline(_) | Self::Cached(_) | Self::Folder(_) => None,
        }
    }

    /// Returns the repository; `None` for a folder, which has no commits.
    pub(crate) fn repo(&self) -> Option<&HubRepo> {
        match self {
            Self::Hub(repo) => Some(repo),
            Self::Offline(repo) => Some(repo.hub()),
            Self::Cached(commit) => commit.origin.repo(),
            Self::Folder(_) => None,
        }
    }

    /// Returns the origin at a commit, if the commit is known and files can be requested by commit.
    pub(crate) fn pinned(&self, commit: Option<&CommitSha>) -> Self {
        match (self, commit) {
            (Self::Hub(repo), Some(commit)) => Self::Hub(repo.at_commit(commit)),
            _ => self.clone(),
        }
    }
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

/// The files of a source, or of a folder in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileListing {
    pub(crate) files: Vec<ListedFile>,
    /// The commit of the files, if the server reports it.
    pub(crate) commit: Option<CommitSha>,
    /// True if no file is missing from the listing.
    pub(crate) is_complete: bool,
}
