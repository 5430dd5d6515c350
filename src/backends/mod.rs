//! Backends: the places that files are read from.
//!
//! | module | reads |
//! |---|---|
//! | `hub` | a repository on a Hub |
//! | `snapshot` | a repository offline: the files that `huggingface_hub` has downloaded, or a commit from our own header cache |
//! | `web` | the folder of a file on any web server |
//! | `store` | a store that the caller implements, such as a bucket, or a local folder |
//!
//! Each of them is a [`FileSource`]. Only a repository on a Hub also has commits, a token and an API; [`Origin`] tells
//! them apart. To add a folder without commits, implement [`FileSource`] and add a match arm where a
//! [`Source`](crate::Source) becomes an origin (`client/model_call.rs`).

mod hub;
mod snapshot;
mod source;
mod store;
mod web;

use std::sync::Arc;

pub(crate) use self::hub::HubRepo;
pub(crate) use self::snapshot::{CachedCommit, OfflineRepo};
pub(crate) use self::source::FileSource;
pub use self::store::{FileStore, RangeBytes};
pub(crate) use self::store::{FileVersions, StoreFolder, local_folder};
pub(crate) use self::web::{WebFolder, explain};
use crate::hub::CommitSha;

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
        if let Self::Hub(repo) = self { Some(repo) } else { None }
    }

    /// Returns the repository; `None` for a folder, which has no commits.
    pub(crate) fn repo(&self) -> Option<&HubRepo> {
        match self {
            Self::Hub(repo) => Some(repo),
            Self::Offline(repo) => Some(&repo.hub),
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
