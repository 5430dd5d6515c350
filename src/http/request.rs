//! The requests that a client can make: a range, a whole file, one response header. Each is retried as a whole.

use std::future::ready;
use std::ops::Range;
use std::time::Duration;

use ::url::Url;
use futures::channel::mpsc;
use futures::future::{BoxFuture, FutureExt};
use futures::sink::SinkExt;
use futures::stream::{Stream, StreamExt, select};
use reqwest::StatusCode;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::SafeUrl;
use super::attempt::{Attempt, Requested, ResponseChain};
use super::body::EventSender;
use super::client::Http;
use super::error::HttpError;
use super::rate_limit_gate::GateKey;
use super::{body, range, send};
use crate::base::{BodyEvent, RangeBytes};

/// A request that failed for good, with its last error and the attempts made.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) error: HttpError,
    pub(crate) attempts: usize,
    /// The time since the first attempt.
    pub(crate) elapsed: Duration,
}

impl Http {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0.
    pub(crate) async fn read_range(
        &self,
        url: &Url,
        range: &Range<u64>,
    ) -> Result<(RangeBytes, ResponseChain), RequestFailure> {
        self.preconnect(url);
        self.retry(url, Requested::Range(range), |attempt| self.try_range(range, attempt).boxed())
            .await
    }

    /// Reads a file of at most `limit` bytes.
    pub(crate) async fn read_all(
        &self,
        url: &Url,
        limit: u64,
    ) -> Result<(Vec<u8>, ResponseChain), RequestFailure> {
        BodyEvent::read_to_end(self.stream(url, limit)).await
    }

    /// Streams a file of at most `limit` bytes, decompressed. Each attempt sends its own
    /// [`BodyEvent::Start`].
    pub(crate) fn stream(
        &self,
        url: &Url,
        limit: u64,
    ) -> impl Stream<Item = Result<BodyEvent<ResponseChain>, RequestFailure>> + Send + use<> {
        let (http, url) = (self.clone(), url.clone());
        let (sender, events) = mpsc::channel(0);
        let reading = async move {
            http.retry(&url, Requested::File, |attempt| {
                http.try_stream(limit, attempt, sender.clone()).boxed()
            })
            .await
        };
        let failure = reading.in_current_span().map(Result::err).into_stream();
        select(events.map(Ok), failure.filter_map(|failure| ready(failure.map(Err))))
    }

    /// Requests a file with `HEAD` and returns the value of a response header.
    ///
    /// The first response that has the header wins. Redirects are followed within the origin of `url` only. Returns
    /// `None` if no response has the header.
    pub(crate) async fn head(
        &self,
        url: &Url,
        name: &str,
    ) -> Result<Option<String>, RequestFailure> {
        self.retry(url, Requested::Header(name), |attempt| self.try_head(name, attempt).boxed())
            .await
    }

    async fn try_range(
        &self,
        range: &Range<u64>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(RangeBytes, ResponseChain), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        let slice = match range::check(range, response.status(), response.headers()) {
            Ok(Some(slice)) => slice,
            Ok(None) => return Err(HttpError::status(attempt.url, &response)),
            Err(source) => return Err(HttpError::range(response.url(), source)),
        };
        let bytes = body::read_slice(response, &slice, attempt).await?;
        Ok((RangeBytes { bytes, file_size: slice.file_size }, chain))
    }

    async fn try_stream(
        &self,
        limit: u64,
        attempt: &mut Attempt<'_>,
        mut events: EventSender,
    ) -> Result<(), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::status(attempt.url, &response));
        }
        let content_length = response.content_length();
        events.send(BodyEvent::Start { response: chain, content_length }).await.ok();
        body::send_file(response, limit, attempt, &mut events).await
    }

    /// Accepts the header of a success, a redirect or a 404. Other errors may depend on the token, so their headers
    /// are ignored.
    async fn try_head(
        &self,
        name: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<Option<String>, HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        let status = response.status();
        let is_error = status.as_u16() >= 400 && status != StatusCode::NOT_FOUND;
        match chain.header(name) {
            Some(value) if !is_error => Ok(Some(value.to_owned())),
            _ if status.is_success() || send::is_redirect(status) => Ok(None),
            _ => Err(HttpError::status(attempt.url, &response)),
        }
    }
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
