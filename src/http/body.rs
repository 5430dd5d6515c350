//! Reading bodies, never further than is needed.

use bytes::Bytes;
use reqwest::Response;

use super::attempt::Attempt;
use super::range::Part;
use super::{HttpError, RangeError, SafeUrl};

/// The most that is set aside before the first byte has come, whatever the headers promise.
const FIRST_ALLOCATION: u64 = 1 << 16;

/// The most of a body that is kept to tell what it is, in bytes.
const START: usize = 64;

/// Reads a part of a body: exactly its length, and nothing after it.
pub(super) async fn part(
    mut response: Response,
    part: &Part,
    attempt: &Attempt<'_>,
) -> Result<Vec<u8>, HttpError> {
    let mut bytes = buffer(part.length);
    while length(&bytes) < part.length {
        let Some(chunk) = next(&mut response, attempt).await? else {
            let source = RangeError::WrongLength { expected: part.length, found: length(&bytes) };
            return Err(HttpError::range(response.url(), source));
        };
        bytes.extend_from_slice(&chunk);
    }
    // Asking once more proves that nothing follows, and leaves the connection fit for another request.
    if !part.more && (length(&bytes) > part.length || next(&mut response, attempt).await?.is_some())
    {
        return Err(HttpError::range(
            response.url(),
            RangeError::BodyTooLong { expected: part.length },
        ));
    }
    bytes.truncate(usize::try_from(part.length).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// The error of a body that is not the range. Where a server sent something else in place of it, with
/// the first bytes, which may tell what that is: a page of the website, most often.
pub(super) async fn refuse(
    mut response: Response,
    source: RangeError,
    attempt: &Attempt<'_>,
) -> HttpError {
    let is_of_use = matches!(source, RangeError::Unsupported | RangeError::UnknownLength);
    let piece = if is_of_use { next(&mut response, attempt).await.ok().flatten() } else { None };
    let piece = piece.unwrap_or_default();
    let start = piece[..piece.len().min(START)].to_vec();
    HttpError::Range { url: SafeUrl::from(response.url()), source, start }
}

/// The next piece of a body; `None` at its end. Empty pieces, by which servers of HTTP/2 tell the end, are
/// passed over: they are no bytes too many.
pub(super) async fn next(
    response: &mut Response,
    attempt: &Attempt<'_>,
) -> Result<Option<Bytes>, HttpError> {
    loop {
        let chunk = response.chunk().await;
        let chunk =
            chunk.map_err(|error| HttpError::transport(SafeUrl::from(response.url()), error))?;
        attempt.count_bytes(chunk.as_ref().map_or(0, Bytes::len));
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
