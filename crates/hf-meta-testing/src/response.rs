//! Responses: status, headers and a file range; the faults that can be injected into them; and the Hub's errors.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue,
    IntoHeaderName, LOCATION, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde_json::json;

use crate::file::{File, zeros};
use crate::log::{BytesSent, Host, LoggedRequest, lock};

const LOGIN_PAGE: &str = "\n<!DOCTYPE html>\n<html><title>Log in</title></html>\n";

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A response with a file range as its body. The file is read while the response is sent.
pub(crate) struct ResponseSpec {
    pub status: StatusCode,
    pub headers: HeaderMap,
    file: File,
    range: Range<u64>,
    /// The fault that decides how the response is sent.
    pub fault: Option<Fault>,
}

impl ResponseSpec {
    /// Creates a response with a plain text. An invalid status, which can only come from a fault, becomes 500.
    pub(crate) fn text(status: u16, text: impl Into<Bytes>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let file = File::from_bytes(text);
        Self::part(status, &file, 0..file.size()).with(CONTENT_TYPE, "text/plain; charset=utf-8")
    }

    pub(crate) fn json(status: u16, json: impl Into<Bytes>) -> Self {
        Self::text(status, json).with(CONTENT_TYPE, "application/json; charset=utf-8")
    }

    pub(crate) fn redirect(status: StatusCode, url: &str) -> Self {
        let text = format!("{status}. Redirecting to {url}");
        Self::text(status.as_u16(), text).with(LOCATION, url)
    }

    /// Creates a response with a file, or with the requested range of it.
    pub(crate) fn file(file: &File, range: Option<&str>) -> Self {
        let size = file.size();
        let Some(range) = range else {
            return Self::part(StatusCode::OK, file, 0..size);
        };
        match parse_range(range, size) {
            Some(range) => {
                Self::part(StatusCode::PARTIAL_CONTENT, file, range).with_content_range(None)
            }
            None => Self::text(416, "").with(CONTENT_RANGE, format!("bytes */{size}")),
        }
    }

    fn part(status: StatusCode, file: &File, range: Range<u64>) -> Self {
        let response =
            Self { status, headers: HeaderMap::new(), file: file.clone(), range, fault: None };
        response.with(ACCEPT_RANGES, "bytes")
    }

