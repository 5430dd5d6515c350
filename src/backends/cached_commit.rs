//! A commit from the header cache.

use std::ops::Range;

use futures::future::{FutureExt, ready};

use super::Origin;
use super::source::{Fetch, Fetched, FileListing, FileSource, ListFuture};
use crate::base::RangeBytes;
use crate::base::blocking::spawn_blocking_if_large;
use crate::cache::HeaderBytes;
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

fn not_cached(file: String) -> Error {
    Error::FileNotFound { file, source: shared("it is not cached") }
}

impl FileSource for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let missing = || not_cached(self.file_name(path));
            let file = self.bytes.headers.file(path).ok_or_else(missing)?;
            let length = range.end.min(file.start.length());
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let read = spawn_blocking_if_large(length, move || file.range(&range)).await;
            Ok(Fetched::new(read.ok_or_else(missing)?, Some(self.bytes.commit.clone())))
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
