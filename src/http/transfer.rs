//! Results and costs of reads, the same for HTTP, disks and caches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The bytes of a range, shorter than requested only if the file ends inside the range, and longer only if it
/// starts at byte 0.
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
    endpoint_requests: AtomicU64,
    bytes: AtomicU64,
    waits: Mutex<WaitClock>,
}

/// A clock that runs while at least one request waits for a rate limit.
#[derive(Debug, Default)]
struct WaitClock {
    waiting: usize,
    /// The start of the current wait.
    since: Option<Instant>,
    /// The time of all earlier waits.
    total: Duration,
}

/// A wait for a rate limit. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct RateLimitWait(RequestMeter);

impl RequestMeter {
    /// Returns the number of requests sent, including redirects and retries.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes read, of files and of response bodies as sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of requests sent to the endpoint itself, whose quota they use.
    #[cfg(feature = "server")]
    pub(crate) fn endpoint_requests(&self) -> u64 {
        self.0.endpoint_requests.load(Ordering::Relaxed)
    }

    /// Counts a request to the endpoint itself or to another server.
    pub(crate) fn count_request(&self, is_endpoint: bool) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.endpoint_requests.fetch_add(u64::from(is_endpoint), Ordering::Relaxed);
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the time in which at least one request has waited for a rate limit.
    pub(crate) fn waited(&self) -> Duration {
        let clock = self.wait_clock();
        clock.total + clock.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Starts a wait for a rate limit.
    pub(crate) fn start_wait(&self) -> RateLimitWait {
        let mut clock = self.wait_clock();
        clock.waiting += 1;
        clock.since.get_or_insert_with(Instant::now);
        drop(clock);
        RateLimitWait(self.clone())
    }

    fn wait_clock(&self) -> MutexGuard<'_, WaitClock> {
        self.0.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RateLimitWait {
    fn drop(&mut self) {
        let mut clock = self.0.wait_clock();
        clock.waiting -= 1;
        if clock.waiting == 0 {
            let since = clock.since.take();
            clock.total += since.map(|since| since.elapsed()).unwrap_or_default();
        }
    }
}
