//! Quotas: requests per fixed window, counted per caller and kind of request. Also counts all requests.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::header::RETRY_AFTER;

use crate::log::{BytesSent, Host, LoggedRequest, lock};
use crate::response::ResponseSpec;

/// The number of requests since the start of a Hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Requests to the API: listings and other JSON responses.
    pub api: u64,
    /// Requests for files.
    pub resolvers: u64,
    /// All other requests to the Hub.
    pub pages: u64,
    /// Requests to the CDN.
    pub cdn: u64,
    /// Requests to the Hub that exceeded a quota, which are also included in the count of their kind.
    pub refused: u64,
    /// The size of all response bodies in bytes, as far as they were sent.
    pub bytes: u64,
}

impl RequestCounts {
    /// Returns the number of requests to both servers.
    pub fn total(&self) -> u64 {
        self.api + self.resolvers + self.pages + self.cdn
    }

    /// Counts a request and returns its kind, which has its own quota. The client has the same rule. It is not shared,
    /// so that a mistake there does not go unnoticed here.
    fn count(&mut self, path: &str) -> &'static str {
        let (kind, count) = if path.contains("/resolve/") || path.contains("/api/resolve-cache/") {
            ("resolvers", &mut self.resolvers)
        } else if path.contains("/api/") {
            ("api", &mut self.api)
        } else {
            ("pages", &mut self.pages)
        };
        *count += 1;
        kind
    }
}

/// The quota that is advertised if none is enforced. The remaining number is constant: if it decreased, clients would slow
/// down.
const ADVERTISED: (u64, Duration) = (3_000, Duration::from_secs(300));

/// The quotas of all callers and the request counts.
#[derive(Default)]
pub(crate) struct Quotas {
    /// The number of requests per window, if quotas are enforced.
    pub limit: Option<(u64, Duration)>,
    /// The size of all response bodies.
    pub sent: BytesSent,
    usage: Mutex<QuotaUsage>,
}

#[derive(Default)]
struct QuotaUsage {
    counts: RequestCounts,
    /// The time of the first request, at which the first windows begin.
    started: Option<Instant>,
    /// The current window and its requests, by caller and kind.
    windows: HashMap<(Option<String>, &'static str), (u128, u64)>,
}

impl Quotas {
    pub(crate) fn counts(&self) -> RequestCounts {
        RequestCounts { bytes: self.sent.bytes(), ..lock(&self.usage).counts }
    }

    /// Counts a request, and responds to it if its quota allows that.
    pub(crate) fn respond(
        &self,
        request: &LoggedRequest,
        respond: impl FnOnce() -> ResponseSpec,
    ) -> ResponseSpec {
        if request.host == Host::Cdn {
            lock(&self.usage).counts.cdn += 1;
            return respond();
        }
        let (kind, remaining, reset) = self.try_take(request);
        let (requests, window) = self.limit.unwrap_or(ADVERTISED);
        let response = if remaining.is_some() {
            respond()
        } else {
            // Rounded up, so that a client that waits for this time retries in the next window.
            let seconds = reset.as_millis().div_ceil(1000).to_string();
            ResponseSpec::text(429, "You have exceeded the rate limit").with(RETRY_AFTER, seconds)
        };
        // Rounded down, so that a client that waits for exactly this time retries too early.
        let (window, reset, remaining) =
            (window.as_secs(), reset.as_secs(), remaining.unwrap_or(0));
        response
            .with("ratelimit-policy", format!(r#""fixed window";"{kind}";q={requests};w={window}"#))
            .with("ratelimit", format!(r#""{kind}";r={remaining};t={reset}"#))
    }

    /// Counts a request to the Hub and takes it from the caller's quota. Returns the kind of the quota, the remaining
    /// requests in this window (`None` if this request exceeds the quota), and the time until the next window.
    fn try_take(&self, request: &LoggedRequest) -> (&'static str, Option<u64>, Duration) {
        let mut usage = lock(&self.usage);
        let kind = usage.counts.count(&request.path);
        let Some((requests, window)) = self.limit else {
            return (kind, Some(ADVERTISED.0), ADVERTISED.1);
        };
        let elapsed = usage.started.get_or_insert_with(Instant::now).elapsed().as_nanos();
        let length = window.as_nanos().max(1);
        let key = (request.authorization.clone(), kind);
        let (number, used) = usage.windows.entry(key).or_default();
        if *number != elapsed / length {
            (*number, *used) = (elapsed / length, 0);
        }
        let remaining = requests.checked_sub(*used + 1);
        *used += u64::from(remaining.is_some());
        usage.counts.refused += u64::from(remaining.is_none());
        let reset = u64::try_from(length - elapsed % length).unwrap_or(u64::MAX);
        (kind, remaining, Duration::from_nanos(reset))
    }
}
