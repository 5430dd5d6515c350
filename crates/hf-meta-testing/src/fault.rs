//! Faults that can be injected into responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderName, LOCATION};

use super::delivery::{BodyDelivery, HeaderDelivery};
use super::log::{Host, LoggedRequest};
use super::response::ResponseSpec;

/// A change to one response. Except for the first four variants, all other aspects of the response stay the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A plain-text response with this status and these headers. The header names must be lowercase.
    Status(u16, Vec<(&'static str, String)>),
    /// A redirect with this status to this URL; an empty URL redirects to the requested one.
    Redirect(u16, String),
    /// An HTML page with status 200, such as a login page or a captive portal.
    HtmlPage {
        /// `true` to omit `Content-Length`.
        is_chunked: bool,
    },
    /// Status 416, with or without the file size in `Content-Range`.
    RangeNotSatisfiable {
        /// `true` to include the file size.
        with_size: bool,
    },

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
    /// An endless stream of zero bytes after the body, without `Content-Length`.
    EndlessBody,
    /// The body compressed with gzip, with `Content-Encoding`.
    Gzip,
    /// The response without `Content-Length`.
    Chunked,

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
    pub(super) fn apply(self, response: ResponseSpec, request: &LoggedRequest) -> ResponseSpec {
        let size = response.file.size();
        match self {
            Self::Status(status, headers) => error(status, headers),
            Self::Redirect(status, to) => {
                let to = if to.is_empty() { requested_url(request) } else { to };
                error(status, []).with(LOCATION, to)
            }
            Self::HtmlPage { is_chunked } => page(is_chunked),
            Self::RangeNotSatisfiable { with_size: true } => {
                error(416, []).with(CONTENT_RANGE, format!("bytes */{size}"))
            }
            Self::RangeNotSatisfiable { with_size: false } => error(416, []),
            Self::Header(name, value) => response.with(HeaderName::from_static(name), value),
            Self::WholeFile { is_chunked } => whole_file(response, is_chunked),
            Self::WrongContentRange(wrong) => wrong.apply(response),
            Self::Clamped { length } => clamped(response, length),
            Self::Truncated { length } => truncated(response, length),
            Self::ConnectionReset => {
                ResponseSpec { header_delivery: HeaderDelivery::ConnectionReset, ..response }
            }
            Self::Stall => ResponseSpec { header_delivery: HeaderDelivery::Stalled, ..response },
            Self::ResetInBody { after } => {
                ResponseSpec { body_delivery: BodyDelivery::Reset { after }, ..response }
            }
            Self::ExtraBytes { count, is_chunked } => {
                let content_length =
                    response.content_length.filter(|_| !is_chunked).map(|length| length + count);
                ResponseSpec {
                    content_length,
                    body_delivery: BodyDelivery::Padded { count },
                    ..response
                }
            }
            Self::EndlessBody => ResponseSpec {
                content_length: None,
                body_delivery: BodyDelivery::Endless,
                ..response
            },
            Self::Gzip => {
                let response = ResponseSpec {
                    content_length: None,
                    body_delivery: BodyDelivery::Gzip,
                    ..response
                };
                response.with(CONTENT_ENCODING, "gzip")
            }
            Self::Chunked => ResponseSpec { content_length: None, ..response },
            Self::StallInBody { after } => {
                ResponseSpec { body_delivery: BodyDelivery::Stalled { after }, ..response }
            }
            Self::Trickle { interval } => {
                ResponseSpec { body_delivery: BodyDelivery::Trickle { interval }, ..response }
            }
        }
    }
}

impl ContentRangeFault {
    fn apply(self, mut response: ResponseSpec) -> ResponseSpec {
        let (first, last, size) =
            (response.range.start, response.range.end.saturating_sub(1), response.file.size());
        let text = match self {
            Self::Shifted => format!("bytes {}-{}/{size}", first + 1, last + 1),
            Self::OtherSize => format!("bytes {first}-{last}/{}", size + 1),
            Self::UnknownSize => format!("bytes {first}-{last}/*"),
            Self::Missing => {
                response.headers.remove(CONTENT_RANGE);
                return response;
            }
        };
        response.with(CONTENT_RANGE, text)
    }
}

fn error(status: u16, headers: impl IntoIterator<Item = (&'static str, String)>) -> ResponseSpec {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = ResponseSpec::text(status, "Injected fault");
    headers.into_iter().fold(response, |response, (name, value)| {
        response.with(HeaderName::from_static(name), value)
    })
}

fn page(is_chunked: bool) -> ResponseSpec {
    let page = "\n<!DOCTYPE html>\n<html><title>Log in</title></html>\n";
    let response =
        ResponseSpec::text(StatusCode::OK, page).with(CONTENT_TYPE, "text/html; charset=utf-8");
    ResponseSpec { content_length: response.content_length.filter(|_| !is_chunked), ..response }
}

fn whole_file(mut response: ResponseSpec, is_chunked: bool) -> ResponseSpec {
    response.headers.remove(CONTENT_RANGE);
    let size = response.file.size();
    let content_length = (!is_chunked).then_some(size);
    ResponseSpec { status: StatusCode::OK, range: 0..size, content_length, ..response }
}

fn clamped(response: ResponseSpec, length: u64) -> ResponseSpec {
    let size = response.file.size();
    let response = truncated(response, length);
    let (first, last) = (response.range.start, response.range.end.saturating_sub(1));
    response.with(CONTENT_RANGE, format!("bytes {first}-{last}/{size}"))
}

fn truncated(response: ResponseSpec, length: u64) -> ResponseSpec {
    let start = response.range.start;
    let range = start..response.range.end.min(start + length);
    ResponseSpec { content_length: Some(range.end - range.start), range, ..response }
}

fn requested_url(request: &LoggedRequest) -> String {
    let query = request.query.as_ref().map(|query| format!("?{query}"));
    format!("{}{}", request.path, query.unwrap_or_default())
}

type Rule = dyn Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync;

/// The fault rule, and the requests since it was set.
#[derive(Default)]
pub(super) struct FaultInjector(Mutex<InjectorState>);

#[derive(Default)]
struct InjectorState {
    rule: Option<Arc<Rule>>,
    /// The number of requests per server, path and range.
    requests: HashMap<(Host, String, Option<String>), usize>,
}

impl FaultInjector {
    pub(super) fn set(
        &self,
        rule: impl Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync + 'static,
    ) {
        let state = InjectorState { rule: Some(Arc::new(rule)), requests: HashMap::new() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Returns the fault for the response to a request.
    pub(super) fn next(&self, request: &LoggedRequest) -> Option<Fault> {
        let (rule, before) =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).count(request)?;
        rule(request, before)
    }
}

impl InjectorState {
    fn count(&mut self, request: &LoggedRequest) -> Option<(Arc<Rule>, usize)> {
        let rule = Arc::clone(self.rule.as_ref()?);
        let key = (request.host, request.path.clone(), request.range.clone());
        let requests = self.requests.entry(key).or_default();
        *requests += 1;
        Some((rule, *requests - 1))
    }
}
