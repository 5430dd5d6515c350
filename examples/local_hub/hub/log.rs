//! The request log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderName, RANGE, USER_AGENT};
use hyper::{HeaderMap, Method, Request};

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Hub,
    Cdn,
}

/// A request, and the status of its response.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// The time of arrival.
    pub at: Instant,
    pub host: Host,
    pub method: Method,
    /// The path as sent, with percent-encoding and base path.
    pub path: String,
    pub query: Option<String>,
    pub range: Option<String>,
    pub authorization: Option<String>,
    pub user_agent: Option<String>,
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
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl LoggedRequest {
    /// Creates the log entry of a request before its response.
    pub fn received<B>(host: Host, request: &Request<B>) -> Self {
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

#[derive(Default)]
pub struct Log(Mutex<Vec<LoggedRequest>>);

impl Log {
    pub fn push(&self, logged: LoggedRequest) {
        self.lock().push(logged);
    }

    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().clone()
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LoggedRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
