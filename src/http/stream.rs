//! Streams small files as they arrive.

use std::future::ready;
use std::pin::pin;

use ::url::Url;
use futures::channel::mpsc;
use futures::future::FutureExt;
use futures::sink::SinkExt;
use futures::stream::{Stream, StreamExt, TryStreamExt, select};
use reqwest::{Response, StatusCode};
use tracing::Instrument;

use super::attempt::Attempt;
use super::decode::{BodyDecoder, DecodeError};
use super::{Http, HttpError, RangeError, RequestFailure, ResponseChain, SafeUrl, body};
use crate::http::transfer::{BodyEvent, CallMeter};

/// The sending half of a stream of body events.
type EventSender = mpsc::Sender<BodyEvent<ResponseChain>>;

impl Http {
    /// Reads a file of at most `limit` bytes.
    pub(crate) async fn read_all(
        &self,
        url: &Url,
        limit: u64,
        meter: &CallMeter,
    ) -> Result<(Vec<u8>, ResponseChain), RequestFailure> {
        let (mut file, mut chain) = (Vec::new(), ResponseChain::default());
        let mut events = pin!(self.stream(url, limit, meter));
        while let Some(event) = events.try_next().await? {
            match event {
                BodyEvent::Start { response, .. } => {
                    file.clear();
                    chain = response;
                }
                BodyEvent::Bytes(bytes) => file.extend_from_slice(&bytes),
            }
        }
        Ok((file, chain))
    }

    /// Streams a file of at most `limit` bytes, decompressed. Each attempt sends its own
    /// [`BodyEvent::Start`].
    pub(crate) fn stream(
        &self,
        url: &Url,
        limit: u64,
        meter: &CallMeter,
    ) -> impl Stream<Item = Result<BodyEvent<ResponseChain>, RequestFailure>> + Send + use<> {
        let (http, url, meter) = (self.clone(), url.clone(), meter.clone());
        let (mut sender, events) = mpsc::channel(0);
        let reading = async move { http.send_events(&url, limit, &meter, &mut sender).await };
        let failure = reading.in_current_span().map(Result::err).into_stream();
        select(events.map(Ok), failure.filter_map(|failure| ready(failure.map(Err))))
    }

    async fn send_events(
        &self,
        url: &Url,
        limit: u64,
        meter: &CallMeter,
        events: &mut EventSender,
    ) -> Result<(), RequestFailure> {
        let mut retries = self.settings.connection.retry.start(url, &self.gate, meter);
        loop {
            let attempt = retries.next_attempt(None);
            let read = self.try_stream(limit, &attempt, events).instrument(attempt.span()).await;
            match attempt.finish(read) {
                Ok(()) => return Ok(()),
                Err(error) => retries.wait_after(error).await?,
            }
        }
    }

    async fn try_stream(
        &self,
        limit: u64,
        attempt: &Attempt<'_>,
        events: &mut EventSender,
    ) -> Result<(), HttpError> {
        let (response, chain) = self.send_following_redirects(attempt).await?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::status(attempt.url, &response));
        }
        let content_length = response.content_length();
        send(events, BodyEvent::Start { response: chain, content_length }).await;
        send_body(response, limit, attempt, events).await
    }
}

/// Sends the decoded body of a response, at most `limit` bytes, as it arrives.
async fn send_body(
    mut response: Response,
    limit: u64,
    attempt: &Attempt<'_>,
    events: &mut EventSender,
) -> Result<(), HttpError> {
    let url = response.url().clone();
    let invalid = |source| HttpError::range(&url, source);
    let not_decoded = |error| match error {
        DecodeError::TooLarge => HttpError::TooLarge { url: SafeUrl::from(&url), limit },
        DecodeError::CorruptGzip => invalid(RangeError::CorruptGzip),
    };
    if response.content_length().is_some_and(|expected| expected > limit) {
        return Err(not_decoded(DecodeError::TooLarge));
    }
    let mut decoder = BodyDecoder::new(response.headers(), limit).map_err(invalid)?;
    while let Some(data) = body::next_data(&mut response, attempt).await? {
        let bytes = decoder.decode(data).map_err(not_decoded)?;
        send(events, BodyEvent::Bytes(bytes)).await;
    }
    let rest = decoder.finish().map_err(not_decoded)?;
    send(events, BodyEvent::Bytes(rest)).await;
    Ok(())
}

/// Sends an event and waits until it is received. A dropped receiver is not an error: it drops the sending future,
/// too.
async fn send(events: &mut EventSender, event: BodyEvent<ResponseChain>) {
    events.send(event).await.ok();
}
