//! Reads response bodies, and no more of them than needed: the slice of a range, or a whole small file, which may be
//! compressed with gzip.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::GzDecoder;
use hf_meta_inspect::{HttpError, HttpErrorKind, Refusal};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};

use super::SafeUrl;
use super::attempt::Attempt;
use super::error::{self, Defect};
use super::range::{BodySlice, check_encoding, content_length, wrong_length};
use crate::base::body_sink::BodySink;
use crate::base::budget::CallBudget;

/// The maximum capacity of a buffer, as a multiple of the bytes that have arrived. A server can announce a long body and
/// send little. If the capacity were only doubled, an index of 24 MB would be copied about ten times.
const MAX_GROWTH: usize = 16;

/// Reads the requested slice of a body.
///
/// # Errors
///
/// If the body ends inside the slice, or continues after a slice that should end the body.
pub(super) async fn read_slice(
    response: Response,
    slice: &BodySlice,
    attempt: &mut Attempt<'_>,
) -> Result<Vec<u8>, HttpError> {
    let (mut bytes, length) = (Vec::new(), slice.length);
    let take = |chunk: &[u8]| {
        extend(&mut bytes, chunk, Some(length));
        Ok(())
    };
    take_slice(response, slice, attempt, take).await?;
    Ok(bytes)
}

/// Passes the requested slice of a body on while it arrives, but not the bytes after the range.
///
/// # Errors
///
/// Under the conditions of [`read_slice`], and if the receiver fails.
pub(super) async fn pass_slice(
    response: Response,
    slice: &BodySlice,
    range: &Range<u64>,
    sink: &BodySink,
    attempt: &mut Attempt<'_>,
) -> Result<(), HttpError> {
    let length = range.end.saturating_sub(range.start);
    let (mut at, url) = (0, response.url().clone());
    let take = |chunk: &[u8]| {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(left)];
        let received = sink.receive(at, chunk);
        at += len(chunk);
        received.map_err(|error| error::over_budget(&url, Refusal(Arc::new(error))))
    };
    take_slice(response, slice, attempt, take).await
}

/// Calls a function with each chunk of the requested slice of a body.
async fn take_slice(
    mut response: Response,
    slice: &BodySlice,
    attempt: &mut Attempt<'_>,
    mut take: impl FnMut(&[u8]) -> Result<(), HttpError>,
) -> Result<(), HttpError> {
    let (mut offset, mut found) = (slice.offset, 0);
    while found < slice.length {
        let Some(chunk) = next_chunk(&mut response, attempt).await? else {
            return Err(error::defect(response.url(), wrong_length(slice.length, found)));
        };
        let skipped = offset.min(len(&chunk));
        offset -= skipped;
        let chunk = &chunk[usize::try_from(skipped).unwrap_or(chunk.len())..];
        let left = usize::try_from(slice.length - found).unwrap_or(usize::MAX);
        found += len(chunk);
        take(&chunk[..chunk.len().min(left)])?;
    }
    // Reading to the end of the body proves that nothing follows, and lets the connection be reused.
    if !slice.is_prefix
        && (found > slice.length || next_chunk(&mut response, attempt).await?.is_some())
    {
        let description = format!("expected {} bytes, got more", slice.length);
        return Err(error::defect(response.url(), (HttpErrorKind::WrongBody, description)));
    }
    Ok(())
}

/// Reads the decoded body of a response, at most `limit` bytes. Calls `arrived` with the bytes so far, and waits for the
/// budget of the call before more bytes are read.
pub(super) async fn read_file(
    mut response: Response,
    limit: u64,
    attempt: &mut Attempt<'_>,
    budget: &CallBudget,
    arrived: impl Fn(&[u8]),
) -> Result<Vec<u8>, HttpError> {
    let url = response.url().clone();
    let not_decoded = |error: io::Error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            return error::too_large(&url, limit);
        }
        let description = "the gzip body is corrupt".to_owned();
        error::defect(&url, (HttpErrorKind::WrongBody, description))
    };
    if response.content_length().is_some_and(|expected| expected > limit) {
        return Err(error::too_large(&url, limit));
    }
    let mut decoder = BodyDecoder::new(response.headers(), limit)
        .map_err(|defect| error::defect(&url, defect))?;
    let mut admitted = 0;
    while let Some(chunk) = next_chunk(&mut response, attempt).await? {
        let bytes = decoder.decode(&chunk).map_err(not_decoded)?;
        arrived(bytes);
        let more = len(bytes) - admitted;
        admitted += more;
        budget.admit_bytes(more).await.map_err(|refusal| error::over_budget(&url, refusal))?;
    }
    decoder.finish().map_err(not_decoded)
}

