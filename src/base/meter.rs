//! Counters of a call and of a client.

use std::iter;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::lock;

/// Counts the requests, bytes and waits of a call. Clones share their counters. [`Client::start_call`] creates it.
///
/// [`Client::start_call`]: crate::Client::start_call
#[derive(Clone, Debug, Default)]
pub struct CallMeter {
    call: Arc<Mutex<CallCounters>>,
    /// The totals of all calls of the client, including this one.
    client: Option<Arc<Mutex<CallCounters>>>,
    limits: WaitLimits,
}

/// The limits of a call's waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimits {
    /// The end of the call; `None` if its timeout excludes waits for rate limits.
    pub(crate) deadline: Option<Instant>,
    /// The maximum total time that the call waits for rate limits; `None` for the limit of the retry policy.
    pub(crate) max_wait: Option<Duration>,
    /// True if the timeout also excludes waits for memory.
    pub(crate) excludes_memory_waits: bool,
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
    /// The end of the current wait.
    wait_end: Option<Instant>,
    /// The number and the maximum of the retries of the last request that failed; `None` if no request is retried.
    retry: Option<(usize, usize)>,
}

/// The reason why a call makes no progress, from [`CallMeter::current_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallWait {
    /// The time until the rate limit of a server ends; `None` if the call does not wait for a rate limit.
    pub rate_limit: Option<Duration>,
    /// The number of the current retry of a request; 0 if no request has failed.
    pub retry: usize,
    /// The maximum number of retries of that request.
    pub max_retries: usize,
}

/// The totals of all calls of a client since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The time during which at least one request was waiting for a rate limit.
    pub waited: Duration,
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
        Self {
            call: Arc::default(),
            client: Some(Arc::clone(&self.call)),
            limits: WaitLimits::default(),
        }
    }

    /// Returns a meter with the same counters for a call with these limits.
    pub(crate) fn with_limits(self, limits: WaitLimits) -> Self {
        Self { limits, ..self }
    }

    pub(crate) fn limits(&self) -> &WaitLimits {
        &self.limits
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

    /// Returns the wait of the call for a rate limit or for the retry of a request; `None` if there is neither.
    ///
    /// ```no_run
    /// # async fn example(client: hf_meta::Client) {
    /// let meter = client.start_call();
    /// let call = client.model("bigscience/bloom").meter(&meter).count();
    /// # let _ = call;
    /// // In the task that draws the progress:
    /// if let Some(wait) = meter.current_wait().and_then(|wait| wait.rate_limit) {
    ///     println!("waiting for the rate limit, {} s", wait.as_secs());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn current_wait(&self) -> Option<CallWait> {
        let counters = lock(&self.call);
        let left = counters.wait_end.map(|end| end.saturating_duration_since(Instant::now()));
        let rate_limit = left.filter(|left| counters.waiting > 0 && !left.is_zero());
        let (retry, max_retries) = counters.retry.unwrap_or_default();
        (rate_limit.is_some() || retry > 0).then_some(CallWait { rate_limit, retry, max_retries })
    }

    /// Sets the end of the current wait.
    pub(crate) fn set_wait_end(&self, end: Instant) {
        lock(&self.call).wait_end = Some(end);
    }

    /// Sets the number and the maximum of the retries of a request; `None` when the request ends.
    pub(crate) fn set_retry(&self, retry: Option<(usize, usize)>) {
        lock(&self.call).retry = retry;
    }

    /// Returns the waits that do not count towards the timeout of the call.
    pub(crate) fn excluded_from_timeout(&self) -> Duration {
        self.limits.deadline.map_or_else(|| self.waited(), |_| Duration::ZERO)
    }

    /// Returns the time left until the deadline of the call; `None` if it has none.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        Some(self.limits.deadline?.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the call may wait for a rate limit: before its deadline, and within the limit of all its waits,
    /// which is `max_wait` unless the call has its own.
    pub(crate) fn may_wait(&self, wait: Duration, max_wait: Duration) -> bool {
        let total = self.waited().saturating_add(wait);
        let is_in_time = self.time_left().is_none_or(|left| wait <= left);
        is_in_time && total <= self.limits.max_wait.unwrap_or(max_wait)
    }

    /// Starts a wait for a rate limit or for memory.
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
