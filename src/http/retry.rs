//! Retries: which failures are retried, how often, and with which delays.

use std::time::Duration;

use ::url::Url;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::attempt::{Attempt, Requested};
use super::rate_limit_gate::GateKey;
use super::{Http, HttpError, SafeUrl, random_fraction};

/// Limits on the number and timing of attempts per request.
///
/// Transient failures are retried with exponential backoff and jitter. These are: statuses 408, 429, 500, 502, 503
/// and 504; connections that fail or break; timeouts; truncated bodies; and status 403 from an origin other than the
/// requested one, because repeating the request to the Hub yields a freshly signed CDN URL. A retry repeats only the
/// failed range, never ranges that have already been read.
///
/// If a server sends `Retry-After` or reports an exhausted `RateLimit` quota, all requests subject to that quota wait
/// for the given time, but at most 301 seconds. [`max_wait`](Self::max_wait) limits these waits. They do not count as
/// retries: [`no_retries`](Self::no_retries) waits for a rate limit, [`fail_fast`](Self::fail_fast) does not.
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
/// let client = Client::builder().retry_policy(retry).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    max_attempts: usize,
    initial_delay: Duration,
    max_delay: Duration,
    max_elapsed: Duration,
    pub(super) max_wait: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy of 5 attempts within 300 seconds, with delays that start at 250 ms and double up to 10
    /// seconds. It waits up to 320 seconds for rate limits.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(10),
            max_elapsed: Duration::from_secs(300),
            // The Hub counts requests in windows of 300 s (https://huggingface.co/docs/hub/rate-limits),
            // so 320 s is enough to wait for the next window once.
            max_wait: Duration::from_secs(320),
        }
    }
}

impl RetryPolicy {
    /// Sets the maximum number of attempts per request, including the first; at least 1.
    pub fn max_attempts(self, attempts: usize) -> Self {
        Self { max_attempts: attempts.max(1), ..self }
    }

    /// Sets the delay after the first failure.
    ///
    /// The delay doubles after each further failure. Up to half of it is subtracted at random, so that clients do not
    /// retry in lockstep. A wait requested by the server takes precedence.
    pub fn initial_delay(self, delay: Duration) -> Self {
        Self { initial_delay: delay, ..self }
    }

    /// Sets the maximum delay between two attempts. It does not limit waits requested by the server.
    pub fn max_delay(self, delay: Duration) -> Self {
        Self { max_delay: delay, ..self }
    }

    /// Sets the maximum time from the start of the first attempt to the start of the last one, excluding waits for
    /// rate limits.
    pub fn max_elapsed(self, elapsed: Duration) -> Self {
        Self { max_elapsed: elapsed, ..self }
    }

    /// Sets the maximum total time that a call waits for rate limits. A call that would have to wait longer, or beyond
    /// its [timeout](crate::ClientBuilder::call_timeout), fails immediately.
    /// [`Model::max_wait`](crate::Model::max_wait) overrides it for single calls.
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { max_wait: wait, ..self }
    }

    /// Returns the delay after a number of failures; `None` after the last attempt.
    fn delay(&self, failures: usize) -> Option<Duration> {
        if failures >= self.max_attempts {
            return None;
        }
        let doubled = u32::try_from(failures - 1).ok().and_then(|n| 2_u32.checked_pow(n));
        let delay = self.initial_delay.saturating_mul(doubled.unwrap_or(u32::MAX));
        Some(delay.min(self.max_delay).mul_f64(1.0 - random_fraction() / 2.0))
    }
}

/// A request that failed for good, with its last error and the attempts made.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) error: HttpError,
    pub(crate) attempts: usize,
    /// The time since the first attempt.
    pub(crate) elapsed: Duration,
}

/// The state of the retries of one request.
struct RetryState<'a> {
    http: &'a Http,
    url: &'a Url,
    /// The number of finished attempts.
    attempts: usize,
    started: Instant,
    /// The rate limit waits of the call before the first attempt.
    waited_before: Duration,
}

