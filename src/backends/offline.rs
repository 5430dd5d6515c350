//! A repository that is read without a request.

use std::ops::Range;

use futures::future::{FutureExt, ready};

use super::{Backend, Fetch, HubCacheSnapshot, HubRepo, ListFuture};
use crate::cache::CacheIdentity;
use crate::error::{Error, SnapshotError};
use crate::formats::RepoPath;
use crate::formats::weight_sets::WeightSet;
use crate::http::transfer::RangeBytes;

/// A revision of a repository for an offline client: its snapshot in the disk cache of `huggingface_hub`. If it has
/// none, every read fails, and only our own header cache can answer a call.
#[derive(Debug)]
pub(crate) struct OfflineRepo {
    /// The repository that is not requested.
    pub(crate) hub: HubRepo,
    pub(crate) snapshot: Result<HubCacheSnapshot, SnapshotError>,
}

impl OfflineRepo {
    fn snapshot(&self) -> Result<&HubCacheSnapshot, Error> {
        self.snapshot.as_ref().map_err(|source| Error::NotCached {
            repo: self.hub.repo.clone(),
            revision: self.hub.revision.clone(),
            source: source.clone(),
        })
    }
}

impl Backend for OfflineRepo {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        match self.snapshot() {
            Ok(snapshot) => snapshot.read_range(path, range),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        match self.snapshot() {
            Ok(snapshot) => snapshot.read_whole(path, limit),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        match self.snapshot() {
            Ok(snapshot) => snapshot.list(folder),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.hub.file_name(path)
    }

    fn name(&self) -> String {
        self.hub.name()
    }

    fn has_commits(&self) -> bool {
        true
    }

    fn is_offline(&self) -> bool {
        true
    }

    fn cache_identity(&self) -> Option<CacheIdentity<'_>> {
        self.hub.cache_identity()
    }

    fn missing_shards(&self, set: &WeightSet, total: u32) -> Error {
        match self.snapshot() {
            Ok(snapshot) => snapshot.missing_shards(set, total),
            Err(error) => error,
        }
    }
}
