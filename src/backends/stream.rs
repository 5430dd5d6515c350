//! Files that are read while they arrive.

use std::pin::pin;

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, StreamExt};

use super::{Fetched, Place, Store};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::http::transfer::{BodyEvent, RequestMeter};
use crate::hub::CommitSha;

/// A file as it is read. Each of its beginnings says of which commit it is, where the server says so.
pub(crate) type Pieces = BoxStream<'static, Result<BodyEvent<Option<CommitSha>>, Error>>;

impl Store {
    /// A whole file of at most `limit` bytes, as it arrives from now on.
    pub(crate) async fn open(
        &self,
        path: &RepoPath,
        limit: u64,
        meter: &RequestMeter,
    ) -> Result<Fetched<Pieces>, Error> {
        let Place::Web(http, url) = self.at(path) else {
            let Fetched { value, commit } = self.whole(path, limit, meter).await?;
            let start = BodyEvent::Start {
                response: commit.clone(),
                content_length: Some(value.len() as u64),
            };
            let pieces = stream::iter([Ok(start), Ok(BodyEvent::Bytes(value.into()))]).boxed();
            return Ok(Fetched { value: pieces, commit });
        };
        let pieces = self.span(path).in_scope(|| http.stream(&url, limit, meter));
        let (store, path) = (self.clone(), path.clone());
        let pieces = pieces.map(move |piece| match piece {
            Ok(BodyEvent::Start { response, content_length }) => Ok(BodyEvent::Start {
                response: store.fetched((), &response).commit,
                content_length,
            }),
            Ok(BodyEvent::Bytes(bytes)) => Ok(BodyEvent::Bytes(bytes)),
            Err(failure) => Err(store.explain(store.name(&path), failure)),
        });
        let mut pieces = Box::pin(pieces.peekable());
        if let Some(Err(error)) = pieces.as_mut().next_if(Result::is_err).await {
            return Err(error);
        }
        let commit = match pieces.as_mut().peek().await {
            Some(Ok(BodyEvent::Start { response, .. })) => response.clone(),
            _ => None,
        };
        Ok(Fetched { value: pieces, commit })
    }
}

/// Waits for something else while a file arrives. One that is open and not read keeps its connection, or
/// most of what the server may send on it, from the requests that are waited for.
pub(crate) async fn poll_alongside<T>(
    mut pieces: Pieces,
    other: impl Future<Output = T>,
) -> (Pieces, T) {
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
