//! Errors between a request and its bytes.

use std::error::Error as StdError;
use std::time::Duration;

use ::url::Url;
use reqwest::Response;
use reqwest::header::HeaderMap;
use thiserror::Error;

use super::SafeUrl;
use super::address::AddressError;
use super::rate_limit::{self, RateLimitBucket};

/// An error of an HTTP request.
///
/// URLs are shown without user, password and query. No message repeats the message of its
/// [source](std::error::Error::source).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// No complete response arrived.
    #[error("{kind} `{url}`{}", describe_proxy(proxy.as_ref()))]
    Transport {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The proxy for this URL, if no connection could be made.
        proxy: Option<SafeUrl>,
        /// The step that failed.
        kind: TransportKind,
        /// The error of the HTTP library, without its URL.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The response has an unexpected status, such as 404 or 500.
    #[error("`{url}` responded with status {status}")]
    Status {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The HTTP status code.
        status: u16,
        /// True if a redirect led to another origin, such as a CDN, which sent this response.
        is_cross_origin: bool,
        /// The time after which the server accepts the request again, if it says so.
        retry_after: Option<Duration>,
        /// The headers of the response.
        headers: ResponseHeaders,
    },
    /// The request was not sent: the server rate-limits this client for longer than
    /// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait).
    #[error("`{url}` is rate limited; retry in {} s", wait.as_secs())]
    RateLimited {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The time until the server accepts requests again.
        wait: Duration,
    },
    /// The response is a success, but not the requested range or file.
    #[error("unexpected response from `{url}`")]
    Range {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The difference from the requested range.
        source: RangeError,
    },
    /// A redirect that is not followed.
    #[error("cannot follow the redirect from `{url}`: {reason}")]
    Redirect {
        /// The URL that redirects.
        url: SafeUrl,
        /// The reason, such as `too many redirects`.
        reason: &'static str,
    },
    /// The [`AddressPolicy`](crate::AddressPolicy) does not allow the host's address. Nothing was sent.
    #[error("the address of `{url}` is not public")]
    PrivateAddress {
        /// The requested URL, after redirects.
        url: SafeUrl,
    },
    /// The file is larger than its limit.
    #[error("`{url}` is larger than {limit} bytes")]
    TooLarge {
        /// The requested URL, after redirects.
        url: SafeUrl,
        /// The limit in bytes, after decompression.
        limit: u64,
    },
}

/// The step at which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// Creating the HTTP client. Nothing was sent.
    Setup,
    /// Connecting: name resolution, TCP, or a TLS error that is not about the certificate.
    Connect,
    /// Verifying the server's certificate.
    Certificate,
    /// Waiting: the connect, read or request timeout passed.
    Timeout,
    /// Reading: the connection was lost, or the response is not HTTP.
    Interrupted,
}

impl std::fmt::Display for TransportKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Setup => "could not create an HTTP client for",
            Self::Connect => "could not connect to",
            Self::Certificate => "could not verify the certificate of",
            Self::Timeout => "timed out reading",
            Self::Interrupted => "connection lost while reading",
        })
    }
}

/// Names a proxy, as the end of a sentence.
fn describe_proxy(proxy: Option<&SafeUrl>) -> String {
    proxy.map_or_else(String::new, |proxy| format!(" through the proxy `{proxy}`"))
}

/// A difference between a response and the requested range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The server sent an HTML page (status 200), such as the login page of a network.
    #[error("the server sent a web page")]
    WebPage,
    /// The server sent the whole file (status 200) without a `Content-Length`, so its size is unknown.
    #[error("the server sent the whole file without a `Content-Length`")]
    UnknownLength,
    /// `Content-Range` is missing or malformed.
    #[error("`Content-Range` is missing or not of the form `bytes a-b/size`")]
    InvalidContentRange,
    /// The server sent another range. All positions are inclusive and in bytes.
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
    /// The body or its `Content-Length` has another length than the range.
    #[error("expected {expected} bytes, got {found}")]
    WrongLength {
        /// The length of the range in bytes.
        expected: u64,
        /// The length of the body in bytes.
        found: u64,
    },
    /// The body continues after the range.
    #[error("expected {expected} bytes, got more")]
    BodyTooLong {
        /// The length of the range in bytes.
        expected: u64,
    },
    /// The response has a `Content-Encoding` that the request did not accept.
    #[error("unexpected `Content-Encoding`")]
    UnexpectedEncoding,
    /// The gzip body of a small file is corrupt or ends early.
    #[error("the gzip body is corrupt")]
    CorruptGzip,
}

/// The headers of a response.
///
/// `Debug` shows only the names, because some values are secrets.
pub struct ResponseHeaders(Box<HeaderMap>);

impl ResponseHeaders {
    /// Returns the value of a header; `None` if it is missing or not ASCII text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }
}

