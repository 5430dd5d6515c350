//! Reads response bodies, and no more of them than needed.

use bytes::Bytes;
use reqwest::Response;

use super::attempt::Attempt;
use super::range::BodyPart;
use super::{HttpError, RangeError, SafeUrl};

/// The maximum capacity allocated before the first byte arrives. A server can announce a long body and send little.
const INITIAL_CAPACITY: u64 = 1 << 16;

/// Reads the requested part of a body.
///
/// # Errors
///
/// If the body ends inside the part, or continues after a part that should end the body.
pub(super) async fn read_part(
    mut response: Response,
    part: &BodyPart,
    attempt: &Attempt<'_>,
) -> Result<Vec<u8>, HttpError> {
    let capacity = part.length.min(INITIAL_CAPACITY);
    let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
    let mut skipped = part.skipped;
    while len(&bytes) < part.length {
        let Some(data) = next_data(&mut response, attempt).await? else {
            let source = RangeError::WrongLength { expected: part.length, found: len(&bytes) };
            return Err(HttpError::range(response.url(), source));
        };
        let skip = skipped.min(len(&data));
        skipped -= skip;
        bytes.extend_from_slice(&data[usize::try_from(skip).unwrap_or(data.len())..]);
    }
    // Reading to the end of the body proves that nothing follows, and lets the connection be reused.
    if !part.is_prefix
        && (len(&bytes) > part.length || next_data(&mut response, attempt).await?.is_some())
    {
        let source = RangeError::BodyTooLong { expected: part.length };
        return Err(HttpError::range(response.url(), source));
    }
    bytes.truncate(usize::try_from(part.length).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// Returns the next bytes of a body, or `None` at its end.
///
/// Skips empty HTTP/2 DATA frames: servers send one to end a stream (RFC 9113, section 6.1).
pub(super) async fn next_data(
    response: &mut Response,
    attempt: &Attempt<'_>,
) -> Result<Option<Bytes>, HttpError> {
    loop {
        let data = response.chunk().await;
        let data =
            data.map_err(|error| HttpError::transport(SafeUrl::from(response.url()), error))?;
        attempt.count_bytes(data.as_ref().map_or(0, Bytes::len));
        if data.as_ref().is_none_or(|data| !data.is_empty()) {
            return Ok(data);
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
