//! Streams of files that are used while they arrive.

use std::pin::pin;

use bytes::Bytes;
use futures::future::{Either, FutureExt, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::task::yield_now;

use super::Fetched;
use crate::base::BodyEvent;
use crate::error::Error;
use crate::http::{RequestFailure, ResponseChain};
use crate::hub::CommitSha;

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
    events: impl Stream<Item = Result<BodyEvent<ResponseChain>, RequestFailure>> + Send + 'static,
    fetched: impl Fn(&ResponseChain) -> Option<CommitSha> + Send + 'static,
    explain: impl Fn(RequestFailure) -> Error + Send + 'static,
) -> Result<Fetched<FileStream>, Error> {
    let events = events.map(move |event| match event {
        Ok(BodyEvent::Start { response, content_length }) => {
            Ok(BodyEvent::Start { response: fetched(&response), content_length })
        }
        Ok(BodyEvent::Bytes(bytes)) => Ok(BodyEvent::Bytes(bytes)),
        Err(failure) => Err(explain(failure)),
    });
    let mut events = Box::pin(events.peekable());
    if let Some(Err(error)) = events.as_mut().next_if(Result::is_err).await {
        return Err(error);
    }
    let commit = match events.as_mut().peek().await {
        Some(Ok(BodyEvent::Start { response, .. })) => response.clone(),
        _ => None,
    };
    Ok(Fetched::new(events, commit))
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
