//! Which failures are tried again, how often and when.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use ::url::Url;
use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, sleep};

use super::attempt::Attempt;
use super::gate::Gate;
use super::{HttpError, SafeUrl};
use crate::http::transfer::RequestMeter;

/// How often a request is made, and how long after a failure it is made again.
///
/// Retried are failures that may pass: the statuses 408, 429, 500, 502, 503 and 504, connections that
/// could not be made or broke, timeouts, bodies that end early, and a refusal of the CDN, for which
/// the Hub is asked for another signed URL. What was read before stays read. Where the server says
/// how long to wait, all requests of the client to that server wait so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    attempts: usize,
    first_delay: Duration,
    longest_delay: Duration,
    pub(super) longest_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// 5 attempts within 320 seconds (a window of the Hub's rate limit has 300), the first two a
    /// quarter of a second apart, each further one twice as long, up to 10 seconds.
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_millis(250),
            longest_delay: Duration::from_secs(10),
            longest_elapsed: Duration::from_secs(320),
        }
    }
}

impl RetryPolicy {
    /// Every request is made once.
    pub fn never() -> Self {
        Self::default().attempts(1)
    }

    /// The most times that a request is made, at least 1.
    pub fn attempts(self, attempts: usize) -> Self {
        Self { attempts: attempts.max(1), ..self }
    }

    /// The wait after the first failure, where the server asks for none. Twice as long after each
    /// further one, and up to as much again at random, so that clients do not come back together.
    pub fn first_delay(self, delay: Duration) -> Self {
        Self { first_delay: delay, ..self }
    }

    /// The longest wait between two attempts, where the server asks for none.
    pub fn longest_delay(self, delay: Duration) -> Self {
        Self { longest_delay: delay, ..self }
    }

    /// The longest time from the first attempt to the last. A server that asks to wait beyond it is not
    /// waited for.
    pub fn longest_elapsed(self, elapsed: Duration) -> Self {
        Self { longest_elapsed: elapsed, ..self }
    }

    fn delays(&self) -> impl Iterator<Item = Duration> + use<> {
        ExponentialBuilder::new()
            .with_min_delay(self.first_delay)
            .with_max_delay(self.longest_delay)
            .with_max_times(self.attempts - 1)
            .with_jitter()
            .build()
    }
}

impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, first_delay, longest_delay, longest_elapsed } = self;
        write!(f, "{attempts} attempts within {longest_elapsed:?}, ")?;
        write!(f, "{first_delay:?} to {longest_delay:?} apart")
    }
}

/// A request that failed for good.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) error: HttpError,
    pub(crate) attempts: usize,
    pub(crate) elapsed: Duration,
}

/// The attempts at one request, as a state rather than as a function over a closure: the future of an
/// async closure that borrows is not `Send` enough for callers that spawn.
pub(super) struct Attempts<'a, D> {
    policy: &'a RetryPolicy,
    gate: &'a Gate,
    url: &'a Url,
    delays: D,
    made: usize,
    started: Instant,
}

impl RetryPolicy {
    pub(super) fn attempts_at<'a>(
        &'a self,
        url: &'a Url,
        gate: &'a Gate,
    ) -> Attempts<'a, impl Iterator<Item = Duration> + use<>> {
        Attempts {
            policy: self,
            gate,
            url,
            delays: self.delays(),
            made: 0,
            started: Instant::now(),
        }
    }
}

impl<'a, D: Iterator<Item = Duration>> Attempts<'a, D> {
    /// Begins the next attempt.
    pub(super) fn begin(
        &self,
        range: Option<&'a Range<u64>>,
        meter: &'a RequestMeter,
    ) -> Attempt<'a> {
        Attempt::begin(self.made + 1, self.url, range, meter)
    }

    /// Waits after a failure until it is time for the next attempt; the failure itself, where there
    /// is to be none.
    pub(super) async fn after(&mut self, error: HttpError) -> Result<(), RequestFailure> {
        self.made += 1;
        let asked = error.asked_wait();
        let delay = self.delays.next().filter(|_| error.is_retryable());
        let wait = delay.map(|delay| asked.unwrap_or(delay));
        let elapsed = self.started.elapsed();
        let fits = |wait: &Duration| elapsed.saturating_add(*wait) <= self.policy.longest_elapsed;
        let Some(wait) = wait.filter(fits) else {
            return Err(RequestFailure { error, attempts: self.made, elapsed });
        };
        let (url, attempts) = (SafeUrl::from(self.url), self.made);
        tracing::info!(%url, attempts, ?wait, %error, "trying again");
        // A wait that was asked for is kept by the gate, for all requests to that server.
        if asked.is_none() && error.is_rate_limit() {
            self.gate.close(&self.url.origin(), wait);
        } else if asked.is_none() {
            sleep(wait).await;
        }
        Ok(())
    }
}
