//! Faults that can be injected into responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::log::{Host, LoggedRequest, lock};

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
    #[must_use]
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
