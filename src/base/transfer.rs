//! The results of reads, which HTTP, disk and caches share.

use std::pin::pin;

use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt};

/// The bytes of a range. They are fewer than requested only if the file ends inside the range, and more only if it
/// starts at byte 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeBytes {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub file_size: u64,
}

/// An event of a streamed response body.
#[derive(Debug)]
pub(crate) enum BodyEvent<R> {
    /// A response arrived, and its body starts at byte 0 of the file. Another `Start` follows a retry: discard all
    /// bytes before it.
    Start {
        response: R,
        /// The length of the body as sent, in bytes, before decompression; `None` if unknown.
        content_length: Option<u64>,
    },
    /// The next bytes of the file.
    Bytes(Bytes),
}

impl<R: Default> BodyEvent<R> {
    /// Reads a file to its end. Also returns its response.
    pub(crate) async fn read_to_end<E>(
        events: impl Stream<Item = Result<Self, E>>,
    ) -> Result<(Vec<u8>, R), E> {
        let (mut file, mut found, mut events) = (Vec::new(), R::default(), pin!(events));
        while let Some(event) = events.try_next().await? {
            match event {
                Self::Start { response, .. } => {
                    file.clear();
                    found = response;
                }
                Self::Bytes(bytes) => file.extend_from_slice(&bytes),
            }
        }
        Ok((file, found))
    }
}
