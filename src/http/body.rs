//! Reading bodies, never further than is needed.

use bytes::Bytes;
use reqwest::Response;

use super::range::Part;
use super::{HttpError, RangeError, SafeUrl};
use crate::read::Meter;

/// The most that is set aside before the first byte has come, whatever the headers promise.
const FIRST_ALLOCATION: u64 = 1 << 16;

/// Reads a part of a body: exactly its length, and nothing after it.
pub(super) async fn part(
    mut response: Response,
    part: &Part,
    meter: &Meter,
) -> Result<Vec<u8>, HttpError> {
    let mut bytes = buffer(part.length);
    while length(&bytes) < part.length {
        let Some(chunk) = next(&mut response, meter).await? else {
            let source = RangeError::Length { expected: part.length, found: length(&bytes) };
            return Err(HttpError::range(response.url(), source));
        };
        bytes.extend_from_slice(&chunk);
    }
    // Asking once more proves that nothing follows, and leaves the connection fit for another request.
    if !part.more && (length(&bytes) > part.length || next(&mut response, meter).await?.is_some()) {
        return Err(HttpError::range(
            response.url(),
            RangeError::TooLong { expected: part.length },
        ));
    }
    bytes.truncate(usize::try_from(part.length).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// Reads a whole body of at most `limit` bytes.
pub(super) async fn whole(
    mut response: Response,
    limit: u64,
    meter: &Meter,
) -> Result<Vec<u8>, HttpError> {
    let expected = response.content_length();
    let mut bytes = buffer(expected.unwrap_or(0));
    let over =
        |response: &Response| HttpError::OverLimit { url: SafeUrl::from(response.url()), limit };
    if expected.is_some_and(|expected| expected > limit) {
        return Err(over(&response));
    }
    while let Some(chunk) = next(&mut response, meter).await? {
        if length(&bytes).saturating_add(length(&chunk)) > limit {
            return Err(over(&response));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The next piece of a body; `None` at its end.
async fn next(response: &mut Response, meter: &Meter) -> Result<Option<Bytes>, HttpError> {
    let chunk = response.chunk().await;
    let chunk =
        chunk.map_err(|error| HttpError::transport(SafeUrl::from(response.url()), error))?;
    meter.count_bytes(chunk.as_ref().map_or(0, Bytes::len));
    Ok(chunk)
}

fn buffer(expected: u64) -> Vec<u8> {
    Vec::with_capacity(usize::try_from(expected.min(FIRST_ALLOCATION)).unwrap_or(0))
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
