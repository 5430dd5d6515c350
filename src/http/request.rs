//! The requests that a client can make: a range, a whole file, one response header. Each is retried as a whole.

use std::future::ready;
use std::ops::Range;

use ::url::Url;
use futures::channel::mpsc;
use futures::future::FutureExt;
use futures::sink::SinkExt;
use futures::stream::{Stream, StreamExt, select};
use reqwest::StatusCode;
use tracing::Instrument;

use super::attempt::{Attempt, Requested, ResponseChain};
use super::body::EventSender;
use super::client::Http;
use super::error::HttpError;
use super::retry::RequestFailure;
use super::{body, range, send};
use crate::base::transfer::{BodyEvent, RangeBytes};

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