    /// Sets a header. Invalid values, which can only come from a request, are ignored.
    pub(crate) fn with(mut self, name: impl IntoHeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets the `Content-Range` that belongs to the body, or a wrong one.
    fn with_content_range(mut self, fault: Option<ContentRangeFault>) -> Self {
        let (first, last) = (self.range.start, self.range.end.saturating_sub(1));
        let size = self.file.size();
        let value = match fault {
            None => format!("bytes {first}-{last}/{size}"),
            Some(ContentRangeFault::Shifted) => format!("bytes {}-{}/{size}", first + 1, last + 1),
            Some(ContentRangeFault::OtherSize) => format!("bytes {first}-{last}/{}", size + 1),
            Some(ContentRangeFault::UnknownSize) => format!("bytes {first}-{last}/*"),
            Some(ContentRangeFault::Missing) => {
                self.headers.remove(CONTENT_RANGE);
                return self;
            }
        };
        self.with(CONTENT_RANGE, value)
    }

    /// Applies what a fault changes in status and headers, and keeps it for what it changes in the delivery.
    pub(crate) fn with_fault(self, fault: Fault) -> Self {
        let size = self.file.size();
        let injected = |status| Self::text(status, "Injected fault");
        let response = match fault.clone() {
            Fault::Status(status, headers) => {
                let add = |response: Self, (name, value)| response.with(name, value);
                headers.into_iter().fold(injected(status), add)
            }
            Fault::ForeignStatus(status) => injected(status),
            Fault::HtmlPage { .. } => {
                Self::text(200, LOGIN_PAGE).with(CONTENT_TYPE, "text/html; charset=utf-8")
            }
            Fault::RangeNotSatisfiable => {
                injected(416).with(CONTENT_RANGE, format!("bytes */{size}"))
            }
            Fault::Header(name, value) => self.with(name, value),
            Fault::WholeFile { .. } => {
                let mut response = Self { status: StatusCode::OK, range: 0..size, ..self };
                response.headers.remove(CONTENT_RANGE);
                response
            }
            Fault::WrongContentRange(fault) => self.with_content_range(Some(fault)),
            Fault::Clamped { length } => self.truncated(length).with_content_range(None),
            Fault::Truncated { length } => self.truncated(length),
            Fault::Gzip => self.with(CONTENT_ENCODING, "gzip"),
            Fault::ConnectionReset
            | Fault::ResetInBody { .. }
            | Fault::ExtraBytes { .. }
            | Fault::Stall
            | Fault::StallInBody { .. }
            | Fault::Trickle { .. } => self,
        };
        Self { fault: Some(fault), ..response }
    }

    fn truncated(self, length: u64) -> Self {
        let Range { start, end } = self.range;
        Self { range: start..end.min(start + length), ..self }
    }

    /// Returns the `Content-Length`; without it, the body is chunked.
    fn content_length(&self) -> Option<u64> {
        let length = self.range.end - self.range.start;
        match self.fault {
            Some(
                Fault::HtmlPage { is_chunked: true }
                | Fault::WholeFile { is_chunked: true }
                | Fault::ExtraBytes { is_chunked: true, .. }
                | Fault::Gzip,
            ) => None,
            Some(Fault::ExtraBytes { count, .. }) => Some(length.saturating_add(count)),
            _ => Some(length),
        }
    }

    /// Creates the HTTP response. The response to `HEAD` has the same headers and no body.
    pub(crate) fn into_response(
        mut self,
        method: &Method,
        counters: [BytesSent; 2],
    ) -> Response<Body> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.headers_mut() = std::mem::take(&mut self.headers);
        if let Some(length) = self.content_length() {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = if *method == Method::HEAD { stream::empty().boxed() } else { self.body() };
        let count = move |bytes: &Bytes| counters.iter().for_each(|sent| sent.add(bytes.len()));
        let body = body.inspect_ok(count);
        response.map(|()| StreamBody::new(body.map_ok(Frame::data)).boxed_unsync())
    }

    fn body(self) -> BoxStream<'static, io::Result<Bytes>> {
        let Self { file, range, fault, .. } = self;
        let first = |count: u64| range.start..range.end.min(range.start + count);
        match fault {
            Some(Fault::ResetInBody { after }) => file.read(first(after)).chain(reset()).boxed(),
            Some(Fault::StallInBody { after }) => {
                file.read(first(after)).chain(stream::pending()).boxed()
            }
            Some(Fault::Trickle { interval }) => trickle(file.read(range), interval).boxed(),
            Some(Fault::ExtraBytes { count, .. }) => file.read(range).chain(zeros(count)).boxed(),
            Some(Fault::Gzip) => stream::once(gzip(file.read(range))).boxed(),
            _ => file.read(range),
        }
    }
}

/// Returns an error instead of more bytes, which resets the connection. Earlier bytes are still sent, because the
/// server flushes when it is idle.
fn reset() -> impl Stream<Item = io::Result<Bytes>> {
    stream::once(async {
        tokio::task::yield_now().await;
        Err(ErrorKind::ConnectionReset.into())
    })
}

fn trickle(
    bytes: BoxStream<'static, io::Result<Bytes>>,
    interval: Duration,
) -> impl Stream<Item = io::Result<Bytes>> {
    let single =
        |chunk: Bytes| stream::iter((0..chunk.len()).map(move |at| Ok(chunk.slice(at..=at))));
    bytes.map_ok(single).try_flatten().and_then(move |byte| async move {
        tokio::time::sleep(interval).await;
        Ok(byte)
    })
}

/// Returns an uncompressed gzip file of these bytes.
async fn gzip(mut bytes: BoxStream<'static, io::Result<Bytes>>) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    while let Some(chunk) = bytes.try_next().await? {
        encoder.write_all(&chunk)?;
    }
    Ok(encoder.finish()?.into())
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

/// An error response with the Hub's code and message.
///
/// Clients have to read the code, because three different errors have status 401.
pub(crate) struct ErrorResponse {
    status: u16,
    code: Option<&'static str>,
    message: String,
}

