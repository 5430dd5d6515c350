//! What can go wrong between a request and its bytes.

use std::error::Error as StdError;
use std::time::Duration;

use ::url::Url;
use reqwest::Response;
use reqwest::header::HeaderMap;
use thiserror::Error;

use super::address::AddressError;
use super::{SafeUrl, rate_limit};

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
    Status { url: SafeUrl, status: u16, is_cross_origin: bool, headers: ResponseHeaders },
    /// A server that has asked this client for a longer wait than the retries may take; this request
    /// was not made.
    #[error("`{url}` asks to be left alone for {} s", wait.as_secs())]
    RateLimited { url: SafeUrl, wait: Duration },
    /// An answer that is not the range, or not the file, that was asked for.
    #[error("the answer of `{url}` is not what was asked for")]
    Range {
        url: SafeUrl,
        source: RangeError,
        /// The first bytes of the body, where they were looked at.
        start: Vec<u8>,
    },
    /// A redirect that is not followed.
    #[error("`{url}` redirects {reason}")]
    Redirect { url: SafeUrl, reason: &'static str },
    /// A host that the [`AddressPolicy`](crate::AddressPolicy) does not allow.
    #[error("the address of `{url}` is not public")]
    PrivateAddress { url: SafeUrl },
    #[error("`{url}` has more than {limit} bytes")]
    TooLarge { url: SafeUrl, limit: u64 },
}

/// Where an exchange broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// No client could be made, and so nothing was sent.
    Setup,
    /// No connection: name resolution or TCP, or TLS for another reason than the certificate.
    Connect,
    /// The server's certificate is not one that this machine believes.
    Certificate,
    /// A connection, a read or the whole request took longer than it may.
    Timeout,
    /// The connection broke, or what came was not HTTP.
    Interrupted,
}

impl std::fmt::Display for TransportKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Setup => "could not set up a client for",
            Self::Connect => "could not connect to",
            Self::Certificate => "could not trust",
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
    Unsupported,
    #[error("the server sent the whole file without saying how long it is")]
    UnknownLength,
    #[error("the `Content-Range` is missing or is not of the form `bytes a-b/size`")]
    InvalidContentRange,
    #[error("asked for bytes {first}-{last}, got {found_first}-{found_last} of {file_size}")]
    Mismatch { first: u64, last: u64, found_first: u64, found_last: u64, file_size: u64 },
    #[error("expected {expected} bytes, got {found}")]
    WrongLength { expected: u64, found: u64 },
    #[error("expected {expected} bytes, got more")]
    BodyTooLong { expected: u64 },
    #[error("the body is encoded in a way that was not asked for")]
    UnexpectedEncoding,
    #[error("the compressed body is broken")]
    CorruptGzip,
}

/// The headers of an answer. Their values are not shown by `Debug`: some are secrets.
pub struct ResponseHeaders(Box<HeaderMap>);

impl ResponseHeaders {
    /// The value of a header, if there is one and it is text.
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
    pub(super) fn transport(url: SafeUrl, error: reqwest::Error) -> Self {
        if causes(&error).any(<dyn StdError>::is::<AddressError>) {
            return Self::PrivateAddress { url };
        }
        let kind = if error.is_builder() {
            TransportKind::Setup
        } else if is_about_certificate(&error) {
            TransportKind::Certificate
        } else if error.is_timeout() {
            TransportKind::Timeout
        } else if error.is_connect() {
            TransportKind::Connect
        } else {
            TransportKind::Interrupted
        };
        Self::Transport { url, kind, source: error.without_url().into() }
    }

    /// A status where `asked` should have been the file.
    pub(super) fn status(asked: &Url, response: &Response) -> Self {
        Self::Status {
            url: SafeUrl::from(response.url()),
            status: response.status().as_u16(),
            is_cross_origin: response.url().origin() != asked.origin(),
            headers: ResponseHeaders(Box::new(response.headers().clone())),
        }
    }

    pub(super) fn range(url: &Url, source: RangeError) -> Self {
        Self::Range { url: SafeUrl::from(url), source, start: Vec::new() }
    }

    /// Whether the same request may well succeed a little later.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { kind, .. } => {
                !matches!(kind, TransportKind::Certificate | TransportKind::Setup)
            }
            // A CDN refuses what it has signed itself, by mistake or because the signature is too old;
            // the Hub then signs again (xet-core #897).
            Self::Status { status: 403, is_cross_origin, .. } => *is_cross_origin,
            Self::Status { status, .. } => rate_limit::may_pass(*status),
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

    /// How long the server asks to wait before the next attempt.
    pub(super) fn asked_wait(&self) -> Option<Duration> {
        match self {
            Self::Status { status, headers, .. } => rate_limit::of(*status, &headers.0),
            _ => None,
        }
    }

    /// Whether the server that was asked complains about too many requests.
    pub(super) fn is_rate_limit(&self) -> bool {
        matches!(self, Self::Status { status: 429, is_cross_origin: false, .. })
    }
}

fn is_about_certificate(error: &reqwest::Error) -> bool {
    let tls = causes(error).find_map(tls_error);
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether a server speaks none of the versions of HTTP that it was offered.
pub(super) fn is_about_protocol(error: &reqwest::Error) -> bool {
    let alert = rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
    causes(error).find_map(tls_error) == Some(&alert)
}

/// Whether it was for another request to connect, and only that one knows why it could not: where there
/// is no such cause, nothing was tried.
pub(super) fn is_of_another(error: &reqwest::Error) -> bool {
    error.is_connect() && causes(error).all(|cause| !cause.is::<std::io::Error>())
}

/// An error of TLS reaches us inside one of IO, or inside several; what they wrap is not their source.
fn tls_error<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    match cause.downcast_ref::<std::io::Error>() {
        Some(error) => tls_error(error.get_ref()?),
        None => cause.downcast_ref(),
    }
}

/// An error's causes, the nearest first.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}
