//! The requests that a client can make: a range, a whole file, one response header. Each is retried as a whole.

use std::ops::Range;
use std::time::Duration;

use ::url::Url;
use futures::future::{BoxFuture, FutureExt};
use hf_meta_inspect::{HttpError, HttpErrorKind};
use reqwest::StatusCode;
use reqwest::header::LOCATION;
use tokio::time::{Instant, sleep};

use super::SafeUrl;
use super::attempt::{Attempt, Requested, ResponseChain, transfer_time};
use super::client::Http;
use super::error;
use super::rate_limit_gate::GateKey;
use super::{body, range, send};
use crate::base::FilePart;

/// A file that is still arriving.
pub(crate) struct PartialFile<'a> {
    /// The headers of all responses.
    pub(crate) chain: &'a ResponseChain,
    /// The length of the body as sent, in bytes, before decompression; `None` if unknown.
    pub(crate) length: Option<u64>,
    /// The start of the file, as far as it has arrived.
    pub(crate) bytes: &'a [u8],
}

/// A function that is called with a file while it arrives.
pub(crate) type OnArrival<'a> = &'a (dyn Fn(&PartialFile<'_>) + Send + Sync);

/// The header with the size of a file that is stored outside of the Git repository.
const X_LINKED_SIZE: &str = "x-linked-size";

impl Http {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0. With a [receiver](Self::with_sink), it is empty.
    pub(crate) async fn read_range(
        &self,
        url: &Url,
        range: &Range<u64>,
    ) -> Result<(FilePart, ResponseChain), HttpError> {
        self.preconnect(url);
        self.retry(url, Requested::Range(range), |attempt| self.try_range(range, attempt).boxed())
            .await
    }

    /// Reads a file of at most `limit` bytes, decompressed.
    pub(crate) async fn read_all(
        &self,
        url: &Url,
        limit: u64,
    ) -> Result<(Vec<u8>, ResponseChain), HttpError> {
        self.read_file(url, limit, &|_| {}).await
    }

    /// Reads a file like [`read_all`](Self::read_all), and calls `arrived` whenever a part of it has arrived. Each
    /// attempt starts over.
    pub(crate) async fn read_file(
        &self,
        url: &Url,
        limit: u64,
        arrived: OnArrival<'_>,
    ) -> Result<(Vec<u8>, ResponseChain), HttpError> {
        self.retry(url, Requested::File, |attempt| self.try_file(limit, attempt, arrived).boxed())
            .await
    }

    /// Requests a file with `HEAD` and returns its responses, up to the first one that has a header. Redirects are
    /// followed within the origin of `url` only.
    pub(crate) async fn head(&self, url: &Url, name: &str) -> Result<ResponseChain, HttpError> {
        self.retry(url, Requested::Header(name), |attempt| self.try_head(name, attempt).boxed())
            .await
    }

    async fn try_range(
        &self,
        range: &Range<u64>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(FilePart, ResponseChain), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        let slice = match range::check(range, response.status(), response.headers()) {
            Ok(Some(slice)) => slice,
            Ok(None) => return Err(error::status(attempt.url, &response)),
            Err(defect) => return Err(error::defect(response.url(), defect)),
        };
        let url = response.url().clone();
        let bytes = if let Some(sink) = &self.sink {
            body::pass_slice(response, &slice, range, sink, attempt).await?;
            Vec::new()
        } else {
            body::read_slice(response, &slice, attempt).await?
        };
        let file_size = if let Some(size) = slice.file_size {
            size
        } else {
            // Holding permits while waiting for others could deadlock.
            (attempt.request_permit, attempt.connection_permit) = (None, None);
            let size = self.file_size(attempt.url, &chain).await;
            let headers = chain.0.last().cloned().unwrap_or_default();
            let checked = range::check_end(range, slice.length, size, &headers);
            checked.map_err(|defect| error::defect(&url, defect))?
        };
        Ok((FilePart { bytes, file_size }, chain))
    }

    /// Returns the size of a file, of which a range arrived in a response that does not state the size.
    async fn file_size(&self, url: &Url, chain: &ResponseChain) -> Option<u64> {
        let linked = |chain: &ResponseChain| chain.header(X_LINKED_SIZE)?.parse().ok();
        if let Some(size) = linked(chain) {
            return Some(size);
        }
        let chain = self.head(url, X_LINKED_SIZE).await.ok()?;
        let last = chain.0.last().filter(|headers| !headers.contains_key(LOCATION));
        linked(&chain).or_else(|| range::content_length(last?))
    }

    async fn try_file(
        &self,
        limit: u64,
        attempt: &mut Attempt<'_>,
        arrived: OnArrival<'_>,
    ) -> Result<(Vec<u8>, ResponseChain), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        if response.status() != StatusCode::OK {
            return Err(error::status(attempt.url, &response));
        }
        let length = response.content_length();
        let tell = |bytes: &[u8]| arrived(&PartialFile { chain: &chain, length, bytes });
        let file = body::read_file(response, limit, attempt, &self.budget, tell).await?;
        Ok((file, chain))
    }

    /// Accepts the header of a success, a redirect or a 404. Other errors may depend on the token, so their headers
    /// are ignored.
    async fn try_head(
        &self,
        name: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<ResponseChain, HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        let status = response.status();
        let is_error = status.as_u16() >= 400 && status != StatusCode::NOT_FOUND;
        let has_header = !is_error && chain.header(name).is_some();
        if has_header || status.is_success() || send::is_redirect(status) {
            return Ok(chain);
        }
        Err(error::status(attempt.url, &response))
    }
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
    ) -> Result<T, HttpError> {
        let (started, waited_before) = (Instant::now(), self.meter.stats().waited);
        let transfer_time = transfer_time(requested.length());
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut attempt = Attempt::start(attempts, url, requested, &self.meter);
            let done = run(&mut attempt).await;
            let mut error = match attempt.finish(done) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            error.attempts = attempts;
            let waited = self.meter.stats().waited.saturating_sub(waited_before);
            let elapsed = started.elapsed().saturating_sub(waited).saturating_sub(transfer_time);
            self.back_off(url, elapsed, error).await?;
        }
    }

    /// Waits after a failed attempt until the next one may start. `elapsed` is the time since the first attempt without
    /// the waits for rate limits and the time that a long range may take. Returns the error if it is permanent or a limit of the policy is reached.
    async fn back_off(
        &self,
        url: &Url,
        elapsed: Duration,
        error: HttpError,
    ) -> Result<(), HttpError> {
        let (attempts, policy) = (error.attempts, &self.settings.retry_policy);
        let (server_wait, is_rate_limited) = match &error.kind {
            // A 429 from a CDN says nothing about the bucket of the request.
            HttpErrorKind::Status(response) => {
                (response.retry_after, response.status == 429 && !response.is_cross_origin)
            }
            _ => (None, false),
        };
        let is_within_limits = |delay: &Duration| match server_wait {
            Some(wait) => self.meter.may_wait(wait, policy.max_wait),
            None => elapsed.saturating_add(*delay) <= policy.max_elapsed,
        };
        let delay = if error.is_retryable() { policy.delay(attempts) } else { None };
        let Some(delay) = delay.filter(is_within_limits) else { return Err(error) };
        let (shown, wait) = (SafeUrl::from(url), server_wait.unwrap_or(delay));
        tracing::info!(url = %shown, attempts, ?wait, %error, "retrying");
        // The gate already enforces a wait that the server asked for. After a 429 without a wait, the gate also holds
        // back the other requests of this bucket.
        if server_wait.is_none() && is_rate_limited {
            self.gate.hold(&GateKey::from(url), delay);
        } else if server_wait.is_none() {
            sleep(delay).await;
        }
        Ok(())
    }
}
