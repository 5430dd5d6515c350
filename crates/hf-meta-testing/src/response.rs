//! A response before it is sent: status, headers and a file range.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue,
};
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::delivery::{BodyDelivery, HeaderDelivery};
use super::file::File;
use super::log::BytesSent;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A response with a file range as its body. The file is read while the response is sent.
pub(super) struct ResponseSpec {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub file: File,
    pub range: Range<u64>,
    /// The `Content-Length`; without it, the body is chunked.
    pub content_length: Option<u64>,
    pub header_delivery: HeaderDelivery,
    pub body_delivery: BodyDelivery,
}

impl ResponseSpec {
    pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let file = File::from_bytes(text);
        Self::part(status, &file, 0..file.size()).with(CONTENT_TYPE, "text/plain; charset=utf-8")
    }

    /// Creates a response with a file, or with the requested range of it.
    pub(super) fn file(file: &File, range: Option<&str>) -> Self {
        let size = file.size();
        let Some(range) = range else {
            return Self::part(StatusCode::OK, file, 0..size);
        };
        let Some(range) = parse_range(range, size) else {
            let response = Self::text(StatusCode::RANGE_NOT_SATISFIABLE, "");
            return response.with(CONTENT_RANGE, format!("bytes */{size}"));
        };
        let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        Self::part(StatusCode::PARTIAL_CONTENT, file, range).with(CONTENT_RANGE, content_range)
    }

    fn part(status: StatusCode, file: &File, range: Range<u64>) -> Self {
        let response = Self {
            status,
            headers: HeaderMap::new(),
            file: file.clone(),
            content_length: Some(range.end - range.start),
            range,
            header_delivery: HeaderDelivery::Immediate,
            body_delivery: BodyDelivery::Complete,
        };
        response.with(ACCEPT_RANGES, "bytes")
    }

    /// Sets a header. Invalid values, which can only come from a request, are ignored.
    #[must_use]
    pub(super) fn with(mut self, name: impl Into<HeaderName>, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name.into(), value);
        }
        self
    }

    /// Creates the HTTP response. The response to `HEAD` has the same headers and no body.
    pub(super) fn into_response(self, method: &Method, counters: [BytesSent; 2]) -> Response<Body> {
        let Range { start, end } = self.range;
        let sent = if method == Method::HEAD { start..start } else { start..end };
        let delivery =
            if method == Method::HEAD { BodyDelivery::Complete } else { self.body_delivery };
        let bytes = delivery.read(self.file, sent).inspect_ok(move |bytes| {
            for counter in &counters {
                counter.add(bytes.len());
            }
        });
        let mut response = Response::new(StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(length) = self.content_length {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }
}

/// Parses `bytes=a-b` and `bytes=a-`. The end is clamped to the end of the file.
fn parse_range(header: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let start = parse_position(first)?;
    let end =
        if last.is_empty() { size } else { parse_position(last)?.saturating_add(1).min(size) };
    (start < end).then_some(start..end)
}

/// Parses decimal digits. `str::parse` would also accept a `+`.
fn parse_position(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clamped_to_the_file() {
        assert_eq!(parse_range("bytes=0-7", 10), Some(0..8));
        assert_eq!(parse_range("bytes=8-", 10), Some(8..10));
        assert_eq!(parse_range("bytes=8-18446744073709551615", 10), Some(8..10));
    }

    #[test]
    fn other_forms_of_a_range_are_rejected() {
        for range in [
            "bytes=-5",
            "bytes=10-",
            "bytes=5-4",
            "bytes=0-1,4-5",
            "bytes=+0-1",
            "bytes= 0-1",
            "0-1",
            "bytes=-",
            "",
        ] {
            assert_eq!(parse_range(range, 10), None, "{range}");
        }
        assert_eq!(parse_range("bytes=0-", 0), None, "no range of an empty file is satisfiable");
    }
}
