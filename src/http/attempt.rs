//! One attempt at a request, as whoever watches is told of it.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ::url::Url;
use reqwest::Method;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::field::{Empty, debug};
use tracing::{Span, debug_span};

use super::{HttpError, SafeUrl};
use crate::http::transfer::RequestMeter;

/// What is asked for, and what has come of it so far: the last status, and the bytes of bodies.
pub(super) struct Attempt<'a> {
    pub(super) url: &'a Url,
    pub(super) range: Option<&'a Range<u64>>,
    /// `GET`, unless it is changed.
    pub(super) method: Method,
    meter: &'a RequestMeter,
    number: usize,
    started: Instant,
    status: AtomicU16,
    bytes: AtomicU64,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    span: Span,
}

impl<'a> Attempt<'a> {
    /// Begins the attempt of this number, from 1 on, with a span for all that happens in it.
    pub(super) fn begin(
        number: usize,
        url: &'a Url,
        range: Option<&'a Range<u64>>,
        meter: &'a RequestMeter,
    ) -> Self {
        let span = debug_span!(
            "attempt",
            attempt = number,
            range = range.map(shown),
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
            permit: Mutex::default(),
            span,
        }
    }

    /// The span that the attempt is to be made in.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn count_request(&self) {
        self.meter.count_request();
    }

    pub(super) fn count_bytes(&self, bytes: usize) {
        self.meter.count_bytes(bytes);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Keeps the leave to use a connection until the answer is read, in place of another.
    pub(super) fn hold(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Takes note of an answer.
    pub(super) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Says that the answer leads on.
    pub(super) fn redirected(&self, url: &Url, to: &Url) {
        let (url, to, range) = (SafeUrl::from(url), SafeUrl::from(to), self.range.map(shown));
        let (status, elapsed) = (self.status(), self.started.elapsed());
        tracing::debug!(%url, %to, range, status, ?elapsed, "redirected");
    }

    /// Says how the attempt ended.
    pub(super) fn end<T>(self, result: Result<T, HttpError>) -> Result<T, HttpError> {
        let Self { number: attempt, started, .. } = self;
        let _entered = self.span.enter();
        let (url, range) = (SafeUrl::from(self.url), self.range.map(shown));
        let (status, bytes, elapsed) = (self.status(), self.bytes(), started.elapsed());
        match &result {
            Ok(_) => tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, "read"),
            Err(error) => {
                tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, %error, "failed");
            }
        }
        result
    }

    /// The status of the last answer; `None` before the first.
    fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Completes the span, whether the attempt came to its end or was dropped with its call.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.span.record("status", self.status());
        self.span.record("bytes", self.bytes());
        self.span.record("elapsed", debug(self.started.elapsed()));
    }
}

/// A range as its header has it: `0-7`.
pub(super) fn shown(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end - 1)
}
