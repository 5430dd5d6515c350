//! Keeps the requests of a client within the rate limits of each server.
//!
//! Limits apply per origin, [bucket](RateLimitBucket) and token, because the Hub assigns quotas to accounts. A bucket
//! is *on hold* while its quota is exhausted or its server has asked for a wait. Otherwise the number of its requests
//! in flight is limited to a quarter of the remaining quota. Requests therefore slow down before the quota is
//! exhausted, and leave some of it to other programs that share it.

use std::collections::HashMap;
use std::mem::replace;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ::url::{Origin, Url};
use futures::future::select;
use hf_meta_count::results::text;
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::rate_limit::{self, Quota, RateLimitBucket};
use crate::base::meter::CallMeter;
use crate::base::{lock, random_fraction};

/// The maximum duration of a hold: the Hub's window of 300 s, and a second for rounding.
const MAX_HOLD: Duration = Duration::from_secs(301);

/// The maximum time after a hold in which one request is in flight, until a response reports the new quota.
const CAUTIOUS_TIME: Duration = Duration::from_secs(60);

/// The remaining quota divided by this is the limit on requests in flight.
const IN_FLIGHT_DIVISOR: u64 = 4;

/// The maximum number of requests in flight until a response shows whether the server has quotas. The Hub's smallest
/// quota is 500.
const INITIAL_MAX_IN_FLIGHT: u64 = 256;

/// The maximum random delay after a wait. It keeps processes that share a quota from resuming at the same time.
const MAX_JITTER: Duration = Duration::from_secs(5);

/// Longer waits are logged as warnings. Shorter waits are common and do not look like a hang.
const MIN_WARNED_WAIT: Duration = Duration::from_secs(5);

/// The maximum number of states. Beyond it, idle ones are dropped, even if their limits still apply, because anyone can
/// send any number of invalid tokens to a service that passes them on.
const MAX_STATES: usize = 50_000;

/// The states of all tokens, servers and buckets.
type GateStates = HashMap<(Option<HeaderValue>, GateKey), GateState>;

/// Drops the states without requests and limits, or else all states without requests.
fn drop_idle(states: &mut GateStates) {
    states.retain(|_, state| state.is_in_use() || state.is_limited());
    if states.len() >= MAX_STATES {
        states.retain(|_, state| state.is_in_use());
    }
}

/// The rate limits of all servers, shared by all requests of a client with one token.
#[derive(Clone, Debug)]
pub(super) struct RateLimitGate {
    states: Arc<Mutex<GateStates>>,
    token: Option<HeaderValue>,
    /// The maximum number of requests in flight per key, whatever the quota.
    max_in_flight: u64,
    /// The fraction of each quota to use, from 0 to 1.
    quota_share: f64,
}

/// Identifies the requests that share a rate limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GateKey {
    origin: Origin,
    bucket: RateLimitBucket,
}

impl From<&Url> for GateKey {
    fn from(url: &Url) -> Self {
        Self { origin: url.origin(), bucket: RateLimitBucket::from_url(url) }
    }
}

#[derive(Debug, Default)]
struct GateState {
    /// Requests that were admitted and have no response yet.
    in_flight: u64,
    /// The remaining quota; `None` if unknown.
    remaining: Option<Allowance>,
    /// The rest of our share of the quota; `None` without a share.
    share_left: Option<Allowance>,
    /// True if the last response named no quota.
    is_unlimited: bool,
    hold: Option<Hold>,
    /// Each response wakes one waiting request, which wakes the next. The start of a hold wakes all of them.
    changed: Arc<Notify>,
}

/// A number of requests that may be sent until a quota is reset.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    requests: u64,
    reset: Instant,
}

/// A period without requests.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Instant,
    has_warned: bool,
}

/// Returns `share` of `requests`, but at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a quota is small, and the share is from 0 to 1"
)]
fn share_of(requests: u64, share: f64) -> u64 {
    ((requests as f64 * share) as u64).max(1)
}

/// The gate's decision about a request.
enum Admission {
    /// The request may be sent.
    Admitted,
    /// The request waits until another one gets its response, or for the next quota.
    Full(Instant),
    /// The request waits for the end of a hold.
    Held(Hold),
}

