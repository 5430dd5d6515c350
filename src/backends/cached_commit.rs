//! A commit from the header cache.

use std::ops::Range;

use futures::future::{FutureExt, ready};

use super::stream::{self, FileStream};
use super::{Fetch, Fetched, FileListing, FileSource, ListFuture, Origin};
use crate::base::RangeBytes;
use crate::base::blocking::spawn_blocking_if_large;
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
    /// Decompresses a file, or `length` bytes of it. Returns an error if the file is not cached or its entry is corrupt.
    async fn inflate<T: Send + 'static>(
        &self,
        path: &RepoPath,
        length: u64,
        inflate: impl FnOnce(CachedFile) -> Option<T> + Send + 'static,
    ) -> Result<T, Error> {
        let missing = || not_cached(self.file_name(path));
        let file = self.bytes.headers.file(path).ok_or_else(missing)?;
        let length = usize::try_from(length.min(file.start.length())).unwrap_or(usize::MAX);
        spawn_blocking_if_large(length, move || inflate(file)).await.ok_or_else(missing)
    }
}

fn not_cached(file: String) -> Error {
    Error::FileNotFound { file, source: shared("it is not cached") }
}

impl FileSource for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let read = self.inflate(path, range.end, move |file| file.range(&range)).await?;
            Ok(Fetched::new(read, Some(self.bytes.commit.clone())))
        }
        .boxed()
    }

    /// Streams a file. The call that stored it may have had a larger limit.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, FileStream> {
        async move {
            let file = self.bytes.headers.file(path);
            if file.is_some_and(|file| file.start.length() > limit) {
                return Err(Error::TooLarge { file: self.file_name(path), limit });
            }
            let file = self.inflate(path, limit, |file| file.whole()?.inflate()).await?;
            Ok(stream::from_whole(file, Some(self.bytes.commit.clone())))
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let listed = self.bytes.headers.listing(folder);
        let commit = Some(self.bytes.commit.clone());
        let listing = |(files, is_complete)| Some(FileListing { files, commit, is_complete });
        let listing = listed.map(listing).ok_or_else(|| not_cached("list of files".to_owned()));
        ready(listing).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.origin.files().file_name(path)
    }
}
