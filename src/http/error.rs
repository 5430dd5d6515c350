//! Errors of HTTP requests.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
use hf_meta_format::report::text;
use reqwest::Response;
use thiserror::Error;

use super::SafeUrl;
use super::address::AddressError;
use super::error_response::HubError;
use super::tls::{TlsFailure, tls_failure};

/// The error of an HTTP request.
///
/// URLs are shown without user, password and query. A message never repeats the message of its
/// [source](std::error::Error::source).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// No complete response was received.
    #[error("{kind} `{url}`{}", describe_proxy(proxy.as_ref()))]
    #[non_exhaustive]
    Transport {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The proxy for this URL, if the connection could not be established.
        proxy: Option<SafeUrl>,
        /// The step that failed.
        kind: TransportKind,
        /// The error of the HTTP library, without the URL.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The response has an unexpected status, such as 404 or 500.
    #[error(transparent)]
    Status(Box<HubError>),
    /// The request was not sent, because a server's rate limit requires a longer wait than
    /// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait) allows.
    #[error("the rate limit of `{url}` is reached; it ends in {}", text::duration(*wait))]
    #[non_exhaustive]
    RateLimited {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The time until the server accepts requests again.
        wait: Duration,
    },
    /// The response has a success status, but is not the requested range or file.
    #[error("unexpected response from `{url}`")]
    #[non_exhaustive]
    UnexpectedResponse {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The discrepancy between the response and the request.
        source: RangeError,
    },
    /// A redirect was not followed.
    #[error("cannot follow the redirect from `{url}`: {reason}")]
    #[non_exhaustive]
    Redirect {
        /// The URL that redirects.
        url: SafeUrl,
        /// The reason, such as `too many redirects`.
        reason: &'static str,
    },
    /// The [`AddressPolicy`](crate::AddressPolicy) forbids the address of the host. Nothing was sent.
    #[error("the address of `{url}` is not public, so it was not requested")]
    #[non_exhaustive]
    ForbiddenAddress {
        /// The requested URL, after redirects.
        url: SafeUrl,
    },
    /// The file exceeds its size limit.
    #[error("`{url}` exceeds the limit of {limit} bytes")]
    #[non_exhaustive]
    TooLarge {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The limit in bytes, applied after decompression.
        limit: u64,
    },
}

/// The step in which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// Creating the HTTP client. Nothing was sent.
    Setup,
    /// Connecting: name resolution, TCP, or a TLS error unrelated to the certificate.
    Connect,
    /// Verifying the server's certificate.
    Certificate,
    /// Waiting: the connect, read or request timeout elapsed.
    Timeout,
    /// Reading the response: the connection was lost, or the server did not speak HTTP.
    Interrupted,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "failed to create an HTTP client for",
            Self::Connect => "failed to connect to",
            Self::Certificate => "failed to verify the certificate of",
            Self::Timeout => "timed out while reading",
            Self::Interrupted => "lost the connection while reading",
        })
    }
}

/// Formats a proxy as the end of an error message.
fn describe_proxy(proxy: Option<&SafeUrl>) -> String {
    proxy.map_or_else(String::new, |proxy| format!(" via proxy `{proxy}`"))
}

/// A discrepancy between a response and the requested range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The server sent an HTML page with status 200, such as the login page of a captive portal.
    #[error("the server sent a web page")]
    WebPage,
    /// The server sent the whole file with status 200 but without a `Content-Length`, so its size is unknown.
    #[error("the server sent the whole file without a `Content-Length`")]
    UnknownLength,
    /// `Content-Range` is missing or malformed.
    #[error("`Content-Range` is missing or does not have the form `bytes a-b/size`")]
    InvalidContentRange,
    /// The server sent a different range. All positions are inclusive byte offsets.
    #[error("requested bytes {first}-{last}, got {found_first}-{found_last} of {file_size}")]
    Mismatch {
        /// The first requested byte.
        first: u64,
        /// The last requested byte.
        last: u64,
        /// The first byte according to `Content-Range`.
        found_first: u64,
        /// The last byte according to `Content-Range`.
        found_last: u64,
        /// The file size in bytes according to `Content-Range`.
        file_size: u64,
    },
    /// The length of the body, or its `Content-Length`, differs from the length of the range.
    #[error("expected {expected} bytes, got {found}")]
    WrongLength {
        /// The length of the range in bytes.
        expected: u64,
        /// The length of the body in bytes.
        found: u64,
    },
    /// The body is longer than the range.
    #[error("expected {expected} bytes, got more")]
    BodyTooLong {
        /// The length of the range in bytes.
        expected: u64,
    },
    /// The response uses a `Content-Encoding` that the request did not accept.
    #[error("unexpected `Content-Encoding`")]
    UnexpectedEncoding,
    /// The gzip body of a small file is corrupt or truncated.
    #[error("the gzip body is corrupt")]
    CorruptGzip,
}

impl HttpError {
    /// Classifies an error of the HTTP library.
    pub(super) fn transport(url: SafeUrl, error: reqwest::Error) -> Self {
        if causes(&error).any(<dyn StdError>::is::<AddressError>) {
            return Self::ForbiddenAddress { url };
        }
        let kind = if error.is_builder() {
            TransportKind::Setup
        } else if tls_cause(&error) == Some(TlsFailure::Certificate) {
            TransportKind::Certificate
        } else if error.is_timeout() {
            TransportKind::Timeout
        } else if error.is_connect() {
            TransportKind::Connect
        } else {
            TransportKind::Interrupted
        };
        Self::Transport { url, proxy: None, kind, source: Arc::new(error.without_url()) }
    }

    /// Attaches the proxy to a connection error.
    pub(super) fn with_proxy(mut self, proxy_used: impl FnOnce() -> Option<SafeUrl>) -> Self {
        if let Self::Transport { kind: TransportKind::Connect, proxy, .. } = &mut self {
            *proxy = proxy_used();
        }
        self
    }

    /// Creates the error for an unexpected status in the response to `requested`.
    pub(super) fn status(requested: &Url, response: &Response) -> Self {
        Self::Status(Box::new(HubError::new(requested, response)))
    }

    pub(super) fn range(url: &Url, source: RangeError) -> Self {
        Self::UnexpectedResponse { url: SafeUrl::from(url), source }
    }

    /// Returns whether the same request may succeed if it is retried.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { kind, .. } => {
                !matches!(kind, TransportKind::Certificate | TransportKind::Setup)
            }
            Self::Status(response) => response.is_transient(),
            Self::UnexpectedResponse { source, .. } => matches!(
                source,
                RangeError::WrongLength { .. }
                    | RangeError::BodyTooLong { .. }
                    | RangeError::CorruptGzip
            ),
            Self::RateLimited { .. }
            | Self::Redirect { .. }
            | Self::ForbiddenAddress { .. }
            | Self::TooLarge { .. } => false,
        }
    }
}

/// Returns the failure of the TLS handshake, if that is the cause.
pub(super) fn tls_cause(error: &reqwest::Error) -> Option<TlsFailure> {
    causes(error).find_map(tls_failure)
}

/// Returns whether the request shared the connection attempt of another request, and that attempt failed.
///
/// Only the request that made the attempt has an I/O error among its causes.
pub(super) fn is_shared_connect(error: &reqwest::Error) -> bool {
    error.is_connect() && causes(error).all(|cause| !cause.is::<std::io::Error>())
}

/// Returns the causes of an error, outermost first.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}
