//! The settings of an HTTP client.

use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::header::{HeaderMap, HeaderValue};

use super::address::{AddressPolicy, Proxies};
use super::tls::Certificate;
use crate::base::{Callback, random_fraction};

/// Settings of an [`Http`](super::Http) client.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) user_agent: HeaderValue,
    /// Additional headers. Like the token, they are sent to the endpoint's origin only.
    pub(crate) headers: HeaderMap,
    /// The proxies; `None` if no proxy is used.
    pub(crate) proxies: Option<Proxies>,
    /// Additional root certificates to trust.
    pub(crate) root_certificates: Vec<Certificate>,
    /// True to trust the system's certificates, false to trust Mozilla's.
    pub(crate) system_certificates: bool,
    pub(crate) hook: Option<HttpHook>,
    pub(crate) address_policy: AddressPolicy,
    /// The timeout of name resolution, TCP and TLS together.
    pub(crate) connect_timeout: Duration,
    /// The timeout between two reads of a response.
    pub(crate) read_timeout: Duration,
    /// The timeout from connecting to the end of the body. Each redirect restarts it.
    pub(crate) request_timeout: Duration,
    pub(crate) retry_policy: RetryPolicy,
    /// The maximum number of requests in flight, across all calls.
    pub(crate) max_concurrent_requests: usize,
    /// The fraction of each quota to use, from 0 to 1.
    pub(crate) quota_share: f64,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            user_agent: HeaderValue::from_static(concat!("hf-meta/", env!("CARGO_PKG_VERSION"))),
            headers: HeaderMap::new(),
            proxies: None,
            root_certificates: Vec::new(),
            system_certificates: false,
            hook: None,
            address_policy: AddressPolicy::default(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            retry_policy: RetryPolicy::default(),
            max_concurrent_requests: 256,
            quota_share: 1.0,
        }
    }
}

/// The maximum delay between two attempts. It does not limit waits requested by the server.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// A callback that customizes the builder of the HTTP library.
pub(crate) type HttpHook = Callback<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>;

/// Limits on the number and timing of attempts per request.
///
/// Transient failures are retried with exponential backoff and jitter. These are: statuses 408, 429, 500, 502, 503
/// and 504; connections that fail or break; timeouts; truncated bodies; and status 403 from an origin other than the
/// requested one, because repeating the request to the Hub yields a freshly signed CDN URL. A retry repeats only the
/// failed range, never ranges that have already been read.
///
/// If a server sends `Retry-After` or reports an exhausted `RateLimit` quota, all requests subject to that quota wait
/// for the given time, but at most 301 seconds. [`max_wait`](Self::max_wait) limits these waits. They do not count as
/// retries: a policy of one attempt waits for a rate limit too, unless its longest wait is zero.
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
///     .max_elapsed(Duration::from_secs(20));
/// let client = Client::builder().retry_policy(retry).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    pub(super) max_attempts: usize,
    initial_delay: Duration,
    pub(super) max_elapsed: Duration,
    pub(super) max_wait: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy of 5 attempts within 300 seconds, with delays that start at 250 ms and double up to 10
    /// seconds. It waits up to 320 seconds for rate limits.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_delay: Duration::from_millis(250),
            max_elapsed: Duration::from_secs(300),
            // The Hub counts requests in windows of 300 s (https://huggingface.co/docs/hub/rate-limits),
            // so 320 s is enough to wait for the next window once.
            max_wait: Duration::from_secs(320),
        }
    }
}

impl RetryPolicy {
    /// Sets the maximum number of attempts per request, including the first; at least 1.
    ///
    /// ```
    /// let policy = hf_meta::RetryPolicy::default().max_attempts(2);
    /// let client = hf_meta::Client::builder().retry_policy(policy).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_attempts(self, attempts: usize) -> Self {
        Self { max_attempts: attempts.max(1), ..self }
    }

    /// Sets the delay after the first failure.
    ///
    /// The delay doubles after each further failure, up to 10 seconds. Up to half of it is subtracted at random, so that
    /// clients do not retry in lockstep. A wait requested by the server takes precedence.
    ///
    /// ```
    /// let delay = std::time::Duration::from_millis(100);
    /// let policy = hf_meta::RetryPolicy::default().initial_delay(delay);
    /// let client = hf_meta::Client::builder().retry_policy(policy).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn initial_delay(self, delay: Duration) -> Self {
        Self { initial_delay: delay, ..self }
    }

    /// Sets the maximum time from the start of the first attempt to the start of the last one, excluding waits for
    /// rate limits.
    ///
    /// ```
    /// let limit = std::time::Duration::from_secs(10);
    /// let policy = hf_meta::RetryPolicy::default().max_elapsed(limit);
    /// let client = hf_meta::Client::builder().retry_policy(policy).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_elapsed(self, elapsed: Duration) -> Self {
        Self { max_elapsed: elapsed, ..self }
    }

    /// Sets the maximum total time that a call waits for rate limits. A call that would have to wait longer, or beyond
    /// its [timeout](crate::ClientBuilder::call_timeout), fails immediately.
    ///
    /// ```
    /// let wait = std::time::Duration::from_secs(300);
    /// let policy = hf_meta::RetryPolicy::default().max_wait(wait);
    /// let client = hf_meta::Client::builder().retry_policy(policy).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { max_wait: wait, ..self }
    }

    /// Returns the delay after a number of failures; `None` after the last attempt.
    pub(super) fn delay(&self, failures: usize) -> Option<Duration> {
        if failures >= self.max_attempts {
            return None;
        }
        let doubled = u32::try_from(failures - 1).ok().and_then(|n| 2_u32.checked_pow(n));
        let delay = self.initial_delay.saturating_mul(doubled.unwrap_or(u32::MAX));
        Some(delay.min(MAX_DELAY).mul_f64(1.0 - random_fraction() / 2.0))
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
