//! What can go wrong between a request and its bytes.

use std::error::Error as StdError;

use ::url::Url;
use reqwest::Response;
use reqwest::header::HeaderMap;
use thiserror::Error;

use super::SafeUrl;

/// Why bytes could not be had over HTTP.
///
/// URLs are shown without query and password, and no message repeats that of its source.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum HttpError {
    /// No complete answer came.
    #[error("{kind} `{url}`")]
    Transport { url: SafeUrl, kind: TransportKind, source: Box<dyn StdError + Send + Sync> },
    /// An answer with another status than was asked for.
    #[error("`{url}` answered with status {status}")]
    Status { url: SafeUrl, status: u16, headers: ResponseHeaders },
    /// An answer that is not the range, or not the file, that was asked for.
    #[error("the answer of `{url}` is not what was asked for")]
    Range { url: SafeUrl, source: RangeError },
    /// A redirect that is not followed.
    #[error("`{url}` redirects {reason}")]
    Redirect { url: SafeUrl, reason: &'static str },
    #[error("`{url}` has more than {limit} bytes")]
    OverLimit { url: SafeUrl, limit: u64 },
}

/// Where an exchange broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// No connection: name resolution, TCP or TLS.
    Connect,
    /// A connection, a read or the whole request took longer than it may.
    Timeout,
    /// The connection broke, or what came was not HTTP.
    Interrupted,
}

impl std::fmt::Display for TransportKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "could not connect to",
            Self::Timeout => "timed out reading",
            Self::Interrupted => "the connection broke while reading",
        })
    }
}

/// How an answer differs from the range that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum RangeError {
    #[error("the server does not serve ranges")]
    Ignored,
    #[error("the server sent the whole file without saying how long it is")]
    UnknownLength,
    #[error("the `Content-Range` is missing or is not of the form `bytes a-b/size`")]
    NoContentRange,
    #[error("asked for bytes {first}-{last}, got {found_first}-{found_last} of {file_size}")]
    Mismatch { first: u64, last: u64, found_first: u64, found_last: u64, file_size: u64 },
    #[error("expected {expected} bytes, got {found}")]
    Length { expected: u64, found: u64 },
    #[error("expected {expected} bytes, got more")]
    TooLong { expected: u64 },
    #[error("the body is encoded, though `identity` was asked for")]
    Encoded,
}

/// The headers of an answer, for the floor above to read its own from.
#[derive(Debug)]
pub struct ResponseHeaders(Box<HeaderMap>);

impl ResponseHeaders {
    /// The value of a header, if there is one and it is text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }
}

impl HttpError {
    pub(super) fn transport(url: SafeUrl, error: reqwest::Error) -> Self {
        let kind = if error.is_timeout() {
            TransportKind::Timeout
        } else if error.is_connect() {
            TransportKind::Connect
        } else {
            TransportKind::Interrupted
        };
        Self::Transport { url, kind, source: error.without_url().into() }
    }

    pub(super) fn status(response: &Response) -> Self {
        Self::Status {
            url: SafeUrl::from(response.url()),
            status: response.status().as_u16(),
            headers: ResponseHeaders(Box::new(response.headers().clone())),
        }
    }

    pub(super) fn range(url: &Url, source: RangeError) -> Self {
        Self::Range { url: SafeUrl::from(url), source }
    }
}
