//! The request log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HeaderName, RANGE};
use hyper::{HeaderMap, Method, Request, Version};

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// The Hub itself.
    Hub,
    /// The CDN that serves its large files.
    Cdn,
}

/// A logged request, with the status of its response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoggedRequest {
    /// The time of arrival.
    pub at: Instant,
    /// The server that received it.
    pub host: Host,
    /// The HTTP method, such as `GET`.
    pub method: Method,
    /// The version of HTTP.
    pub version: Version,
    /// The path as sent, including percent-encoding and the base path.
    pub path: String,
    /// The query as sent, without the question mark.
    pub query: Option<String>,
    /// The `Range` header.
    pub range: Option<String>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// All request headers.
    pub headers: HeaderMap,
    /// The status of the response, or 0 if no response was started.
    pub status: u16,
    /// The number of body bytes sent so far.
    pub sent: BytesSent,
}

impl LoggedRequest {
    /// Creates the log entry of a request before its response.
    pub(crate) fn new<B>(host: Host, request: &Request<B>) -> Self {
        let header = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Self {
            at: Instant::now(),
            host,
            method: request.method().clone(),
            version: request.version(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().map(str::to_owned),
            range: header(RANGE),
            authorization: header(AUTHORIZATION),
            headers: request.headers().clone(),
            status: 0,
            sent: BytesSent::default(),
        }
    }
}

/// A counter of body bytes, which increases while the body is being sent.
#[derive(Clone, Debug, Default)]
pub struct BytesSent(Arc<AtomicU64>);

impl BytesSent {
    /// Returns the number of bytes sent so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Locks data that a panicked thread leaves usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
