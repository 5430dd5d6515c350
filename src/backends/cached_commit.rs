//! A commit from the header cache.

use std::ops::Range;

use futures::future::{FutureExt, ready};

use super::stream::{self, FileStream};
use super::{Fetch, Fetched, FileListing, FileSource, ListFuture, Origin};
use crate::base::blocking::spawn_blocking_if_large;
use crate::base::transfer::RangeBytes;
use crate::cache::{CachedFile, HeaderBytes};
use crate::error::{Error, shared};
use crate::formats::RepoPath;

/// A cached commit of a repository. It serves only what an earlier call has read.
///
/// Ranges are truncated at the end of the cached bytes, which is the end of the header.
#[derive(Debug)]
pub(crate) struct CachedCommit {
    /// The origin that the bytes were read from, for names.
    pub(crate) origin: Origin,
    pub(crate) bytes: HeaderBytes,
}

impl CachedCommit {
    /// Decompresses `length` bytes of a file. Returns `None` if the file is not cached or its entry is corrupt.
    async fn inflate<T: Send + 'static>(
        &self,
        path: &RepoPath,
        length: u64,
        inflate: impl FnOnce(CachedFile) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let file = self.bytes.headers.file(path)?;
        let length = usize::try_from(length.min(file.start.length())).unwrap_or(usize::MAX);
        spawn_blocking_if_large(length, move || inflate(file)).await
    }

    /// Checks a file against the size limit of this call. An earlier call may have had a larger limit.
    fn check_length(&self, path: &RepoPath, limit: u64) -> Result<(), Error> {
        match self.bytes.headers.file(path) {
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
        let commit = Some(self.bytes.commit.clone());
        let missing = || Error::FileNotFound { file: name(), source: shared("it is not cached") };
        value.map(|value| Fetched::new(value, commit)).ok_or_else(missing)
    }
}

impl FileSource for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let read = self.inflate(path, range.end, move |file| file.range(&range)).await;
            self.fetched(read, || self.file_name(path))
        }
        .boxed()
    }

    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, FileStream> {
        async move {
            self.check_length(path, limit)?;
            let read = self.inflate(path, limit, |file| file.whole()?.inflate()).await;
            let Fetched { value, commit, .. } = self.fetched(read, || self.file_name(path))?;
            Ok(stream::from_whole(value, commit))
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let listed =
            self.fetched(self.bytes.headers.listing(folder), || "list of files".to_owned());
        let listing = |Fetched { value: (files, is_complete), commit, .. }| {
            Some(FileListing { files, commit, is_complete })
        };
        ready(listed.map(listing)).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.origin.files().file_name(path)
    }
}
