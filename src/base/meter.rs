//! Counters of a call and of a client.

use std::iter;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::lock;

/// Counts the requests, bytes and waits of a call. Clones share their counters. [`Client::meter`] creates it.
///
/// [`Client::meter`]: crate::Client::meter
#[derive(Clone, Debug, Default)]
pub struct CallMeter {
    call: Arc<Mutex<CallCounters>>,
    /// The totals of all calls of the client, including this one.
    client: Option<Arc<Mutex<CallCounters>>>,
    /// The end of the call; `None` if its timeout excludes waits.
    deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct CallCounters {
    /// The published counters. `waited` is the total of the finished waits.
    stats: ClientStats,
    /// The number of current waits.
    waiting: usize,
    /// The start of the first of them.
    wait_started: Option<Instant>,
}

/// The counts of a call, or the totals of all calls of a client since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// The number of calls started.
    pub calls: u64,
    /// The number of HTTP requests sent, including redirects and retries.
    pub requests: u64,
    /// The number of requests sent to the endpoint itself, which count towards its quota.
    pub endpoint_requests: u64,
    /// The number of bytes read from HTTP response bodies and local files.
    pub bytes_read: u64,
    /// The number of calls served from the header cache, without reading a file.
    pub cache_hits: u64,
    /// The number of calls for which the header cache was consulted but had no entry.
    pub cache_misses: u64,
    /// The time during which at least one request was waiting for a rate limit, or a large call for memory.
    pub waited: Duration,
}

/// A guard for a wait, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Wait(CallMeter);

impl CallCounters {
    fn waited(&self) -> Duration {
        let current = self.wait_started.map(|started| started.elapsed());
        self.stats.waited + current.unwrap_or_default()
    }
}

impl CallMeter {
    /// Creates the meter of a new call, whose counts are also added to this meter.
    pub(crate) fn meter(&self) -> Self {
        let meter = Self { client: Some(Arc::clone(&self.call)), ..Self::default() };
        meter.update(|counters| counters.stats.calls += 1);
        meter
    }

    /// Returns a meter with the same counters for a call that ends at a time.
    pub(crate) fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the counts and waits so far.
    pub fn stats(&self) -> ClientStats {
        let counters = lock(&self.call);
        ClientStats { waited: counters.waited(), ..counters.stats }
    }

    /// Counts a request to the endpoint itself or to another server.
    pub(crate) fn count_request(&self, is_endpoint: bool) {
        self.update(|counters| {
            counters.stats.requests += 1;
            counters.stats.endpoint_requests += u64::from(is_endpoint);
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

    /// Returns the waits that do not count towards the timeout of the call.
    pub(crate) fn excluded_from_timeout(&self) -> Duration {
        self.deadline.map_or_else(|| self.stats().waited, |_| Duration::ZERO)
    }

    /// Returns the time left until the deadline of the call; `None` if it has none.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the call may wait for a rate limit: before its deadline, and `max_wait` in total.
    pub(crate) fn may_wait(&self, wait: Duration, max_wait: Duration) -> bool {
        let total = self.stats().waited.saturating_add(wait);
        let is_in_time = self.time_left().is_none_or(|left| wait <= left);
        is_in_time && total <= max_wait
    }

    /// Starts a wait for a rate limit or for memory.
    pub(crate) fn start_wait(&self) -> Wait {
        self.update(|counters| {
            counters.waiting += 1;
            counters.wait_started.get_or_insert_with(Instant::now);
        });
        Wait(self.clone())
    }

    fn update(&self, change: impl Fn(&mut CallCounters)) {
        for counters in iter::once(&self.call).chain(&self.client) {
            change(&mut lock(counters));
        }
    }
}

impl Drop for Wait {
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
