//! Errors of HTTP requests.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::url::Url;
use hf_meta_format::CommitSha;
use reqwest::Response;
use reqwest::header::HeaderMap;
use thiserror::Error;

use super::SafeUrl;
use super::address::AddressError;
use super::rate_limit::{self, RateLimitBucket};
use super::tls::{TlsFailure, tls_failure};
use crate::base::budget::Refusal;
use crate::error_kind::ErrorKind;
use crate::formats::clip;

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
    /// A list of files has too many files or pages.
    EndlessListing,
    /// A page of a list of files is malformed, or its link to the next page is.
    InvalidListing,
    /// A redirect was not followed.
    Redirect,
    /// The [`AddressPolicy`](crate::AddressPolicy) forbids the address of the host. Nothing was sent.
    ForbiddenAddress,
    /// The [`Budget`](crate::Budget) of the call ended the request.
    OverBudget,
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
        } else if !cfg!(feature = "rustls-no-provider") && url.0.starts_with("https:") {
            (HttpErrorKind::Setup, "this build has no TLS (feature `rustls-aws-lc`) for")
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
    pub(crate) fn defect(url: &Url, (kind, defect): Defect) -> Self {
        let message = format!("unexpected response from `{}`", SafeUrl::from(url));
        let source: Box<dyn StdError + Send + Sync> = defect.into();
        Self { source: Some(source.into()), ..Self::new(kind, message) }
    }

    pub(super) fn too_large(url: &Url, limit: u64) -> Self {
        let message = format!("`{}` exceeds the limit of {limit} bytes", SafeUrl::from(url));
        Self::new(HttpErrorKind::TooLarge { limit }, message)
    }

    /// Creates the error for a request that the budget of its call ended.
    pub(crate) fn over_budget(url: &Url, Refusal(reason): Refusal) -> Self {
        let message = format!("stopped reading `{}`", SafeUrl::from(url));
        Self { source: Some(reason), ..Self::new(HttpErrorKind::OverBudget, message) }
    }

    /// Returns the reason why the budget of the call ended the request.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let is_refused = self.kind == HttpErrorKind::OverBudget;
        self.source.clone().filter(|_| is_refused).map(Refusal)
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

/// An error response from the Hub, with any status other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubError {
    /// The URL that sent this response, after redirects, without its query.
    pub url: String,
    /// The HTTP status code.
    pub status: u16,
    /// The value of the `X-Error-Code` header, such as `GatedRepo`.
    pub code: Option<String>,
    /// The value of the `X-Error-Message` header, truncated to 200 characters.
    pub message: Option<String>,
    /// The ID of this request in the server's logs, for reporting problems to its operators.
    pub request_id: Option<String>,
    /// The time to wait before retrying, if the server specified one.
    pub retry_after: Option<Duration>,
    /// The commit that lacks the file. The Hub sends it with a 404.
    pub(crate) commit: Option<CommitSha>,
    /// `true` if a redirect led to another origin, such as a CDN, and that origin sent this response.
    pub(crate) is_cross_origin: bool,
}

impl HubError {
    /// Reads the headers of the response to `requested`.
    pub(super) fn new(requested: &Url, response: &Response) -> Self {
        let (url, status) = (response.url(), response.status().as_u16());
        let (headers, bucket) = (response.headers(), RateLimitBucket::from_url(url));
        let ids = ["x-request-id", "x-amzn-trace-id", "x-amz-cf-id"];
        Self {
            url: SafeUrl::from(url).to_string(),
            status,
            code: text(headers, "x-error-code"),
            message: text(headers, "x-error-message"),
            request_id: ids.into_iter().find_map(|name| text(headers, name)),
            retry_after: rate_limit::required_wait(status, headers, bucket, SystemTime::now()),
            commit: text(headers, "x-repo-commit").and_then(|commit| commit.parse().ok()),
            is_cross_origin: url.origin() != requested.origin(),
        }
    }

    /// Returns whether a retry may succeed.
    ///
    /// A CDN may reject a signed URL, for example after the signature has expired. A retry starts at the Hub again,
    /// which signs a new URL (xet-core #897).
    pub(crate) fn is_transient(&self) -> bool {
        rate_limit::is_retryable(self.status) || (self.status == 403 && self.is_cross_origin)
    }

