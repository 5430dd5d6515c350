//! Retries: which failures are retried, how often, and after how long.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use ::url::Url;
use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, sleep};

use super::attempt::Attempt;
use super::rate_limit_gate::RateLimitGate;
use super::{HttpError, SafeUrl};
use crate::http::transfer::RequestMeter;

/// Limits on the number and the timing of attempts at one request.
///
/// Transient failures are retried with exponential backoff and jitter: status 408, 429, 500, 502, 503 and
/// 504; failed and broken connections; timeouts; bodies that end early; and status 403 from another origin
/// than the requested one, because a new request to the Hub returns a newly signed CDN URL. A retry
/// repeats one range, never ranges that were already read. If a server sends `Retry-After` or an
/// exhausted `RateLimit` quota, every request of the client to that origin waits for that time.
///
/// ```
/// use std::time::Duration;
///
/// use hf_meta::{Client, RetryPolicy};
///
/// // At most 3 attempts per request, all of them within 20 seconds.
/// let retry = RetryPolicy::default()
///     .max_attempts(3)
///     .initial_delay(Duration::from_millis(100))
///     .max_delay(Duration::from_secs(2))
///     .max_elapsed(Duration::from_secs(20));
/// let client = Client::builder().retry(retry).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    max_attempts: usize,
    initial_delay: Duration,
    max_delay: Duration,
    pub(super) max_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy of 5 attempts within 320 seconds. The delay starts at 250 ms and doubles up to
    /// 10 seconds.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(10),
            // The Hub counts requests in windows of 300 s (https://huggingface.co/docs/hub/rate-limits),
            // so 320 s is enough to wait for the next window once.
            max_elapsed: Duration::from_secs(320),
        }
    }
}

impl RetryPolicy {
    /// Returns a policy without retries.
    pub fn never() -> Self {
        Self::default().max_attempts(1)
    }

    /// Sets the maximum number of attempts at one request, including the first; at least 1.
    pub fn max_attempts(self, attempts: usize) -> Self {
        Self { max_attempts: attempts.max(1), ..self }
    }

    /// Sets the delay after the first failure.
    ///
    /// It doubles after each further failure, and up to the same time again is added at random, so that
    /// clients do not retry in lockstep. A wait that the server names takes precedence.
    pub fn initial_delay(self, delay: Duration) -> Self {
        Self { initial_delay: delay, ..self }
    }

    /// Sets the maximum delay between two attempts, before jitter. It does not limit a wait that the
    /// server names.
    pub fn max_delay(self, delay: Duration) -> Self {
        Self { max_delay: delay, ..self }
    }

    /// Sets the maximum time from the start of the first attempt to the start of the last.
    ///
    /// If a server asks for a longer wait, the request fails at once.
    pub fn max_elapsed(self, elapsed: Duration) -> Self {
        Self { max_elapsed: elapsed, ..self }
    }

    fn backoff(&self) -> impl Iterator<Item = Duration> + use<> {
        ExponentialBuilder::new()
            .with_min_delay(self.initial_delay)
            .with_max_delay(self.max_delay)
            .with_max_times(self.max_attempts - 1)
            .with_jitter()
            .build()
    }
}

/// Writes the limits in one line, for logs.
impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_attempts, initial_delay, max_delay, max_elapsed } = self;
        write!(f, "{max_attempts} attempts within {max_elapsed:?}, ")?;
        write!(f, "{initial_delay:?} to {max_delay:?} apart")
    }
}

/// A request that failed for good: its last error, and the attempts before it.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) error: HttpError,
    pub(crate) attempts: usize,
    /// The time since the first attempt.
    pub(crate) elapsed: Duration,
}

/// The retry loop of one request, as a state machine.
///
/// A function over an async closure would be shorter, but its future borrows and is then not `Send`,
/// which callers that spawn need.
pub(super) struct RetryState<'a, D> {
    policy: &'a RetryPolicy,
    gate: &'a RateLimitGate,
    url: &'a Url,
    backoff: D,
    /// The number of finished attempts.
    attempts: usize,
    started: Instant,
}

impl RetryPolicy {
    pub(super) fn start<'a>(
        &'a self,
        url: &'a Url,
        gate: &'a RateLimitGate,
    ) -> RetryState<'a, impl Iterator<Item = Duration> + use<>> {
        RetryState {
            policy: self,
            gate,
            url,
            backoff: self.backoff(),
            attempts: 0,
            started: Instant::now(),
        }
    }
}

impl<'a, D: Iterator<Item = Duration>> RetryState<'a, D> {
    /// Starts the next attempt.
    pub(super) fn next_attempt(
        &self,
        range: Option<&'a Range<u64>>,
        meter: &'a RequestMeter,
    ) -> Attempt<'a> {
        Attempt::start(self.attempts + 1, self.url, range, meter)
    }

    /// Waits after a failed attempt until the next one may start. Returns the failure if the error is
    /// permanent or a limit of the policy is reached.
    pub(super) async fn wait_after(&mut self, error: HttpError) -> Result<(), RequestFailure> {
        self.attempts += 1;
        let server_wait = error.server_wait();
        let delay = self.backoff.next().filter(|_| error.is_retryable());
        let wait = delay.map(|delay| server_wait.unwrap_or(delay));
        let elapsed = self.started.elapsed();
        let fits = |wait: &Duration| elapsed.saturating_add(*wait) <= self.policy.max_elapsed;
        let Some(wait) = wait.filter(fits) else {
            return Err(RequestFailure { error, attempts: self.attempts, elapsed });
        };
        let (url, attempts) = (SafeUrl::from(self.url), self.attempts);
        tracing::info!(%url, attempts, ?wait, %error, "retrying");
        // The gate already enforces a wait that the server named. After a rate limit without a wait, the
        // gate holds back the other requests to this origin, too.
        if server_wait.is_none() && error.is_rate_limit() {
            self.gate.hold(&self.url.origin(), wait);
        } else if server_wait.is_none() {
            sleep(wait).await;
        }
        Ok(())
    }
}
