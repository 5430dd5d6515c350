//! The files that a call reads.

use std::fmt;
use std::future::{pending, ready};
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use hf_meta_format::formats::weight_sets::{ListedFile, WeightSet};
use hf_meta_format::formats::{FileHeader, RepoPath};
use hf_meta_format::{CommitSha, RepoId};

use super::error::Error;
use super::send::{BoxFuture, MaybeSend};

/// CPU-bound work, which may run on another thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// The files of a repository, or of a folder without commits, addressed by their paths in it.
///
/// They belong to one call, so an implementation may count its requests and keep what it has read. The methods with a
/// body are for implementations with commits, limits, an API or several threads.
pub trait Files: fmt::Debug + MaybeSend + 'static {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be longer
    /// if the range starts at byte 0.
    fn read<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Part, Error>>;

    /// Reads a whole file of at most `limit` bytes.
    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> BoxFuture<'a, Result<Loaded, Error>>;

    /// Lists all files below a folder, or all files. Returns `None` if this reader cannot access a listing.
    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>>;

    /// Runs work on `bytes` more bytes of input. By default, runs it on this thread, before the method returns.
    fn run_work(&self, _bytes: usize, work: Work) -> BoxFuture<'static, ()> {
        work();
        Box::pin(ready(()))
    }

    /// Returns the name of a file for messages.
    fn file_name(&self, path: &RepoPath) -> String;

    /// Starts reading an index of at most `limit` bytes. Completes once its first shard is known, or its start names
    /// none, or it has arrived. By default, reads the whole index.
    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        Box::pin(async move { Ok(OpenIndex::complete(self.load(path, limit).await?)) })
    }

    /// Returns the same files at a commit; `None` if they cannot be requested by commit.
    fn at_commit(&self, _commit: &CommitSha) -> Option<Arc<dyn Files>> {
        None
    }

    /// Returns the commit that the files are requested at, if it is known in advance.
    fn commit(&self) -> Option<CommitSha> {
        None
    }

    /// Returns whether the files have commits.
    fn is_repo(&self) -> bool;

    /// Returns the current name of the repository if it differs from the requested one.
    fn renamed(&self) -> Option<RepoId> {
        None
    }

    /// Returns whether a number of requests for files next to `path` may be sent that may turn out to be useless.
    fn may_guess(&self, _path: &RepoPath, _requests: usize) -> bool {
        false
    }

    /// Admits a number of further requests.
    ///
    /// # Errors
    ///
    /// Returns [`Error::OverBudget`] if the call may not send them.
    fn admit_requests(&self, _requests: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until the call may use `bytes` more bytes of memory in total.
    fn admit_bytes(&self, _bytes: u64) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    /// Waits for `bytes` bytes of memory for a header that is not counted yet.
    fn hold(&self, _bytes: u64) -> BoxFuture<'_, HeldRam> {
        Box::pin(ready(None))
    }

    /// Ends a header that was parsed: nothing else of its file is needed.
    fn end_header<'a>(&'a self, _path: &'a RepoPath, _header: &'a FileHeader) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    /// Is called with each header before it is counted.
    fn on_header(&self, _header: &FileHeader) {}

    /// Is called with the number of shards whose headers have been read.
    ///
    /// # Errors
    ///
    /// Returns an error to end the call.
    fn on_progress(&self, _done: usize, _total: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Requests all headers of an index at once, in the form parsed by the Hub. Returns `None` if there are none.
    fn parsed_headers<'a>(
        &'a self,
        _index: &'a RepoPath,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Option<Loaded>, Error>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns the parameter count that the Hub reports, `None` if it reports none, or the reason why it is unavailable.
    fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns the error for a set that lacks some of its shards, if they may exist elsewhere.
    fn missing_shards(&self, _set: &WeightSet) -> Option<Error> {
        None
    }
}

impl dyn Files {
    /// Runs work on `bytes` more bytes of input, and returns its result.
    pub fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        let fill = move || {
            let value = work();
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        };
        let done = self.run_work(bytes, Box::new(fill));
        Box::pin(async move {
            done.await;
            let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
            match value {
                Some(value) => value,
                // The implementation drops the work only if it drops the call, too.
                None => pending().await,
            }
        })
    }
}

/// A permit for the memory of a header, unless memory is unlimited.
pub type HeldRam = Option<Box<dyn Permit>>;

/// A permit for memory, which is released when it is dropped.
pub trait Permit: fmt::Debug + Send + Sync {
    /// Releases all but `bytes` bytes.
    fn shrink_to(&mut self, bytes: usize);
}

/// A range of a file.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The size of the whole file in bytes, if it is known.
    pub file_size: Option<u64>,
    /// The commit of the file, if the server reports it.
    pub commit: Option<CommitSha>,
    /// The SHA-256 hash of the whole file in hexadecimal, if the server reports it.
    pub sha256: Option<String>,
}

/// A whole file.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The bytes.
    pub bytes: Arc<Vec<u8>>,
    /// The commit of the file, if the server reports it.
    pub commit: Option<CommitSha>,
}

/// The rest of an index that has begun to arrive.
pub type Rest = BoxFuture<'static, Result<Loaded, Error>>;

/// An index that has begun to arrive.
pub struct OpenIndex {
    /// The commit of the index, if the server reports it.
    pub commit: Option<CommitSha>,
    /// The length of the body as sent, in bytes; `None` if it is unknown.
    pub length: Option<u64>,
    /// The first shard that the index names, if that has arrived and the rest has not.
    pub first_shard: Option<RepoPath>,
    /// The whole index.
    pub rest: Rest,
}

impl OpenIndex {
    /// Creates an index that has arrived.
    pub fn complete(index: Loaded) -> Self {
        let (commit, length) = (index.commit.clone(), Some(index.bytes.len() as u64));
        Self { commit, length, first_shard: None, rest: Box::pin(ready(Ok(index))) }
    }

    /// Drives another future while the index arrives. A transfer that is open but not polled would block the future's
    /// requests: it keeps its connection, or most of the flow-control window.
    pub(crate) async fn poll_alongside<T>(mut self, other: impl Future<Output = T>) -> (Self, T) {
        match select(&mut self.rest, pin!(other)).await {
            Either::Left((index, other)) => {
                let other = other.await;
                (Self { rest: Box::pin(ready(index)), ..self }, other)
            }
            Either::Right((other, _)) => (self, other),
        }
    }
}

/// A list of files.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The files.
    pub files: Vec<ListedFile>,
    /// The commit of the files, if the server reports it.
    pub commit: Option<CommitSha>,
    /// `true` if no file is missing from the listing.
    pub is_complete: bool,
}