impl GateState {
    fn admit(&mut self, max_in_flight: u64, share: f64) -> Admission {
        let now = Instant::now();
        if let Some(hold) = self.hold {
            if hold.until > now {
                return Admission::Held(hold);
            }
            // The first response after a hold reports the new quota. Until then, only one request is in flight.
            self.hold = None;
            self.remaining = Some(Allowance { requests: 0, reset: now + CAUTIOUS_TIME });
        }
        let limit = match self.remaining {
            Some(quota) if quota.reset > now => (quota.requests / IN_FLIGHT_DIVISOR).max(1),
            _ if self.is_unlimited => max_in_flight,
            // No response has reported the quota of this window yet, so our share does not count these requests.
            _ => share_of(INITIAL_MAX_IN_FLIGHT, share),
        };
        if self.in_flight >= limit.min(max_in_flight) {
            let reset = self.remaining.map(|quota| quota.reset).filter(|reset| *reset > now);
            return Admission::Full(reset.unwrap_or(now + MAX_HOLD));
        }
        if let Some(left) = self.share_left.as_mut().filter(|left| left.reset > now) {
            if left.requests == 0 {
                let wait = left.reset.saturating_duration_since(now);
                return Admission::Held(self.hold(wait));
            }
            left.requests -= 1;
        }
        self.in_flight += 1;
        Admission::Admitted
    }

    /// Puts the bucket on hold. If it already is, the later end applies.
    fn hold(&mut self, wait: Duration) -> Hold {
        let until = Instant::now() + wait.min(MAX_HOLD);
        let hold = self.hold.get_or_insert(Hold { until, has_warned: false });
        hold.until = until.max(hold.until);
        self.changed.notify_waiters();
        *hold
    }

    fn set_quota(&mut self, quota: Quota, share: f64) {
        let now = Instant::now();
        let reset = now + quota.reset.min(MAX_HOLD);
        if share < 1.0 && self.share_left.is_none_or(|left| left.reset <= now) {
            // The server has not yet subtracted the other requests in flight.
            let others = self.in_flight.saturating_sub(1);
            let requests = share_of(quota.remaining, share).saturating_sub(others);
            self.share_left = Some(Allowance { requests, reset });
        }
        if quota.remaining == 0 {
            self.hold(quota.reset);
        } else {
            self.remaining = Some(Allowance { requests: quota.remaining, reset });
        }
    }

    /// Applies the rate limits of a response. The quotas it names are set one by one.
    fn record(&mut self, status: u16, wait: Option<Duration>, has_quota: bool) {
        let now = Instant::now();
        // The error page of a load balancer reports no quota, so the last known one still applies.
        let is_silent = !has_quota && wait.is_none() && status != 429;
        self.remaining =
            self.remaining.filter(|quota| is_silent && quota.requests > 0 && quota.reset > now);
        self.is_unlimited = !has_quota && self.remaining.is_none();
        if let Some(wait) = wait {
            self.hold(wait);
        }
    }

    /// Returns the time until the hold ends; `None` if there is none.
    fn held_for(&self) -> Option<Duration> {
        let left = self.hold?.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether requests are in flight or waiting.
    fn is_in_use(&self) -> bool {
        self.in_flight > 0 || Arc::strong_count(&self.changed) > 1
    }

    /// Returns whether a limit applies to the next request.
    fn is_limited(&self) -> bool {
        let now = Instant::now();
        let allowances = [self.remaining, self.share_left].into_iter().flatten();
        self.held_for().is_some()
            || allowances.map(|allowance| allowance.reset).any(|reset| reset > now)
    }
}

impl RateLimitGate {
    pub(super) fn new(max_in_flight: usize, quota_share: f64) -> Self {
        let max_in_flight = max_in_flight as u64;
        Self { states: Arc::default(), token: None, max_in_flight, quota_share }
    }

    /// Returns the gate for another token. It shares the states with this one.
    pub(super) fn for_token(&self, token: Option<HeaderValue>) -> Self {
        Self { token, ..self.clone() }
    }

    /// Puts the requests of a key on hold.
    pub(super) fn hold(&self, key: &GateKey, wait: Duration) {
        self.with_state(key, |state| state.hold(wait));
    }

    /// Returns the time until the last hold of the token ends; `None` if there is none.
    pub(super) fn paused_for(&self) -> Option<Duration> {
        let states = lock(&self.states);
        let own = states.iter().filter(|((token, _), _)| *token == self.token);
        own.filter_map(|(_, state)| state.held_for()).max()
    }

