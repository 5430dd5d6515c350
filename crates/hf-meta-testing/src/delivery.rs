//! Delivers a response: immediately, slowly or partially.

use std::future::pending;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::file::{File, zeros};

/// The delivery of the response headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderDelivery {
    /// The headers are sent immediately.
    Immediate,
    /// The headers are never sent, and the connection stays open.
    Stalled,
    /// The connection is reset.
    ConnectionReset,
}

impl HeaderDelivery {
    pub(super) async fn deliver<T>(self, response: T) -> io::Result<T> {
        match self {
            Self::Immediate => Ok(response),
            Self::Stalled => pending().await,
            Self::ConnectionReset => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

/// The delivery of the response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyDelivery {
    /// The whole body is sent.
    Complete,
    /// The connection is reset after some bytes.
    Reset { after: u64 },
    /// Sending stops after some bytes, and the connection stays open.
    Stalled { after: u64 },
    /// Bytes are sent one at a time, at an interval.
    Trickle { interval: Duration },
    /// Zero bytes follow the body.
    Padded { count: u64 },
    /// Endless zero bytes follow the body.
    Endless,
    /// The body is compressed.
    Gzip,
}

type Body = BoxStream<'static, io::Result<Bytes>>;

impl BodyDelivery {
    /// Returns the bytes of a file range in the way they are sent.
    pub(super) fn read(self, file: File, range: Range<u64>) -> Body {
        let first = |count: u64| range.start..range.end.min(range.start + count);
        match self {
            Self::Complete => file.read(range).boxed(),
            Self::Reset { after } => file.read(first(after)).chain(reset()).boxed(),
            Self::Stalled { after } => file.read(first(after)).chain(stream::pending()).boxed(),
            Self::Trickle { interval } => trickle(file.read(range).boxed(), interval),
            Self::Padded { count } => {
                file.read(range).chain(stream::iter(zeros(count).map(Ok))).boxed()
            }
            Self::Endless => file.read(range).chain(stream::iter(zeros(u64::MAX).map(Ok))).boxed(),
            Self::Gzip => stream::once(async move {
                let bytes = file.read(range).try_fold(Vec::new(), |bytes, more| {
                    future::ready(Ok([&bytes[..], &more[..]].concat()))
                });
                gzip(&bytes.await?)
            })
            .boxed(),
        }
    }
}

/// Returns an uncompressed gzip file of these bytes.
fn gzip(bytes: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

/// Returns an error instead of more bytes, which resets the connection. Earlier bytes are still sent, because the
/// server flushes when it is idle.
fn reset() -> Body {
    stream::once(async {
        tokio::task::yield_now().await;
        Err(ErrorKind::ConnectionReset.into())
    })
    .boxed()
}

fn trickle(bytes: Body, every: Duration) -> Body {
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
