//! What the headers of a file say, without the file.

use ::url::Url;
use reqwest::{Method, StatusCode};
use tracing::Instrument;

use super::attempt::Attempt;
use super::{Http, HttpError, RequestFailure, redirect};
use crate::http::transfer::RequestMeter;

impl Http {
    /// The value of a header of a file: that of the first answer which has it, as far as redirects stay
    /// on the server that is asked. `None` where no answer has it.
    pub(crate) async fn response_header(
        &self,
        url: &Url,
        name: &str,
        meter: &RequestMeter,
    ) -> Result<Option<String>, RequestFailure> {
        let mut attempts = self.settings.retry.attempts_at(url, &self.gate);
        loop {
            let mut attempt = attempts.begin(None, meter);
            attempt.method = Method::HEAD;
            let value = self.try_header(name, &attempt).instrument(attempt.span()).await;
            match attempt.end(value) {
                Ok(value) => return Ok(value),
                Err(error) => attempts.after(error).await?,
            }
        }
    }

    /// A header of an answer that is about the file, be it there or not. What is refused says nothing:
    /// it may be refused to this reader alone.
    async fn try_header(
        &self,
        name: &str,
        attempt: &Attempt<'_>,
    ) -> Result<Option<String>, HttpError> {
        let (mut url, mut hops) = (attempt.url.clone(), 0);
        loop {
            let response = self.send(url, attempt).await?;
            let status = response.status();
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            let is_refused = status.as_u16() >= 400 && status != StatusCode::NOT_FOUND;
            if let (Some(value), false) = (value, is_refused) {
                return Ok(Some(value.to_owned()));
            }
            hops += 1;
            match redirect::target(&response, hops)? {
                Some(next) if next.origin() == attempt.url.origin() => url = next,
                None if !status.is_success() => {
                    return Err(HttpError::status(attempt.url, &response));
                }
                Some(_) | None => return Ok(None),
            }
        }
    }

    /// The token as it is sent, if there is one: what tells one reader from another.
    pub(crate) fn token_bytes(&self) -> &[u8] {
        self.settings.token.as_ref().map_or(&[], |token| token.as_bytes())
    }
}
