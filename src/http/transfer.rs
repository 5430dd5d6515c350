//! Results and counters of reads, shared by HTTP, disk and caches.

use std::iter;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::lock;

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
    call: Arc<Mutex<CallCounters>>,
    /// The totals of all calls of the client, including this one.
    client: Option<Arc<Mutex<CallCounters>>>,
}

#[derive(Debug, Default)]
struct CallCounters {
    /// The published counters. `waited` is the total of the finished waits.
    stats: ClientStats,
    endpoint_requests: u64,
    /// The number of requests that wait for a rate limit.
    waiting: usize,
    /// The start of the current wait, in which at least one request waits.
    wait_started: Option<Instant>,
}

/// The totals of all calls of a client since it was built.
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

/// A guard for a rate limit wait, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct RateLimitWait(CallMeter);

impl CallCounters {
    fn waited(&self) -> Duration {
        let current = self.wait_started.map(|started| started.elapsed());
        self.stats.waited + current.unwrap_or_default()
    }
}

impl CallMeter {
    /// Creates the meter of a new call, whose counts are also added to this meter.
    pub(crate) fn start_call(&self) -> Self {
        lock(&self.call).stats.calls += 1;
        Self { call: Arc::default(), client: Some(Arc::clone(&self.call)) }
    }

    /// Returns the totals.
    pub(crate) fn stats(&self) -> ClientStats {
        let counters = lock(&self.call);
        ClientStats { waited: counters.waited(), ..counters.stats }
    }

    /// Returns the number of requests sent, including redirects and retries.
    #[must_use]
    pub fn requests(&self) -> u64 {
        lock(&self.call).stats.requests
    }

    /// Returns the number of bytes read from files and response bodies, as sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        lock(&self.call).stats.bytes_read
    }

    /// Returns the number of requests sent to the endpoint itself, which count towards its quota.
    #[must_use]
    pub fn endpoint_requests(&self) -> u64 {
        lock(&self.call).endpoint_requests
    }

    /// Counts a request to the endpoint itself or to another server, for example one that a program sends as part of
    /// the call.
    pub fn count_request(&self, is_endpoint: bool) {
        self.update(|counters| {
            counters.stats.requests += 1;
            counters.endpoint_requests += u64::from(is_endpoint);
        });
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.update(|counters| counters.stats.bytes_read += bytes as u64);
    }

    /// Counts a cache hit or a cache miss.
    pub(crate) fn count_lookup(&self, is_hit: bool) {
        self.update(|CallCounters { stats, .. }| {
            *(if is_hit { &mut stats.cache_hits } else { &mut stats.cache_misses }) += 1;
        });
    }

    /// Returns the time in which at least one request has waited for a rate limit.
    pub(crate) fn waited(&self) -> Duration {
        lock(&self.call).waited()
    }

    /// Starts a wait, which does not count towards the timeout of the call.
    pub(crate) fn start_wait(&self) -> RateLimitWait {
        self.update(|counters| {
            counters.waiting += 1;
            counters.wait_started.get_or_insert_with(Instant::now);
        });
        RateLimitWait(self.clone())
    }

    fn update(&self, change: impl Fn(&mut CallCounters)) {
        for counters in iter::once(&self.call).chain(&self.client) {
            change(&mut lock(counters));
        }
    }
}

impl Drop for RateLimitWait {
    fn drop(&mut self) {
        self.0.update(|counters| {
            counters.waiting -= 1;
            if counters.waiting == 0 {
                counters.stats.waited = counters.waited();
                counters.wait_started = None;
            }
        });
    }
}