    /// Returns whether a quarter of the quota that is left suffices for a number of requests. A server that named no
    /// quota has none.
    pub(super) fn has_quota(&self, key: &GateKey, requests: u64) -> bool {
        let now = Instant::now();
        self.with_state(key, |state| {
            let left = [state.remaining, state.share_left].into_iter().flatten();
            let mut left = left.filter(|left| left.reset > now);
            state.held_for().is_none()
                && left.all(|left| left.requests / IN_FLIGHT_DIVISOR >= requests)
        })
    }

    /// Waits until a request may be sent.
    ///
    /// # Errors
    ///
    /// Returns the remaining wait if the call would wait longer than `max_wait` for rate limits in total, or beyond its
    /// deadline.
    pub(super) async fn acquire(
        &self,
        key: GateKey,
        meter: &CallMeter,
        max_wait: Duration,
    ) -> Result<GatePermit<'_>, Duration> {
        let changed = self.with_state(&key, |state| Arc::clone(&state.changed));
        let (mut waiting, mut has_waited) = (None, false);
        loop {
            let notified = changed.notified();
            match self.with_state(&key, |state| state.admit(self.max_in_flight, self.quota_share)) {
                Admission::Admitted => {
                    // A response wakes only one request, but may admit many more.
                    if has_waited {
                        changed.notify_one();
                    }
                    return Ok(GatePermit { gate: self, key });
                }
                Admission::Full(reset) => {
                    (waiting, has_waited) = (None, true);
                    select(pin!(notified), pin!(sleep_until(reset))).await;
                }
                Admission::Held(hold) => {
                    has_waited = true;
                    waiting.get_or_insert_with(|| meter.start_wait());
                    let wait = hold.until.saturating_duration_since(Instant::now());
                    if !meter.may_wait(wait, max_wait) {
                        return Err(wait);
                    }
                    self.log(&key, wait);
                    let jitter = (wait / 10).min(MAX_JITTER).mul_f64(random_fraction());
                    select(pin!(notified), pin!(sleep_until(hold.until + jitter))).await;
                }
            }
        }
    }

    fn with_state<T>(&self, key: &GateKey, change: impl FnOnce(&mut GateState) -> T) -> T {
        let (key, mut states) = ((self.token.clone(), key.clone()), lock(&self.states));
        if states.len() >= MAX_STATES && !states.contains_key(&key) {
            drop_idle(&mut states);
        }
        change(states.entry(key).or_default())
    }

    /// Logs a wait: at most one warning per hold, and otherwise a debug message.
    fn log(&self, key: &GateKey, wait: Duration) {
        let server = key.origin.ascii_serialization();
        let take_warning = |state: &mut GateState| {
            state.hold.as_mut().is_some_and(|hold| !replace(&mut hold.has_warned, true))
        };
        if wait > MIN_WARNED_WAIT && self.with_state(key, take_warning) {
            let wait = text::duration(wait);
            tracing::warn!(server, "rate limit reached; waiting {wait}");
        } else {
            tracing::debug!(server, ?wait, "request held back by a rate limit");
        }
    }
}

/// A guard for an admitted request, until its response arrives.
#[derive(Debug)]
pub(super) struct GatePermit<'a> {
    gate: &'a RateLimitGate,
    key: GateKey,
}

impl GatePermit<'_> {
    /// Applies the rate limits of the response.
    pub(super) fn record(self, status: u16, headers: &HeaderMap) {
        let Self { gate, key } = &self;
        let quotas = rate_limit::quotas(headers, key.bucket);
        let wait = rate_limit::required_wait(status, headers, key.bucket, SystemTime::now());
        gate.with_state(key, |state| state.record(status, wait, !quotas.is_empty()));
        for quota in quotas {
            let key = GateKey { bucket: quota.bucket, ..key.clone() };
            gate.with_state(&key, |state| state.set_quota(quota, gate.quota_share));
        }
    }
}

/// Ends the request, and wakes the next one.
impl Drop for GatePermit<'_> {
    fn drop(&mut self) {
        self.gate.with_state(&self.key, |state| {
            state.in_flight = state.in_flight.saturating_sub(1);
            state.changed.notify_one();
        });
    }
}

#[cfg(test)]
mod tests;
