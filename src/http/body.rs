//! Reading bodies, never further than is needed.

use bytes::Bytes;
use reqwest::Response;

use super::decode::{DecodeError, Decoder};
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

/// Reads a whole file of at most `limit` bytes, whether it comes compressed or not.
pub(super) async fn whole(
    mut response: Response,
    limit: u64,
    meter: &Meter,
) -> Result<Vec<u8>, HttpError> {
    let url = response.url().clone();
    let broken = |source| HttpError::range(&url, source);
    let failed = |error| match error {
        DecodeError::OverLimit => HttpError::OverLimit { url: SafeUrl::from(&url), limit },
        DecodeError::Broken => broken(RangeError::Undecodable),
    };
    if response.content_length().is_some_and(|expected| expected > limit) {
        return Err(failed(DecodeError::OverLimit));
    }
    let mut decoder = Decoder::new(response.headers(), limit).map_err(broken)?;
    while let Some(piece) = next(&mut response, meter).await? {
        decoder.take(&piece).map_err(failed)?;
    }
    decoder.finish().map_err(failed)
}

/// The next piece of a body; `None` at its end. Empty pieces, by which servers of HTTP/2 tell the end, are
/// passed over: they are no bytes too many.
async fn next(response: &mut Response, meter: &Meter) -> Result<Option<Bytes>, HttpError> {
    loop {
        let chunk = response.chunk().await;
        let chunk =
            chunk.map_err(|error| HttpError::transport(SafeUrl::from(response.url()), error))?;
        meter.count_bytes(chunk.as_ref().map_or(0, Bytes::len));
        if chunk.as_ref().is_none_or(|piece| !piece.is_empty()) {
            return Ok(chunk);
        }
    }
}

fn buffer(expected: u64) -> Vec<u8> {
    Vec::with_capacity(usize::try_from(expected.min(FIRST_ALLOCATION)).unwrap_or(0))
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
