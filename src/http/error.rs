//! Errors of HTTP requests.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
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
#[error("{message}")]
#[non_exhaustive]
pub struct HttpError {
    /// The failed step, or the defect of the response.
    pub kind: HttpErrorKind,
    /// The number of attempts made.
    pub attempts: usize,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of an [`HttpError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// Creating the HTTP client failed. Nothing was sent.
    Setup,
    /// Connecting failed: name resolution, TCP, or a TLS error unrelated to the certificate.
    Connect,
    /// The server's certificate is not trusted.
    Certificate,
    /// The connect, read or request timeout elapsed.
    Timeout,
    /// The connection was lost, or the server did not speak HTTP.
    Interrupted,
    /// The response has an unexpected status, such as 404 or 500.
    Status(Box<HubError>),
    /// The request was not sent, because a server's rate limit requires a longer wait than
    /// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait) allows.
    RateLimited {
        /// The time until the server accepts requests again.
        wait: Duration,
    },
    /// The server sent an HTML page with status 200, such as the login page of a captive portal.
    WebPage,
    /// The headers of a response with a success status do not match the request: the range or the encoding.
    WrongHeaders,
    /// The body is shorter or longer than announced, or corrupt.
    WrongBody,
    /// A redirect was not followed.
    Redirect,
    /// The [`AddressPolicy`](crate::AddressPolicy) forbids the address of the host. Nothing was sent.
    ForbiddenAddress,
    /// The file exceeds its size limit, after decompression.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

/// A defect of a response, with its description.
pub(super) type Defect = (HttpErrorKind, String);

impl HttpError {
    pub(crate) fn new(kind: HttpErrorKind, message: String) -> Self {
        Self { kind, attempts: 1, message, source: None }
    }

    /// Classifies an error of the HTTP library. The proxy of the URL is shown if no connection was established.
    pub(super) fn transport(
        url: &SafeUrl,
        error: reqwest::Error,
        proxy: impl FnOnce() -> Option<SafeUrl>,
    ) -> Self {
        if causes(&error).any(<dyn StdError>::is::<AddressError>) {
            return Self::forbidden_address(url);
        }
        let (kind, step) = if error.is_builder() {
            (HttpErrorKind::Setup, "failed to create an HTTP client for")
        } else if tls_cause(&error) == Some(TlsFailure::Certificate) {
            (HttpErrorKind::Certificate, "failed to verify the certificate of")
        } else if error.is_timeout() {
            (HttpErrorKind::Timeout, "timed out while reading")
        } else if error.is_connect() {
            (HttpErrorKind::Connect, "failed to connect to")
        } else {
            (HttpErrorKind::Interrupted, "lost the connection while reading")
        };
        let proxy = if kind == HttpErrorKind::Connect { proxy() } else { None };
        let proxy = proxy.map_or_else(String::new, |proxy| format!(" via proxy `{proxy}`"));
        let source: Arc<dyn StdError + Send + Sync> = Arc::new(error.without_url());
        Self { source: Some(source), ..Self::new(kind, format!("{step} `{url}`{proxy}")) }
    }

    pub(super) fn forbidden_address(url: &SafeUrl) -> Self {
        let message = format!("the address of `{url}` is not public, so it was not requested");
        Self::new(HttpErrorKind::ForbiddenAddress, message)
    }

    /// Creates the error for an unexpected status in the response to `requested`.
    pub(super) fn status(requested: &Url, response: &Response) -> Self {
        let response = HubError::new(requested, response);
        let message = response.to_string();
        Self::new(HttpErrorKind::Status(Box::new(response)), message)
    }

    /// Creates the error for a response that is not the requested range or file.
    pub(super) fn defect(url: &Url, (kind, defect): Defect) -> Self {
        let message = format!("unexpected response from `{}`", SafeUrl::from(url));
        let source: Box<dyn StdError + Send + Sync> = defect.into();
        Self { source: Some(source.into()), ..Self::new(kind, message) }
    }

    pub(super) fn too_large(url: &Url, limit: u64) -> Self {
        let message = format!("`{}` exceeds the limit of {limit} bytes", SafeUrl::from(url));
        Self::new(HttpErrorKind::TooLarge { limit }, message)
    }

    /// Returns whether the same request may succeed if it is retried.
    pub(crate) fn is_retryable(&self) -> bool {
        use HttpErrorKind::{Connect, Interrupted, Status, Timeout, WrongBody};
        match &self.kind {
            Status(response) => response.is_transient(),
            kind => matches!(kind, Connect | Timeout | Interrupted | WrongBody),
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
