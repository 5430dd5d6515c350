//! Results and costs of reads, the same for HTTP, disks and caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The bytes of a range, shorter than requested only if the file ends inside the range.
#[derive(Debug)]
pub(crate) struct RangeBytes {
    pub(crate) bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub(crate) file_size: u64,
}

/// An event of a streamed response body.
#[derive(Debug)]
pub(crate) enum BodyEvent<R> {
    /// A response arrived, and its body starts at byte 0 of the file. A second `Start` follows a retry: all
    /// bytes before it must be discarded.
    Start {
        response: R,
        /// The length of the body in bytes as sent, before decompression; `None` if unknown.
        content_length: Option<u64>,
    },
    /// The next bytes of the file.
    Bytes(Bytes),
}

/// The cost of a call so far. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestMeter(Arc<RequestTotals>);

#[derive(Debug, Default)]
struct RequestTotals {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl RequestMeter {
    /// Returns the number of requests sent, including redirects and retries.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes read, of files and of response bodies as sent.
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
