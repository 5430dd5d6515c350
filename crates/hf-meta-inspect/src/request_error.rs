//! Errors of HTTP requests, as far as callers react to them. The client that sends the requests creates them.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_format::CommitSha;
use thiserror::Error;

use super::error_kind::ErrorKind;

/// The reason why the budget of a call refused something.
#[derive(Clone, Debug)]
pub struct Refusal(pub Arc<dyn StdError + Send + Sync>);

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
    /// the retry policy allows.
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
    /// The address policy forbids the address of the host. Nothing was sent.
    ForbiddenAddress,
    /// The budget of the call ended the request.
    OverBudget,
    /// The file exceeds its size limit, after decompression.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

impl HttpError {
    /// Creates the error of one attempt.
    pub fn new(kind: HttpErrorKind, message: String) -> Self {
        Self { kind, attempts: 1, message, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns the reason why the budget of the call ended the request.
    pub fn refusal(&self) -> Option<Refusal> {
        if self.kind != HttpErrorKind::OverBudget {
            return None;
        }
        self.source.clone().map(Refusal)
    }

    /// Returns whether the same request may succeed if it is retried.
    pub fn is_retryable(&self) -> bool {
        use HttpErrorKind::{Connect, Interrupted, Status, Timeout, WrongBody};
        match &self.kind {
            Status(response) => response.is_transient(),
            kind => matches!(kind, Connect | Timeout | Interrupted | WrongBody),
        }
    }
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
    pub commit: Option<CommitSha>,
    /// `true` if a redirect led to another origin, such as a CDN, and that origin sent this response.
    pub is_cross_origin: bool,
}

impl HubError {
    /// Creates the error for the response of a URL, without the content of its headers.
    pub fn new(url: String, status: u16) -> Self {
        Self {
            url,
            status,
            code: None,
            message: None,
            request_id: None,
            retry_after: None,
            commit: None,
            is_cross_origin: false,
        }
    }

    /// Returns whether a retry may succeed.
    ///
    /// A CDN may reject a signed URL, for example after the signature has expired. A retry starts at the Hub again,
    /// which signs a new URL (xet-core #897).
    pub fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504)
            || (self.status == 403 && self.is_cross_origin)
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
    pub fn kind(&self) -> Option<ErrorKind> {
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

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` responded with status {}", self.url, self.status)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        // For a missing repository, the Hub responds to anonymous readers with "Invalid username or password."
        let is_misleading = self.status == 401 && self.kind() == Some(ErrorKind::RepoNotFound);
        if !is_misleading && let Some(message) = self.message.as_ref() {
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
