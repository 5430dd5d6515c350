//! Quotas: requests per fixed window, counted per caller and kind of request. Also counts all requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;

use super::header_names::{RATELIMIT, RATELIMIT_POLICY};
use super::log::{BytesSent, Host, LoggedRequest};
use super::response::ResponseSpec;

/// The number of requests per window of a quota that is not enforced.
const DISPLAYED_QUOTA: u64 = 3000;

/// A kind of request with its own quota. The client has the same rule in `http/rate_limit.rs`. It is not shared, so
/// that a mistake there does not go unnoticed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum QuotaKind {
    Api,
    Resolvers,
    Pages,
}

impl QuotaKind {
    fn from_path(path: &str) -> Self {
        if path.contains("/resolve/") || path.contains("/api/resolve-cache/") {
            Self::Resolvers
        } else if path.contains("/api/") {
            Self::Api
        } else {
            Self::Pages
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Resolvers => "resolvers",
            Self::Pages => "pages",
        }
    }
}

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
    #[must_use]
    pub fn total(&self) -> u64 {
        self.api + self.resolvers + self.pages + self.cdn
    }
}

/// The requests in the current window.
#[derive(Clone, Copy, Default)]
struct QuotaWindow {
    number: u128,
    used: u64,
}

/// The number of requests per window.
#[derive(Clone, Copy)]
pub(super) struct QuotaLimit {
    pub requests: u64,
    pub window: Duration,
}

/// The quotas of all callers and the request counts.
pub(super) struct Quotas {
    limit: Option<QuotaLimit>,
    begun: Instant,
    used: Mutex<Used>,
    pub sent: BytesSent,
}

#[derive(Default)]
struct Used {
    counts: RequestCounts,
    windows: HashMap<(Option<String>, QuotaKind), QuotaWindow>,
}

impl Quotas {
    pub(super) fn new(limit: Option<QuotaLimit>) -> Self {
        Self { limit, begun: Instant::now(), used: Mutex::default(), sent: BytesSent::default() }
    }

    pub(super) fn counts(&self) -> RequestCounts {
        let counts = self.used.lock().unwrap_or_else(PoisonError::into_inner).counts;
        RequestCounts { bytes: self.sent.bytes(), ..counts }
    }

    /// Counts a request, and responds to it if its quota allows that.
    pub(super) fn respond(
        &self,
        request: &LoggedRequest,
        respond: impl FnOnce() -> ResponseSpec,
    ) -> ResponseSpec {
        if request.host == Host::Cdn {
            self.used.lock().unwrap_or_else(PoisonError::into_inner).counts.cdn += 1;
            return respond();
        }
        let kind = QuotaKind::from_path(&request.path);
        self.count(kind);
        let Some(limit) = self.limit else {
            // The remaining number is constant: if it decreased, clients would slow down although the quota is not
            // enforced.
            let quota = DISPLAYED_QUOTA;
            return with_quota(respond(), "resolvers", quota, 300, quota, 300);
        };
        let (remaining, reset) = self.take(request, kind, limit);
        let response = if remaining.is_some() { respond() } else { refusal(reset) };
        // The seconds are rounded down, so a client that waits for exactly this time retries too early.
        with_quota(
            response,
            kind.name(),
            limit.requests,
            limit.window.as_secs(),
            remaining.unwrap_or(0),
            reset.as_secs(),
        )
    }

    /// Counts a request to the Hub.
    fn count(&self, kind: QuotaKind) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            QuotaKind::Api => used.counts.api += 1,
            QuotaKind::Resolvers => used.counts.resolvers += 1,
            QuotaKind::Pages => used.counts.pages += 1,
        }
    }

    /// Takes one request from the caller's quota. Returns the remaining number, or `None` if the quota was exhausted,
    /// and the time until the reset.
    fn take(
        &self,
        request: &LoggedRequest,
        kind: QuotaKind,
        limit: QuotaLimit,
    ) -> (Option<u64>, Duration) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (elapsed, length) = (self.begun.elapsed().as_nanos(), limit.window.as_nanos().max(1));
        let number = elapsed / length;
        let window = used.windows.entry((request.authorization.clone(), kind)).or_default();
        if window.number != number {
            *window = QuotaWindow { number, used: 0 };
        }
        let remaining = limit.requests.checked_sub(window.used + 1);
        window.used += u64::from(remaining.is_some());
        used.counts.refused += u64::from(remaining.is_none());
        let reset = u64::try_from(length - elapsed % length).unwrap_or(u64::MAX);
        (remaining, Duration::from_nanos(reset))
    }
}

fn refusal(reset: Duration) -> ResponseSpec {
    let seconds = reset.as_millis().div_ceil(1000);
    ResponseSpec::text(StatusCode::TOO_MANY_REQUESTS, "You have exceeded the rate limit")
        .with(RETRY_AFTER, seconds.to_string())
}

fn with_quota(
    response: ResponseSpec,
    name: &str,
    requests: u64,
    window: u64,
    remaining: u64,
    reset: u64,
) -> ResponseSpec {
    let policy = format!(r#""fixed window";"{name}";q={requests};w={window}"#);
    let state = format!(r#""{name}";r={remaining};t={reset}"#);
    response.with(RATELIMIT_POLICY, policy).with(RATELIMIT, state)
}
