//! `HEAD` requests, which read one response header of a file.

use ::url::Url;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use tracing::Instrument;

use super::attempt::Attempt;
use super::{Http, HttpError, RequestFailure, redirect};
use crate::http::transfer::CallMeter;

impl Http {
    /// Requests a file with `HEAD` and returns the value of a response header.
    ///
    /// The first response that has the header wins. Redirects are followed within the origin of `url` only. Returns
    /// `None` if no response has the header.
    pub(crate) async fn response_header(
        &self,
        url: &Url,
        name: &str,
        meter: &CallMeter,
    ) -> Result<Option<String>, RequestFailure> {
        let mut retries = self.settings.connection.retry.start(url, &self.gate, meter);
        loop {
            let mut attempt = retries.next_attempt(None);
            attempt.method = Method::HEAD;
            let value = self.try_header(name, &attempt).instrument(attempt.span()).await;
            match attempt.finish(value) {
                Ok(value) => return Ok(value),
                Err(error) => retries.wait_after(error).await?,
            }
        }
    }

    /// Accepts the header of a success, a redirect or a 404. Other errors may depend on the token, so their headers
    /// are ignored.
    async fn try_header(
        &self,
        name: &str,
        attempt: &Attempt<'_>,
    ) -> Result<Option<String>, HttpError> {
        let (mut url, mut responses) = (attempt.url.clone(), 0);
        loop {
            let response = self.send(url, attempt).await?;
            let status = response.status();
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            let is_error = status.as_u16() >= 400 && status != StatusCode::NOT_FOUND;
            if let (Some(value), false) = (value, is_error) {
                return Ok(Some(value.to_owned()));
            }
            responses += 1;
            match redirect::target(&response, responses)? {
                Some(next) if next.origin() == attempt.url.origin() => url = next,
                None if !status.is_success() => {
                    return Err(HttpError::status(attempt.url, &response));
                }
                Some(_) | None => return Ok(None),
            }
        }
    }

    /// Returns the configured headers. Like the token, they are part of cache keys.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.settings.headers
    }

    /// Returns the `Authorization` value, or an empty slice without a token. It is part of cache keys, so that tokens
    /// do not share entries.
    pub(crate) fn token_bytes(&self) -> &[u8] {
        self.settings.token.as_ref().map_or(&[], |token| token.as_bytes())
    }
}
