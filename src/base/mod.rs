//! Shared by all other modules: the results and counters of reads, callbacks, locks, and work outside of the async
//! threads.

pub(crate) mod blocking;
pub(crate) mod body_sink;
pub(crate) mod budget;
pub(crate) mod environment;
pub(crate) mod meter;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hf_meta_format::formats::FileHeader;

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

/// The bytes of a range of a file. They are fewer than requested only if the file ends inside the range, and more only if
/// it starts at byte 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    pub(crate) bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub(crate) file_size: u64,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of shards whose headers have been read and validated.
    pub done: usize,
    /// The number of shards; 1 for a single file.
    pub total: usize,
    /// The number of bytes that the call has read so far, of headers and of other files.
    pub bytes_read: u64,
}

/// A callback that is called after each shard, or before and after the header of the only file.
pub(crate) type OnProgress = Callback<dyn Fn(Progress) + Send + Sync>;

/// A callback that is called with each header.
pub(crate) type OnHeader = Callback<dyn Fn(&FileHeader) + Send + Sync>;
