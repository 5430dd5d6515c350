//! Sources of files, and streams of files that are used while they arrive.

use std::fmt::Debug;
use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures::future::{BoxFuture, Either, FutureExt, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::task::yield_now;

use crate::base::{BodyEvent, RangeBytes};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::{HttpError, ResponseChain};
use crate::hub::CommitSha;

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

    /// Streams a whole file of at most `limit` bytes. Completes once the file is known to exist. By default, reads it
    /// at once, as sources do that are fast.
    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, FileStream> {
        async move {
            let Fetched { value, commit, .. } = self.read_range(path, 0..limit).await?;
            let (file, found) = (self.file_name(path), value.bytes.len() as u64);
            match value.file_size {
                size if size > limit => Err(Error::TooLarge { file, limit }),
                size if size != found => {
                    let message = format!("expected `{file}` to have {size} bytes, got {found}");
                    Err(Error::Changed { message })
                }
                _ => Ok(from_whole(value.bytes, commit)),
            }
        }
        .boxed()
    }

    /// Lists all files below a folder, or all files of the source. Returns `None` if the source has no
    /// accessible listing.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a>;

    /// Returns the name of a file for messages.
    fn file_name(&self, path: &RepoPath) -> String;
}

/// The body events of a file. Each `Start` carries the commit, if the server reports it.
pub(crate) type FileStream = BoxStream<'static, Result<BodyEvent<Option<CommitSha>>, Error>>;

/// The chunk size of a file that was read at once, in bytes. Larger chunks would be parsed on another thread.
const CHUNK: usize = 1 << 16;

/// Streams a file of a fast source, which is read at once. It is yielded in chunks, as a download would be, so that
/// shards are read and parsed in the meantime.
pub(super) fn from_whole(file: Vec<u8>, commit: Option<CommitSha>) -> Fetched<FileStream> {
    let (response, mut rest) = (commit.clone(), Bytes::from(file));
    let start = BodyEvent::Start { response, content_length: Some(rest.len() as u64) };
    let chunks = std::iter::from_fn(move || {
        let chunk = rest.split_to(rest.len().min(CHUNK));
        (!chunk.is_empty()).then_some(Ok(BodyEvent::Bytes(chunk)))
    });
    let chunks = stream::iter(chunks).then(|chunk| yield_now().map(|()| chunk));
    let events = stream::iter([Ok(start)]).chain(chunks).boxed();
    Fetched::new(events, commit)
}

/// Waits until a file starts to arrive over HTTP, and returns its stream. `fetched` and `explain` map responses and
/// failures to the backend's own types.
pub(super) async fn from_http(
    events: impl Stream<Item = Result<BodyEvent<ResponseChain>, HttpError>> + Send + 'static,
    fetched: impl Fn(&ResponseChain) -> Option<CommitSha> + Send + 'static,
    explain: impl Fn(HttpError) -> Error + Send + 'static,
) -> Result<Fetched<FileStream>, Error> {
    let events = events.map(move |event| match event {
        Ok(BodyEvent::Start { response, content_length }) => {
            Ok(BodyEvent::Start { response: fetched(&response), content_length })
        }
        Ok(BodyEvent::Bytes(bytes)) => Ok(BodyEvent::Bytes(bytes)),
        Err(failure) => Err(explain(failure)),
    });
    let (first, rest) = events.boxed().into_future().await;
    let first = first.transpose()?;
    let commit = match &first {
        Some(BodyEvent::Start { response, .. }) => response.clone(),
        _ => None,
    };
    Ok(Fetched::new(stream::iter(first.map(Ok)).chain(rest).boxed(), commit))
}

/// Drives a future while a file arrives, and buffers the file. A stream that is open but not polled would block the
/// future's requests: it keeps its connection, or most of the flow-control window.
pub(crate) async fn poll_alongside<T>(
    mut events: FileStream,
    other: impl Future<Output = T>,
) -> (FileStream, T) {
    let (mut arrived, mut other) = (Vec::new(), pin!(other));
    loop {
        match select(events.next(), other.as_mut()).await {
            Either::Left((Some(event), _)) => {
                if matches!(event, Ok(BodyEvent::Start { .. })) {
                    arrived.clear();
                }
                arrived.push(event);
            }
            Either::Left((None, other)) => return (stream::iter(arrived).boxed(), other.await),
            Either::Right((other, _)) => {
                return (stream::iter(arrived).chain(events).boxed(), other);
            }
        }
    }
}
