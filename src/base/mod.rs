//! Shared by all other modules: the results and counters of reads, callbacks, locks, and work outside of the async
//! threads.

pub(crate) mod blocking;
pub(crate) mod meter;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt};

use crate::formats::FileHeader;

/// A callback of the caller.
pub(crate) struct Callback<F: ?Sized>(pub(crate) Arc<F>);

impl<F: ?Sized> Clone for Callback<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// Locks a mutex. A panic while it was locked leaves nothing half-done, so poisoning is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a random number between 0 and 1, from the random hash keys of the standard library.
pub(crate) fn random_fraction() -> f64 {
    let [a, b, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    f64::from(u16::from_ne_bytes([a, b])) / f64::from(u16::MAX)
}

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

/// The progress of a call, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of shards whose headers have been read and validated.
    pub done: usize,
    /// The number of shards known so far. It can grow while the index is being read.
    pub total: usize,
}

/// A callback that is called after each shard.
pub(crate) type OnProgress = Callback<dyn Fn(Progress) + Send + Sync>;

/// A callback that is called with each header.
pub(crate) type OnHeader = Callback<dyn Fn(&FileHeader) + Send + Sync>;
