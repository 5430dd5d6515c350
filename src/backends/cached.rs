//! A commit in our own header cache.

use std::ops::Range;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};

use super::{Backend, Fetched, Listing};
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::http::transfer::{RangeBytes, RequestMeter};
use crate::hub::CommitSha;

/// The files of another backend's commit, as far as an earlier call has read them.
#[derive(Debug)]
pub(crate) struct CachedCommit {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) commit: CommitSha,
    pub(crate) headers: CachedHeaders,
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
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: &'a Range<u64>,
        _meter: &'a RequestMeter,
    ) -> BoxFuture<'a, Result<Fetched<RangeBytes>, Error>> {
        self.fetched(self.headers.range(path, range), || self.file_name(path))
    }

    fn read_whole<'a>(
        &'a self,
        path: &'a RepoPath,
        _limit: u64,
        _meter: &'a RequestMeter,
    ) -> BoxFuture<'a, Result<Fetched<Vec<u8>>, Error>> {
        let bytes = self.headers.whole(path).map(<[u8]>::to_vec);
        self.fetched(bytes, || self.file_name(path))
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
        _meter: &'a RequestMeter,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
        let name = || format!("list of files of {}", self.name());
        let listed = self.fetched(self.headers.list(folder), name);
        let listing = |Fetched { value: (files, is_complete), commit }| {
            Some(Listing { files, commit, is_complete })
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
}
