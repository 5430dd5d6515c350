//! Ways to misbehave: each spoils one answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderName, LOCATION};

use super::answer::Answer;
use super::flow::{Flow, Opening};
use super::log::{Host, LoggedRequest};

/// A change of a response. Variants after the first group keep everything that they do not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another status and these headers alone, with a line of text.
    Status(u16, Vec<(&'static str, String)>),
    /// A redirect to this URL; an empty one leads to where the request came.
    Redirect(u16, String),
    /// A page of a website with `200`, as captive portals and logins have it.
    HtmlPage { is_chunked: bool },
    /// A `416`, which may say how long the file is.
    RangeNotSatisfiable { says_size: bool },

    /// One more header, or another value for it.
    Header(&'static str, String),
    /// The whole file with `200`, whatever part of it was asked for.
    WholeFile { is_chunked: bool },
    /// A `Content-Range` that does not tell what is sent.
    WrongContentRange(ContentRangeFault),
    /// Only the first bytes of the part, and headers that say so.
    Clamped { to: u64 },
    /// Only the first bytes of the part, with their `Content-Length` and the `Content-Range` of the whole part.
    Truncated { to: u64 },

    /// The connection is closed before an answer.
    ConnectionReset,
    /// Only the first bytes of what the headers promise; then the connection is closed.
    ResetInBody { after: u64 },
    /// As many zeros after the bytes, with a fitting `Content-Length` or without one.
    ExtraBytes { count: u64, is_chunked: bool },
    /// Zeros after the bytes, without end.
    EndlessBody,
    /// The bytes compressed, and called so.
    Gzip,
    /// No `Content-Length`.
    Chunked,

    /// No answer ever comes.
    Stall,
    /// Only the first bytes ever come.
    StallInBody { after: u64 },
    /// One byte comes at a time, so far apart.
    Trickle { interval: Duration },
}

/// A mistake in a `Content-Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRangeFault {
    /// It is a byte further on.
    Shifted,
    /// It is of a file that is a byte longer.
    OtherSize,
    /// It does not say how long the file is: `/*`.
    UnknownSize,
    /// There is none.
    Missing,
}

impl Fault {
    pub fn put_on(self, answer: Answer, request: &LoggedRequest) -> Answer {
        let size = answer.file.size();
        match self {
            Self::Status(status, headers) => spoiled(status, headers),
            Self::Redirect(status, to) => {
                let to = if to.is_empty() { here(request) } else { to };
                spoiled(status, []).with(LOCATION, to)
            }
            Self::HtmlPage { is_chunked } => page(is_chunked),
            Self::RangeNotSatisfiable { says_size: true } => {
                spoiled(416, []).with(CONTENT_RANGE, format!("bytes */{size}"))
            }
            Self::RangeNotSatisfiable { says_size: false } => spoiled(416, []),
            Self::Header(name, value) => answer.with(HeaderName::from_static(name), value),
            Self::WholeFile { is_chunked } => whole_file(answer, is_chunked),
            Self::WrongContentRange(wrong) => wrong.put_on(answer),
            Self::Clamped { to } => clamped(answer, to),
            Self::Truncated { to } => truncated(answer, to),
            Self::ConnectionReset => Answer { opening: Opening::Closed, ..answer },
            Self::Stall => Answer { opening: Opening::Stalled, ..answer },
            Self::ResetInBody { after } => Answer { flow: Flow::Broken { after }, ..answer },
            Self::ExtraBytes { count: by, is_chunked } => {
                let length = answer.length.filter(|_| !is_chunked).map(|length| length + by);
                Answer { length, flow: Flow::Padded { by }, ..answer }
            }
            Self::EndlessBody => Answer { length: None, flow: Flow::Endless, ..answer },
            Self::Gzip => {
                let answer = Answer { length: None, flow: Flow::Gzip, ..answer };
                answer.with(CONTENT_ENCODING, "gzip")
            }
            Self::Chunked => Answer { length: None, ..answer },
            Self::StallInBody { after } => Answer { flow: Flow::Stalled { after }, ..answer },
            Self::Trickle { interval } => Answer { flow: Flow::Trickle { interval }, ..answer },
        }
    }
}

impl ContentRangeFault {
    fn put_on(self, mut answer: Answer) -> Answer {
        let (first, last, size) =
            (answer.range.start, answer.range.end.saturating_sub(1), answer.file.size());
        let text = match self {
            Self::Shifted => format!("bytes {}-{}/{size}", first + 1, last + 1),
            Self::OtherSize => format!("bytes {first}-{last}/{}", size + 1),
            Self::UnknownSize => format!("bytes {first}-{last}/*"),
            Self::Missing => {
                answer.headers.remove(CONTENT_RANGE);
                return answer;
            }
        };
        answer.with(CONTENT_RANGE, text)
    }
}

fn spoiled(status: u16, headers: impl IntoIterator<Item = (&'static str, String)>) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = Answer::text(status, "This is not what was asked for");
    headers
        .into_iter()
        .fold(answer, |answer, (name, value)| answer.with(HeaderName::from_static(name), value))
}

fn page(is_chunked: bool) -> Answer {
    let page = "\n<!DOCTYPE html>\n<html><title>Log in</title></html>\n";
    let answer = Answer::text(StatusCode::OK, page).with(CONTENT_TYPE, "text/html; charset=utf-8");
    Answer { length: answer.length.filter(|_| !is_chunked), ..answer }
}

fn whole_file(mut answer: Answer, is_chunked: bool) -> Answer {
    answer.headers.remove(CONTENT_RANGE);
    let size = answer.file.size();
    let length = (!is_chunked).then_some(size);
    Answer { status: StatusCode::OK, range: 0..size, length, ..answer }
}

fn clamped(answer: Answer, to: u64) -> Answer {
    let size = answer.file.size();
    let answer = truncated(answer, to);
    let (first, last) = (answer.range.start, answer.range.end.saturating_sub(1));
    answer.with(CONTENT_RANGE, format!("bytes {first}-{last}/{size}"))
}

fn truncated(answer: Answer, to: u64) -> Answer {
    let start = answer.range.start;
    let range = start..answer.range.end.min(start + to);
    Answer { length: Some(range.end - range.start), range, ..answer }
}

fn here(request: &LoggedRequest) -> String {
    let query = request.query.as_ref().map(|query| format!("?{query}"));
    format!("{}{}", request.path, query.unwrap_or_default())
}

type Rule = dyn Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync;

/// The faults that are to come, and what was asked for since they were set.
#[derive(Default)]
pub struct Faults(Mutex<State>);

#[derive(Default)]
struct State {
    rule: Option<Arc<Rule>>,
    asked: HashMap<(Host, String, Option<String>), usize>,
}

impl Faults {
    pub fn set(
        &self,
        rule: impl Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync + 'static,
    ) {
        let state = State { rule: Some(Arc::new(rule)), asked: HashMap::new() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The fault for the answer to a request.
    pub fn next(&self, request: &LoggedRequest) -> Option<Fault> {
        let (rule, before) =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).count(request)?;
        rule(request, before)
    }
}

impl State {
    fn count(&mut self, request: &LoggedRequest) -> Option<(Arc<Rule>, usize)> {
        let rule = Arc::clone(self.rule.as_ref()?);
        let key = (request.host, request.path.clone(), request.range.clone());
        let asked = self.asked.entry(key).or_default();
        *asked += 1;
        Some((rule, *asked - 1))
    }
}
