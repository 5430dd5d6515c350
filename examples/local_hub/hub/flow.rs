//! The pace of a response, including responses that never arrive.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::future;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::file::{File, zeros};
use super::gzip::gzip;

/// The event before the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Nothing.
    Prompt,
    /// They never come.
    Stalled,
    /// The connection is closed.
    Closed,
}

impl Opening {
    pub async fn pass<T>(self, response: T) -> io::Result<T> {
        match self {
            Self::Prompt => Ok(response),
            Self::Stalled => pending().await,
            Self::Closed => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

/// The transfer of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They are sent as fast as they are taken.
    Steady,
    /// The connection is closed after this number of bytes.
    Broken { after: u64 },
    /// The transfer stalls after this number of bytes.
    Stalled { after: u64 },
    /// They arrive one at a time, with this pause.
    Trickle { interval: Duration },
    /// This number of zeros follows them.
    Padded { by: u64 },
    /// Zeros follow them without end.
    Endless,
    /// They are compressed.
    Gzip,
}

type Bytestream = BoxStream<'static, io::Result<Bytes>>;

impl Flow {
    /// A range of a file, as it is sent.
    pub fn read(self, file: File, range: Range<u64>) -> Bytestream {
        let first = |count: u64| range.start..range.end.min(range.start + count);
        match self {
            Self::Steady => file.read(range).boxed(),
            Self::Broken { after } => file.read(first(after)).chain(broken()).boxed(),
            Self::Stalled { after } => file.read(first(after)).chain(stream::pending()).boxed(),
            Self::Trickle { interval } => trickle(file.read(range).boxed(), interval),
            Self::Padded { by } => file.read(range).chain(stream::iter(zeros(by).map(Ok))).boxed(),
            Self::Endless => file.read(range).chain(stream::iter(zeros(u64::MAX).map(Ok))).boxed(),
            Self::Gzip => stream::once(async move {
                let bytes = file.read(range).try_fold(Vec::new(), |bytes, more| {
                    future::ready(Ok([&bytes[..], &more[..]].concat()))
                });
                Ok(Bytes::from(gzip(&bytes.await?)))
            })
            .boxed(),
        }
    }
}

/// An error in place of more bytes, which closes the connection. What came before it is sent first: an
/// idle moment is when the server flushes.
fn broken() -> Bytestream {
    stream::once(async {
        tokio::task::yield_now().await;
        Err(ErrorKind::ConnectionReset.into())
    })
    .boxed()
}

fn trickle(bytes: Bytestream, every: Duration) -> Bytestream {
    let single =
        |chunk: Bytes| stream::iter((0..chunk.len()).map(move |at| Ok(chunk.slice(at..=at))));
    let singles = bytes.map_ok(single).try_flatten();
    singles
        .and_then(move |byte| async move {
            tokio::time::sleep(every).await;
            Ok(byte)
        })
        .boxed()
}
