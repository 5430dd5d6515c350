//! Streams of files that are used while they arrive.

use std::pin::pin;

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use super::Fetched;
use crate::error::Error;
use crate::http::transfer::BodyEvent;
use crate::http::{RequestFailure, ResponseChain};
use crate::hub::CommitSha;

/// The body events of a file. Each `Start` carries the commit, if the server reports it.
pub(crate) type ByteStream = BoxStream<'static, Result<BodyEvent<Option<CommitSha>>, Error>>;

/// Returns a file that is already in memory as a stream.
pub(super) fn from_bytes(file: Fetched<Vec<u8>>) -> Fetched<ByteStream> {
    let Fetched { value, commit, .. } = file;
    let start =
        BodyEvent::Start { response: commit.clone(), content_length: Some(value.len() as u64) };
    let pieces = stream::iter([Ok(start), Ok(BodyEvent::Bytes(value.into()))]).boxed();
    Fetched::new(pieces, commit)
}

/// Waits until a file starts to arrive over HTTP, and returns its stream. `fetched` and `explain` map responses and
/// failures to the backend's own types.
pub(super) async fn from_http(
    pieces: impl Stream<Item = Result<BodyEvent<ResponseChain>, RequestFailure>> + Send + 'static,
    fetched: impl Fn(&ResponseChain) -> Option<CommitSha> + Send + 'static,
    explain: impl Fn(RequestFailure) -> Error + Send + 'static,
) -> Result<Fetched<ByteStream>, Error> {
    let pieces = pieces.map(move |piece| match piece {
        Ok(BodyEvent::Start { response, content_length }) => {
            Ok(BodyEvent::Start { response: fetched(&response), content_length })
        }
        Ok(BodyEvent::Bytes(bytes)) => Ok(BodyEvent::Bytes(bytes)),
        Err(failure) => Err(explain(failure)),
    });
    let mut pieces = Box::pin(pieces.peekable());
    if let Some(Err(error)) = pieces.as_mut().next_if(Result::is_err).await {
        return Err(error);
    }
    let commit = match pieces.as_mut().peek().await {
        Some(Ok(BodyEvent::Start { response, .. })) => response.clone(),
        _ => None,
    };
    Ok(Fetched::new(pieces, commit))
}

/// Drives a future while a file arrives, and buffers the file. A stream that is open but not polled would block the
/// future's requests: it keeps its connection, or most of the flow-control window.
pub(crate) async fn poll_alongside<T>(
    mut pieces: ByteStream,
    other: impl Future<Output = T>,
) -> (ByteStream, T) {
    let (mut arrived, mut other) = (Vec::new(), pin!(other));
    loop {
        match select(pieces.next(), other.as_mut()).await {
            Either::Left((Some(piece), _)) => {
                if matches!(piece, Ok(BodyEvent::Start { .. })) {
                    arrived.clear();
                }
                arrived.push(piece);
            }
            Either::Left((None, other)) => return (stream::iter(arrived).boxed(), other.await),
            Either::Right((other, _)) => {
                return (stream::iter(arrived).chain(pieces).boxed(), other);
            }
        }
    }
}
