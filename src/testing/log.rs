//! The request log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderName, RANGE, USER_AGENT};
use hyper::{HeaderMap, Method, Request};

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// The Hub itself.
    Hub,
    /// The server of its large files.
    Cdn,
}

/// A request, and the status of its response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoggedRequest {
    /// The time of arrival.
    pub at: Instant,
    /// The server that received it.
    pub host: Host,
    /// The method, such as `GET`.
    pub method: Method,
    /// The path as sent, with percent-encoding and base path.
    pub path: String,
    /// The query as sent, without its question mark.
    pub query: Option<String>,
    /// The header `Range`.
    pub range: Option<String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
    /// The header `Accept-Encoding`.
    pub accept_encoding: Option<String>,
    /// All headers of the request.
    pub headers: HeaderMap,
    /// The status of the response; 0 if none was started.
    pub status: u16,
    /// The number of body bytes sent so far.
    pub sent: BytesSent,
}

/// A counter of body bytes, which grows while the body is sent.
#[derive(Clone, Debug, Default)]
pub struct BytesSent(Arc<AtomicU64>);

impl BytesSent {
    /// Returns the number of bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl LoggedRequest {
    /// Creates the log entry of a request before its response.
    pub(super) fn received<B>(host: Host, request: &Request<B>) -> Self {
        let header = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Self {
            at: Instant::now(),
            host,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().map(str::to_owned),
            range: header(RANGE),
            authorization: header(AUTHORIZATION),
            user_agent: header(USER_AGENT),
            accept_encoding: header(ACCEPT_ENCODING),
            headers: request.headers().clone(),
            status: 0,
            sent: BytesSent::default(),
        }
    }
}

/// The requests in order of arrival.
pub(super) struct Log {
    entries: Mutex<Vec<LoggedRequest>>,
    is_enabled: bool,
}

impl Log {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self { entries: Mutex::default(), is_enabled }
    }

    pub(super) fn push(&self, logged: LoggedRequest) {
        if self.is_enabled {
            self.lock().push(logged);
        }
    }

    pub(super) fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().clone()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LoggedRequest>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
