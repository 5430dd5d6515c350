//! Retries: which failures are retried, how often, and with which delays.

use std::time::Duration;

use ::url::Url;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::attempt::{Attempt, Requested};
use super::client::Http;
use super::error::HttpError;
use super::rate_limit_gate::GateKey;
use super::safe_url::SafeUrl;

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