impl ErrorResponse {
    pub(crate) fn new(status: u16, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn entry_not_found() -> Self {
        Self::new(404, Some("EntryNotFound"), "Entry not found")
    }

    /// Returns the response. The body is JSON under `/api`, and plain text under `/resolve`.
    pub(crate) fn into_response(self, is_json: bool) -> ResponseSpec {
        let Self { status, code, message } = self;
        let mut response = if is_json {
            ResponseSpec::json(status, json!({ "error": message }).to_string())
        } else {
            ResponseSpec::text(status, message.clone())
        };
        response = response.with("x-error-message", message);
        if let Some(code) = code {
            response = response.with("x-error-code", code);
        }
        if status == 401 {
            let scheme = r#"Bearer realm="Authentication required", charset="UTF-8""#;
            response = response.with(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// A change to one response. Except for the first four variants, all other aspects of the response stay the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A plain-text response with this status and these headers. The header names must be lowercase.
    Status(u16, Vec<(&'static str, String)>),
    /// A plain-text response with this status, without any header of a Hub.
    ForeignStatus(u16),
    /// An HTML page with status 200, such as a login page or a captive portal.
    HtmlPage {
        /// `true` to omit `Content-Length`.
        is_chunked: bool,
    },
    /// Status 416, with the file size in `Content-Range`.
    RangeNotSatisfiable,

    /// An additional header, or a different value for an existing one. The name must be lowercase.
    Header(&'static str, String),
    /// The whole file with status 200, even for a range request.
    WholeFile {
        /// `true` to omit `Content-Length`.
        is_chunked: bool,
    },
    /// A `Content-Range` that does not match the body.
    WrongContentRange(ContentRangeFault),
    /// Only the first `length` bytes of the range, with headers that match.
    Clamped {
        /// The number of bytes.
        length: u64,
    },
    /// Only the first `length` bytes of the range, with a matching `Content-Length` but an unchanged `Content-Range`.
    Truncated {
        /// The number of bytes.
        length: u64,
    },

    /// The connection is reset before the response.
    ConnectionReset,
    /// The connection is reset after part of the body.
    ResetInBody {
        /// The number of bytes sent before the reset.
        after: u64,
    },
    /// Extra zero bytes after the body, counted in `Content-Length` unless chunked.
    ExtraBytes {
        /// The number of extra bytes.
        count: u64,
        /// `true` to omit `Content-Length`.
        is_chunked: bool,
    },
    /// The body compressed with gzip, with `Content-Encoding`.
    Gzip,

    /// No response; the connection stays open.
    Stall,
    /// The body stops after some bytes, and the connection stays open.
    StallInBody {
        /// The number of bytes sent before the stall.
        after: u64,
    },
    /// The body, one byte at a time.
    Trickle {
        /// The time between two bytes.
        interval: Duration,
    },
}

/// A wrong `Content-Range` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentRangeFault {
    /// The first and last positions are one too high.
    Shifted,
    /// The file size is one too high.
    OtherSize,
    /// The file size is unknown: `/*`.
    UnknownSize,
    /// The header is missing.
    Missing,
}

impl Fault {
    /// A stream of zero bytes after the body that does not end, without `Content-Length`.
    pub const ENDLESS_BODY: Self = Self::ExtraBytes { count: u64::MAX, is_chunked: true };

    /// Returns a redirect with this status to this URL.
    pub fn redirect(status: u16, url: impl Into<String>) -> Self {
        Self::Status(status, vec![("location", url.into())])
    }
}

type Rule = dyn Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync;

/// The fault rule, and the number of requests since it was set by server, path and range.
#[derive(Default)]
pub(crate) struct FaultInjector(Mutex<Option<(Arc<Rule>, RequestNumbers)>>);

type RequestNumbers = HashMap<(Host, String, Option<String>), usize>;

impl FaultInjector {
    pub(crate) fn set(&self, rule: Arc<Rule>) {
        *lock(&self.0) = Some((rule, HashMap::new()));
    }

    /// Returns the fault for the response to a request.
    pub(crate) fn next(&self, request: &LoggedRequest) -> Option<Fault> {
        let mut state = lock(&self.0);
        let (rule, requests) = state.as_mut()?;
        let key = (request.host, request.path.clone(), request.range.clone());
        let number = requests.entry(key).or_default();
        let (rule, before) = (Arc::clone(rule), *number);
        *number += 1;
        // The rule may take long, or inject other faults.
        drop(state);
        rule(request, before)
    }
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
