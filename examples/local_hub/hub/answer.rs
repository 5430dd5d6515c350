//! The description of a response, and how it becomes one.

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

use super::file::File;
use super::flow::{Flow, Opening};
use super::log::Sent;

pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The part of a file that is sent. It is read while it is sent.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub file: File,
    pub range: Range<u64>,
    /// The announced `Content-Length`; without it, the framing of HTTP ends the body.
    pub length: Option<u64>,
    pub opening: Opening,
    pub flow: Flow,
}

impl Answer {
    pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let file = File::from_bytes(text);
        Self::part(status, &file, 0..file.size()).with(CONTENT_TYPE, "text/plain; charset=utf-8")
    }

    /// A file, or the part of it that a `Range` header asks for.
    pub fn file(file: &File, range: Option<&str>) -> Self {
        let size = file.size();
        let Some(range) = range else {
            return Self::part(StatusCode::OK, file, 0..size);
        };
        let Some(range) = parse_range(range, size) else {
            let answer = Self::text(StatusCode::RANGE_NOT_SATISFIABLE, "");
            return answer.with(CONTENT_RANGE, format!("bytes */{size}"));
        };
        let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        Self::part(StatusCode::PARTIAL_CONTENT, file, range).with(CONTENT_RANGE, content_range)
    }

    fn part(status: StatusCode, file: &File, range: Range<u64>) -> Self {
        let answer = Self {
            status,
            headers: HeaderMap::new(),
            file: file.clone(),
            length: Some(range.end - range.start),
            range,
            opening: Opening::Prompt,
            flow: Flow::Steady,
        };
        answer.with(ACCEPT_RANGES, "bytes")
    }

    /// Sets a header. A value that no header can hold, which only text from a request can be, is left out.
    #[must_use]
    pub fn with(mut self, name: impl Into<HeaderName>, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name.into(), value);
        }
        self
    }

    /// The answer to a `HEAD` keeps every header and has no body.
    pub fn into_response(self, method: &Method, counter: Sent) -> Response<Body> {
        let Range { start, end } = self.range;
        let sent = if method == Method::HEAD { start..start } else { start..end };
        let flow = if method == Method::HEAD { Flow::Steady } else { self.flow };
        let bytes = flow.read(self.file, sent).inspect_ok(move |bytes| counter.add(bytes.len()));
        let mut response = Response::new(StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(length) = self.length {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }
}

/// Only `bytes=a-b` and `bytes=a-` are understood; the end is clamped to the file's.
fn parse_range(header: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let start = parse_position(first)?;
    let end =
        if last.is_empty() { size } else { parse_position(last)?.saturating_add(1).min(size) };
    (start < end).then_some(start..end)
}

/// Digits alone, where `str::parse` would take a sign.
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
    fn other_forms_of_a_range_are_refused() {
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
        assert_eq!(parse_range("bytes=0-", 0), None, "nothing of an empty file can be sent");
    }
}
