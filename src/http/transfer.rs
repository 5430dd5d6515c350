//! Results and counters of reads, shared by HTTP, disk and caches.

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

/// The bytes of a range. They are fewer than requested only if the file ends inside the range, and more only if it
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

/// Counts the requests, bytes and waits of a call. Clones share their counters. [`Client::start_call`] creates it.
///
/// [`Client::start_call`]: crate::Client::start_call
#[derive(Clone, Debug, Default)]
pub struct CallMeter {
    own: Arc<CallCounters>,
    /// The totals of all calls, including this one.
    all: Option<Arc<CallCounters>>,
}

#[derive(Debug, Default)]
struct CallCounters {
    calls: AtomicU64,
    requests: AtomicU64,
    endpoint_requests: AtomicU64,
    bytes: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    waits: Mutex<WaitClock>,
}

/// The totals of all calls of a client since it was built.
///
/// The values are not read atomically, so a call in progress may be included in some but not in others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientStats {
    /// The number of calls started.
    pub calls: u64,
    /// The number of HTTP requests sent, including redirects and retries.
    pub requests: u64,
    /// The number of bytes read from HTTP response bodies and local files.
    pub bytes_read: u64,
    /// The number of calls served from the header cache, without reading a file.
    pub cache_hits: u64,
    /// The number of calls for which the header cache was consulted but had no entry.
    pub cache_misses: u64,
    /// The time during which at least one request was waiting for a rate limit. Serialized as `waitedSeconds`.
    #[serde(rename = "waitedSeconds", serialize_with = "as_seconds")]
    pub waited: Duration,
}

fn as_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// A clock that runs while at least one request waits for a rate limit.
#[derive(Debug, Default)]
struct WaitClock {
    waiting: usize,
    /// The start of the current wait.
    since: Option<Instant>,
    /// The total of all earlier waits.
    total: Duration,
}

/// A guard for a rate limit wait, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct RateLimitWait(CallMeter);

impl CallCounters {
    /// Returns the time in which at least one request has waited for a rate limit.
    fn waited(&self) -> Duration {
        let clock = self.wait_clock();
        clock.total + clock.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn start_wait(&self) {
        let mut clock = self.wait_clock();
        clock.waiting += 1;
        clock.since.get_or_insert_with(Instant::now);
    }

    fn end_wait(&self) {
        let mut clock = self.wait_clock();
        clock.waiting -= 1;
        if clock.waiting == 0 {
            let since = clock.since.take();
            clock.total += since.map(|since| since.elapsed()).unwrap_or_default();
        }
    }

    fn wait_clock(&self) -> MutexGuard<'_, WaitClock> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallMeter {
    /// Creates the meter of a new call, whose counts are also added to this meter.
    pub(crate) fn start_call(&self) -> Self {
        self.own.calls.fetch_add(1, Ordering::Relaxed);
        Self { own: Arc::default(), all: Some(Arc::clone(&self.own)) }
    }

    /// Returns the totals.
    pub(crate) fn stats(&self) -> ClientStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientStats {
            calls: load(&self.own.calls),
            requests: self.requests(),
            bytes_read: self.bytes(),
            cache_hits: load(&self.own.cache_hits),
            cache_misses: load(&self.own.cache_misses),
            waited: self.waited(),
        }
    }

    /// Returns the number of requests sent, including redirects and retries.
    pub fn requests(&self) -> u64 {
        self.own.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes read from files and response bodies, as sent.
    pub fn bytes(&self) -> u64 {
        self.own.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of requests sent to the endpoint itself, which count towards its quota.
    pub fn endpoint_requests(&self) -> u64 {
        self.own.endpoint_requests.load(Ordering::Relaxed)
    }

    /// Counts a request to the endpoint itself or to another server, for example one that a program sends as part of
    /// the call.
    pub fn count_request(&self, is_endpoint: bool) {
        self.add(|totals| &totals.requests, 1);
        self.add(|totals| &totals.endpoint_requests, is_endpoint.into());
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.add(|totals| &totals.bytes, bytes as u64);
    }

    /// Counts a cache hit or a cache miss.
    pub(crate) fn count_lookup(&self, is_hit: bool) {
        self.add(|totals| if is_hit { &totals.cache_hits } else { &totals.cache_misses }, 1);
    }

    /// Returns the time in which at least one request has waited for a rate limit.
    pub(crate) fn waited(&self) -> Duration {
        self.own.waited()
    }

    /// Starts a wait, which does not count towards the timeout of the call.
    pub(crate) fn start_wait(&self) -> RateLimitWait {
        self.totals().for_each(CallCounters::start_wait);
        RateLimitWait(self.clone())
    }

    fn add(&self, counter: impl Fn(&CallCounters) -> &AtomicU64, number: u64) {
        self.totals().for_each(|totals| {
            counter(totals).fetch_add(number, Ordering::Relaxed);
        });
    }

    fn totals(&self) -> impl Iterator<Item = &CallCounters> {
        iter::once(&*self.own).chain(self.all.as_deref())
    }
}

impl Drop for RateLimitWait {
    fn drop(&mut self) {
        self.0.totals().for_each(CallCounters::end_wait);
    }
}
