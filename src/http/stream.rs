//! Whole files, as they arrive.

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
use super::decode::{DecodeError, Decoder};
use super::{Http, HttpError, RangeError, RequestFailure, ResponseChain, SafeUrl, body};
use crate::http::transfer::{BodyEvent, RequestMeter};

/// Takes the pieces of a file.
type Events = mpsc::Sender<BodyEvent<ResponseChain>>;

impl Http {
    /// Reads a whole file of at most `limit` bytes.
    pub(crate) async fn read_all(
        &self,
        url: &Url,
        limit: u64,
        meter: &RequestMeter,
    ) -> Result<(Vec<u8>, ResponseChain), RequestFailure> {
        let (mut file, mut trail) = (Vec::new(), ResponseChain::default());
        let mut pieces = pin!(self.stream(url, limit, meter));
        while let Some(piece) = pieces.try_next().await? {
            match piece {
                BodyEvent::Start { response, .. } => {
                    file.clear();
                    trail = response;
                }
                BodyEvent::Bytes(bytes) => file.extend_from_slice(&bytes),
            }
        }
        Ok((file, trail))
    }

    /// A whole file of at most `limit` bytes, as it arrives.
    pub(crate) fn stream(
        &self,
        url: &Url,
        limit: u64,
        meter: &RequestMeter,
    ) -> impl Stream<Item = Result<BodyEvent<ResponseChain>, RequestFailure>> + Send + use<> {
        let (http, url, meter) = (self.clone(), url.clone(), meter.clone());
        let (mut sender, pieces) = mpsc::channel(0);
        let reading = async move { http.send_pieces(&url, limit, &meter, &mut sender).await };
        let failure = reading.in_current_span().map(Result::err).into_stream();
        select(pieces.map(Ok), failure.filter_map(|failure| ready(failure.map(Err))))
    }

    async fn send_pieces(
        &self,
        url: &Url,
        limit: u64,
        meter: &RequestMeter,
        pieces: &mut Events,
    ) -> Result<(), RequestFailure> {
        let mut attempts = self.settings.retry.attempts_at(url, &self.gate);
        loop {
            let attempt = attempts.begin(None, meter);
            let read = self.try_pieces(limit, &attempt, pieces).instrument(attempt.span()).await;
            match attempt.end(read) {
                Ok(()) => return Ok(()),
                Err(error) => attempts.after(error).await?,
            }
        }
    }

    async fn try_pieces(
        &self,
        limit: u64,
        attempt: &Attempt<'_>,
        pieces: &mut Events,
    ) -> Result<(), HttpError> {
        let (response, trail) = self.get(attempt).await?;
        if response.status() != StatusCode::OK {
            return Err(HttpError::status(attempt.url, &response));
        }
        let length = response.content_length();
        hand_over(pieces, BodyEvent::Start { response: trail, content_length: length }).await;
        forward(response, limit, attempt, pieces).await
    }
}

/// Hands over a body of at most `limit` bytes as it arrives, whether it comes compressed or not.
async fn forward(
    mut response: Response,
    limit: u64,
    attempt: &Attempt<'_>,
    pieces: &mut Events,
) -> Result<(), HttpError> {
    let url = response.url().clone();
    let broken = |source| HttpError::range(&url, source);
    let failed = |error| match error {
        DecodeError::OverLimit => HttpError::TooLarge { url: SafeUrl::from(&url), limit },
        DecodeError::Broken => broken(RangeError::CorruptGzip),
    };
    if response.content_length().is_some_and(|expected| expected > limit) {
        return Err(failed(DecodeError::OverLimit));
    }
    let mut decoder = Decoder::new(response.headers(), limit).map_err(broken)?;
    while let Some(piece) = body::next(&mut response, attempt).await? {
        let piece = decoder.take(piece).map_err(failed)?;
        hand_over(pieces, BodyEvent::Bytes(piece)).await;
    }
    let rest = decoder.finish().map_err(failed)?;
    hand_over(pieces, BodyEvent::Bytes(rest)).await;
    Ok(())
}

/// Waits until a piece is taken, or nobody is there any more to take it.
async fn hand_over(pieces: &mut Events, piece: BodyEvent<ResponseChain>) {
    pieces.send(piece).await.ok();
}