impl std::fmt::Debug for ResponseHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl HttpError {
    /// Classifies an error of the HTTP library.
    pub(super) fn transport(url: SafeUrl, error: reqwest::Error) -> Self {
        if causes(&error).any(<dyn StdError>::is::<AddressError>) {
            return Self::PrivateAddress { url };
        }
        let kind = if error.is_builder() {
            TransportKind::Setup
        } else if is_certificate_error(&error) {
            TransportKind::Certificate
        } else if error.is_timeout() {
            TransportKind::Timeout
        } else if error.is_connect() {
            TransportKind::Connect
        } else {
            TransportKind::Interrupted
        };
        Self::Transport { url, proxy: None, kind, source: error.without_url().into() }
    }

    /// Adds the proxy of a request that could not connect.
    pub(super) fn through(mut self, used: impl FnOnce() -> Option<SafeUrl>) -> Self {
        if let Self::Transport { kind: TransportKind::Connect, proxy, .. } = &mut self {
            *proxy = used();
        }
        self
    }

    /// Creates the error of a response to `requested` with an unexpected status.
    pub(super) fn status(requested: &Url, response: &Response) -> Self {
        let (url, status) = (response.url(), response.status().as_u16());
        let bucket = RateLimitBucket::from_url(url);
        Self::Status {
            url: SafeUrl::from(url),
            status,
            retry_after: rate_limit::wait(status, response.headers(), bucket),
            is_cross_origin: url.origin() != requested.origin(),
            headers: ResponseHeaders(Box::new(response.headers().clone())),
        }
    }

    pub(super) fn range(url: &Url, source: RangeError) -> Self {
        Self::Range { url: SafeUrl::from(url), source }
    }

    /// Returns whether the same request may succeed a little later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { kind, .. } => {
                !matches!(kind, TransportKind::Certificate | TransportKind::Setup)
            }
            Self::Status { status, is_cross_origin, .. } => {
                is_transient_status(*status, *is_cross_origin)
            }
            Self::Range { source, .. } => matches!(
                source,
                RangeError::WrongLength { .. }
                    | RangeError::BodyTooLong { .. }
                    | RangeError::CorruptGzip
            ),
            Self::RateLimited { .. }
            | Self::Redirect { .. }
            | Self::PrivateAddress { .. }
            | Self::TooLarge { .. } => false,
        }
    }

    /// Returns the wait that the server asks for before the next request.
    pub(super) fn server_wait(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether the requested server itself, not a CDN, sent status 429 (Too Many Requests).
    pub(super) fn is_rate_limit(&self) -> bool {
        matches!(self, Self::Status { status: 429, is_cross_origin: false, .. })
    }
}

/// Returns whether the same request may get another status later.
///
/// A CDN sometimes rejects URLs that were signed for it, or the signature has expired. A retry starts at the Hub
/// again, which signs a new one (xet-core #897).
pub(crate) fn is_transient_status(status: u16, is_cross_origin: bool) -> bool {
    rate_limit::is_retryable(status) || (status == 403 && is_cross_origin)
}

fn is_certificate_error(error: &reqwest::Error) -> bool {
    causes(error).find_map(tls_failure) == Some(TlsFailure::Certificate)
}

/// Returns whether the server speaks none of the offered versions of HTTP (TLS alert
/// `no_application_protocol`, RFC 7301).
pub(super) fn is_no_common_protocol(error: &reqwest::Error) -> bool {
    causes(error).find_map(tls_failure) == Some(TlsFailure::NoCommonProtocol)
}

/// Returns whether the request waited for the connection of a concurrent request, and that one failed.
///
/// Only the request that tried to connect has an I/O error among its causes.
pub(super) fn is_shared_connect(error: &reqwest::Error) -> bool {
    error.is_connect() && causes(error).all(|cause| !cause.is::<std::io::Error>())
}

/// The failures of a TLS handshake that are handled in their own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsFailure {
    Certificate,
    NoCommonProtocol,
    Other,
}

/// Returns the TLS failure in a cause. TLS errors arrive inside one or more I/O errors, and the `source` of an
/// I/O error skips the error it wraps.
#[cfg(feature = "rustls-no-provider")]
fn tls_failure(cause: &(dyn StdError + 'static)) -> Option<TlsFailure> {
    use rustls::{AlertDescription, Error};

    if let Some(error) = cause.downcast_ref::<std::io::Error>() {
        return tls_failure(error.get_ref()?);
    }
    Some(match cause.downcast_ref()? {
        Error::InvalidCertificate(_) => TlsFailure::Certificate,
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            TlsFailure::NoCommonProtocol
        }
        _ => TlsFailure::Other,
    })
}

#[cfg(not(feature = "rustls-no-provider"))]
fn tls_failure(_: &(dyn StdError + 'static)) -> Option<TlsFailure> {
    None
}

/// Returns the causes of an error, the nearest first.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}