impl Http {
    /// Makes attempts at a request until one succeeds, fails for good, or a limit of the policy is reached.
    ///
    /// The futures are boxed, because the future of an async closure would borrow and not be `Send`.
    pub(super) async fn retry<'a, T>(
        &'a self,
        url: &'a Url,
        requested: Requested<'a>,
        run: impl for<'b> Fn(&'b mut Attempt<'a>) -> BoxFuture<'b, Result<T, HttpError>>,
    ) -> Result<T, RequestFailure> {
        let (started, waited_before) = (Instant::now(), self.meter.waited());
        let mut state = RetryState { http: self, url, attempts: 0, started, waited_before };
        loop {
            let mut attempt = Attempt::start(state.attempts + 1, url, requested, &self.meter);
            let span = attempt.span();
            let done = run(&mut attempt).instrument(span).await;
            match attempt.finish(done) {
                Ok(done) => return Ok(done),
                Err(error) => state.back_off(error).await?,
            }
        }
    }
}

impl RetryState<'_> {
    /// Waits after a failed attempt until the next one may start. Returns an error if the failure is permanent or a
    /// limit of the policy is reached.
    async fn back_off(&mut self, error: HttpError) -> Result<(), RequestFailure> {
        self.attempts += 1;
        let (attempts, elapsed) = (self.attempts, self.started.elapsed());
        let (server_wait, is_rate_limited) = match &error {
            // A 429 from a CDN says nothing about the bucket of the request.
            HttpError::Status(response) => {
                (response.retry_after, response.status == 429 && !response.is_cross_origin)
            }
            _ => (None, false),
        };
        let delay = self.http.settings.retry_policy.delay(attempts);
        let may_retry =
            |delay: &Duration| error.is_retryable() && self.is_within_limits(*delay, server_wait);
        let Some(delay) = delay.filter(may_retry) else {
            return Err(RequestFailure { error, attempts, elapsed });
        };
        let url = SafeUrl::from(self.url);
        tracing::info!(%url, attempts, wait = ?server_wait.unwrap_or(delay), %error, "retrying");
        let max_retries = self.http.settings.retry_policy.max_attempts.saturating_sub(1);
        self.http.meter.set_retry(Some((attempts, max_retries)));
        // The gate already enforces a wait that the server asked for. After a 429 without a wait, the gate also holds
        // back the other requests of this bucket.
        if server_wait.is_none() && is_rate_limited {
            self.http.gate.hold(&GateKey::from(self.url), delay);
        } else if server_wait.is_none() {
            sleep(delay).await;
        }
        Ok(())
    }

    /// Returns whether a delay, or the server's wait in its place, is within the limits.
    fn is_within_limits(&self, delay: Duration, server_wait: Option<Duration>) -> bool {
        let policy = &self.http.settings.retry_policy;
        if let Some(wait) = server_wait {
            return self.http.meter.may_wait(wait, policy.max_wait);
        }
        let waited = self.http.meter.waited().saturating_sub(self.waited_before);
        let own = self.started.elapsed().saturating_sub(waited);
        own.saturating_add(delay) <= policy.max_elapsed
    }
}

impl Drop for RetryState<'_> {
    fn drop(&mut self) {
        if self.attempts > 0 {
            self.http.meter.set_retry(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_the_maximum_and_jitter_only_shortens_it() {
        let policy = RetryPolicy::default().max_attempts(200);
        for failures in 1..200 {
            let seconds = 0.25 * 2_f64.powi(failures.min(30) - 1);
            let longest = Duration::from_secs_f64(seconds.min(10.0));
            let delay = policy.delay(usize::try_from(failures).unwrap()).unwrap();
            assert!(delay >= longest / 2 && delay <= longest, "{failures}: {delay:?}");
        }
        assert_eq!(policy.delay(200), None);
        assert_eq!(RetryPolicy::default().max_attempts(1).delay(1), None);
        let delays: Vec<_> = (0..100).map(|_| policy.delay(9)).collect();
        assert!(delays.iter().any(|delay| *delay != delays[0]), "no jitter");
    }
}