/// Returns the next bytes of a body, or `None` at its end.
///
/// Skips empty HTTP/2 DATA frames: servers send one to end a stream (RFC 9113, section 6.1).
async fn next_chunk(
    response: &mut Response,
    attempt: &mut Attempt<'_>,
) -> Result<Option<Bytes>, HttpError> {
    loop {
        let chunk = response.chunk().await;
        let chunk = chunk.map_err(|failure| {
            error::transport(&SafeUrl::from(response.url()), failure, || None)
        })?;
        attempt.count_bytes(chunk.as_ref().map_or(0, Bytes::len));
        if chunk.as_ref().is_none_or(|chunk| !chunk.is_empty()) {
            return Ok(chunk);
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// Appends bytes to the buffer of a body, whose length may be known.
fn extend(buffer: &mut Vec<u8>, chunk: &[u8], length: Option<u64>) {
    let arrived = buffer.len() + chunk.len();
    if let Some(length) = length
        && arrived > buffer.capacity()
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let capacity = length.min(arrived.saturating_mul(MAX_GROWTH)).max(arrived);
        buffer.reserve_exact(capacity - buffer.len());
    }
    buffer.extend_from_slice(chunk);
}

/// A streaming decoder of one response body. An error of kind [`io::ErrorKind::FileTooLarge`] means that the decoded
/// file is larger than the limit; any other error means that the gzip stream is corrupt or ends early.
enum BodyDecoder {
    Identity(LimitedBuffer),
    Gzip(Box<GzDecoder<LimitedBuffer>>),
}

impl BodyDecoder {
    /// Creates the decoder for a response's `Content-Encoding`. It decodes at most `limit` bytes.
    fn new(headers: &HeaderMap, limit: u64) -> Result<Self, Defect> {
        let file = LimitedBuffer { bytes: Vec::new(), remaining: limit, length: None };
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            Some(name) if name.eq_ignore_ascii_case(b"gzip") => {
                Ok(Self::Gzip(Box::new(GzDecoder::new(file))))
            }
            _ => {
                let length = content_length(headers);
                check_encoding(headers).map(|()| Self::Identity(LimitedBuffer { length, ..file }))
            }
        }
    }

    /// Decodes the next bytes of the body. Returns all decoded bytes.
    fn decode(&mut self, body: &[u8]) -> io::Result<&[u8]> {
        let file = match self {
            Self::Identity(file) => file.write_all(body).map(|()| &*file),
            Self::Gzip(decoder) => decoder.write_all(body).map(|()| decoder.get_ref()),
        };
        Ok(&file?.bytes)
    }

    /// Returns the file at the end of the body, and checks the gzip trailer.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Identity(file) => Ok(file.bytes),
            Self::Gzip(decoder) => Ok(decoder.finish()?.bytes),
        }
    }
}

/// A buffer that accepts a limited number of bytes over its lifetime. Protects against decompression bombs.
struct LimitedBuffer {
    bytes: Vec<u8>,
    remaining: u64,
    /// The length of the body, if it is the length of the file.
    length: Option<u64>,
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.remaining.checked_sub(bytes.len() as u64);
        self.remaining = rest.ok_or(io::ErrorKind::FileTooLarge)?;
        extend(&mut self.bytes, bytes, self.length);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::range::{UNEXPECTED_ENCODING, wrong_headers};
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(file: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(file).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(encoding: &'static str, body: &[u8], limit: u64) -> io::Result<Vec<u8>> {
        let value = HeaderValue::from_static(encoding);
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
        let mut decoder = BodyDecoder::new(&headers, limit).unwrap();
        for bytes in body.chunks(7) {
            decoder.decode(bytes)?;
        }
        decoder.finish()
    }

    /// Returns whether decoding fails at the limit; `None` if it succeeds.
    fn exceeds_limit(encoding: &'static str, body: &[u8], limit: u64) -> Option<bool> {
        let error = decode(encoding, body, limit).err()?;
        Some(error.kind() == io::ErrorKind::FileTooLarge)
    }

    #[test]
    fn plain_and_gzip_bodies_decode_to_the_file() {
        let file = b"a file of some length, a file of some length".as_slice();
        assert_eq!(decode("identity", file, 100).unwrap(), file);
        assert_eq!(decode("gzip", &gzip(file), 100).unwrap(), file);
        assert_eq!(decode("GZIP", &gzip(b""), 0).unwrap(), b"");
    }

    #[test]
    fn a_decompression_bomb_is_an_error_at_the_limit() {
        let bomb = gzip(&vec![0; 10_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(exceeds_limit("gzip", &bomb, 1_000_000), Some(true));
        assert_eq!(exceeds_limit("identity", &[0; 10], 9), Some(true));
    }

    #[test]
    fn a_corrupt_gzip_body_is_an_error() {
        let body = gzip(b"a file of some length");
        for end in 0..body.len() {
            assert_eq!(exceeds_limit("gzip", &body[..end], 100), Some(false), "{end}");
        }
        assert_eq!(exceeds_limit("gzip", &[&*body, b"more"].concat(), 100), Some(false));
        assert_eq!(exceeds_limit("gzip", b"not gzip at all", 100), Some(false));
    }

    #[test]
    fn other_encodings_are_rejected() {
        for encoding in ["br", "zstd", "deflate", "gzip, gzip", ""] {
            let value = HeaderValue::from_str(encoding).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
            let defect = BodyDecoder::new(&headers, 9).err();
            assert_eq!(defect, Some(wrong_headers(UNEXPECTED_ENCODING)), "{encoding}");
        }
    }
}