    /// Returns whether the response claims that a file or the access to it is missing, but has no header of a Hub. It
    /// may come from anything on the way to the Hub, so it says nothing about the repository.
    pub fn is_foreign(&self) -> bool {
        let texts = [&self.code, &self.message, &self.request_id];
        matches!(self.status, 401 | 403 | 404 | 410)
            && !self.is_cross_origin
            && self.commit.is_none()
            && texts.iter().all(|text| text.is_none())
    }

    /// Returns the kind of the error if it concerns the repository, the revision, the file or the token, and `None`
    /// otherwise, as for status 500.
    ///
    /// `X-Error-Code` takes precedence, because the status is ambiguous: a missing repository is a 401 without a
    /// token and a 404 with one.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        let has_bad_token =
            self.message.as_deref() == Some("Invalid credentials in Authorization header");
        match (self.code.as_deref(), self.status) {
            (Some("RepoNotFound"), _) => Some(ErrorKind::RepoNotFound),
            (Some("RevisionNotFound"), _) => Some(ErrorKind::RevisionNotFound),
            (Some("EntryNotFound"), _) => Some(ErrorKind::FileNotFound),
            (Some("GatedRepo"), _) => Some(ErrorKind::Gated),
            // A CDN knows neither repositories nor tokens.
            _ if self.is_cross_origin => None,
            (_, 401) if has_bad_token => Some(ErrorKind::RejectedToken),
            (_, 401) => Some(ErrorKind::RepoNotFound),
            (_, 403) => Some(ErrorKind::Forbidden),
            // Servers other than the Hub send no error codes.
            (_, 404 | 410) => Some(ErrorKind::FileNotFound),
            _ => None,
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(clip)
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` responded with status {}", self.url, self.status)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        // For a missing repository, the Hub responds to anonymous readers with "Invalid username or password."
        let is_misleading = self.status == 401 && self.kind() == Some(ErrorKind::RepoNotFound);
        if let Some(message) = self.message.as_ref().filter(|_| !is_misleading) {
            write!(f, ": {message}")?;
        }
        match &self.request_id {
            Some(id) => write!(f, " [request ID {id}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HubError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_code_takes_precedence_over_the_status() {
        use ErrorKind::{
            FileNotFound, Forbidden, Gated, RejectedToken, RepoNotFound, RevisionNotFound,
        };
        let bad_token = "Invalid credentials in Authorization header";
        let cases = [
            (404, Some("EntryNotFound"), None, Some(FileNotFound)),
            (404, Some("RevisionNotFound"), None, Some(RevisionNotFound)),
            (404, Some("RepoNotFound"), None, Some(RepoNotFound)),
            (401, Some("RepoNotFound"), Some("Invalid username or password."), Some(RepoNotFound)),
            (401, None, Some("Invalid username or password."), Some(RepoNotFound)),
            (401, Some("GatedRepo"), Some("Access to model a/b is restricted."), Some(Gated)),
            (403, Some("GatedRepo"), None, Some(Gated)),
            (401, None, Some(bad_token), Some(RejectedToken)),
            (403, None, Some("Access to this resource is disabled."), Some(Forbidden)),
            (404, None, None, Some(FileNotFound)),
            (429, None, None, None),
            (500, None, None, None),
        ];
        for (status, code, message, kind) in cases {
            let [code, message] = [code, message].map(|text| text.map(str::to_owned));
            let url = "https://hub.example/a/b".to_owned();
            let is_cross_origin = false;
            let (request_id, commit) = (None, None);
            let error = HubError {
                url,
                status,
                code,
                message,
                request_id,
                retry_after: None,
                commit,
                is_cross_origin,
            };
            assert_eq!(error.kind(), kind, "{error}");
            let has_code = error.code.is_some();
            let from_cdn = HubError { is_cross_origin: true, ..error };
            assert_eq!(from_cdn.kind().is_some(), has_code, "{from_cdn}");
        }
    }
}
