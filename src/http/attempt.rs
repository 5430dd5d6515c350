//! A single attempt at a request, with its counters, tracing span and permits.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::url::Url;
use reqwest::Method;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::field::{Empty, debug};
use tracing::{Span, debug_span};

use super::{HttpError, SafeUrl};
use crate::http::transfer::CallMeter;

/// An attempt in progress. Following redirects can take several HTTP requests.
pub(super) struct Attempt<'a> {
    /// The URL before redirects.
    pub(super) url: &'a Url,
    /// The requested range; `None` for the whole file.
    pub(super) range: Option<&'a Range<u64>>,
    pub(super) method: Method,
    pub(super) meter: &'a CallMeter,
    /// The attempt number, starting at 1.
    number: usize,
    started: Instant,
    /// The status of the latest response; 0 if none has arrived.
    status: AtomicU16,
    /// Body bytes received in this attempt.
    bytes: AtomicU64,
    permits: Mutex<Permits>,
    span: Span,
}

/// Permits held by the current request.
#[derive(Debug, Default)]
struct Permits {
    /// Counts towards the limit on requests in flight.
    request: Option<OwnedSemaphorePermit>,
    /// Counts towards the limit on HTTP/1.1 connections.
    connection: Option<OwnedSemaphorePermit>,
}

impl<'a> Attempt<'a> {
    /// Starts an attempt with method `GET`.
    pub(super) fn start(
        number: usize,
        url: &'a Url,
        range: Option<&'a Range<u64>>,
        meter: &'a CallMeter,
    ) -> Self {
        let span = debug_span!(
            "attempt",
            attempt = number,
            range = range.map(range_text),
            status = Empty,
            bytes = Empty,
            elapsed = Empty,
        );
        Self {
            url,
            range,
            method: Method::GET,
            meter,
            number,
            started: Instant::now(),
            status: AtomicU16::new(0),
            bytes: AtomicU64::new(0),
            permits: Mutex::default(),
            span,
        }
    }

    /// Returns the tracing span that covers the attempt.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn count_request(&self, is_endpoint: bool) {
        self.meter.count_request(is_endpoint);
    }

    pub(super) fn count_bytes(&self, bytes: usize) {
        self.meter.count_bytes(bytes);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Releases all permits. Holding one permit while waiting for another could deadlock.
    pub(super) fn release_permits(&self) {
        *self.permits() = Permits::default();
    }

    /// Holds the in-flight permit until the attempt ends.
    pub(super) fn set_request_permit(&self, permit: Option<OwnedSemaphorePermit>) {
        self.permits().request = permit;
    }

    /// Holds a connection permit until the attempt ends, replacing the previous one.
    pub(super) fn set_connection_permit(&self, permit: Option<OwnedSemaphorePermit>) {
        self.permits().connection = permit;
    }

    fn permits(&self) -> MutexGuard<'_, Permits> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn log_redirect(&self, url: &Url, to: &Url) {
        let (url, to, range) = (SafeUrl::from(url), SafeUrl::from(to), self.range.map(range_text));
        let (status, elapsed) = (self.status(), self.started.elapsed());
        tracing::debug!(%url, %to, range, status, ?elapsed, "redirected");
    }

    /// Ends the attempt and logs its result.
    pub(super) fn finish<T>(self, result: Result<T, HttpError>) -> Result<T, HttpError> {
        let Self { number: attempt, started, .. } = self;
        let _entered = self.span.enter();
        let (url, range) = (SafeUrl::from(self.url), self.range.map(range_text));
        let (status, bytes, elapsed) = (self.status(), self.bytes(), started.elapsed());
        match &result {
            Ok(_) => tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, "read"),
            Err(error) => {
                tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, %error, "failed");
            }
        }
        result
    }

    fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Records the remaining span fields, even if the call is dropped during the attempt.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.span.record("status", self.status());
        self.span.record("bytes", self.bytes());
        self.span.record("elapsed", debug(self.started.elapsed()));
    }
}

/// Formats a range like a `Range` header, with an inclusive end: `0-7`.
pub(super) fn range_text(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end.saturating_sub(1))
}
