//! What reading a range gives, wherever it is read from, and what it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// A part of a file, or all of it up to its end when it ends inside what was asked for.
#[derive(Debug)]
pub(crate) struct RangeBytes {
    pub(crate) bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub(crate) file_size: u64,
}

/// What comes of a file while it is read.
#[derive(Debug)]
pub(crate) enum BodyEvent<R> {
    /// An answer: the file begins, whatever of it came before. It begins anew where the reading of an
    /// earlier answer broke off. The length is that of the body, in bytes, compressed or not, where the
    /// server tells it.
    Start { response: R, content_length: Option<u64> },
    /// What follows.
    Bytes(Bytes),
}

/// What a call has cost so far. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestMeter(Arc<Totals>);

#[derive(Debug, Default)]
struct Totals {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl RequestMeter {
    /// Requests sent, those that redirects led to among them.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Bytes of files and of bodies read.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_request(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The most bytes that are worked on between two reads of the network; handing over less costs more than
/// it gains.
const SHORT: usize = 1 << 16;

/// Does work that takes the longer, the more bytes there are. Long work is done beside the threads that
/// read answers, so that theirs arrive meanwhile.
pub(crate) async fn spawn_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SHORT {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and with it whoever waits.
            Err(_) => std::future::pending().await,
        },
    }
}
