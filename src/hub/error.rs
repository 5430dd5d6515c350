//! Error responses from the Hub.

use std::fmt;
use std::time::Duration;

use super::CommitSha;
use crate::formats::clip;
use crate::http::{self, HttpError, ResponseHeaders, SafeUrl};

/// An error response from the Hub, with any status other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubError {
    /// The URL that sent this response, after redirects.
    pub url: SafeUrl,
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

/// The cause of a [`HubError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubErrorKind {
    /// The repository does not exist, or is private and the token has no access to it.
    RepoNotFound,
    /// The repository exists, but the revision does not.
    RevisionNotFound,
    /// The revision exists, but the file does not.
    EntryNotFound,
    /// The repository is gated, and access has not been granted.
    Gated,
    /// The token is unknown to the Hub or has expired.
    RejectedToken,
    /// Access is denied for another reason, which the message may state.
    Forbidden,
}

impl HubError {
    /// Reads the error headers of a response. Returns `None` if the request failed without a status.
    pub(crate) fn from_http(error: &HttpError) -> Option<Self> {
        let HttpError::Status { url, status, headers, is_cross_origin, retry_after } = error else {
            return None;
        };
        let ids = ["x-request-id", "x-amzn-trace-id", "x-amz-cf-id"];
        Some(Self {
            url: url.clone(),
            commit: headers.get("x-repo-commit").and_then(|commit| commit.parse().ok()),
            is_cross_origin: *is_cross_origin,
            retry_after: *retry_after,
            status: *status,
            code: text(headers, "x-error-code"),
            message: text(headers, "x-error-message"),
            request_id: ids.into_iter().find_map(|name| text(headers, name)),
        })
    }

    /// Returns whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        http::is_transient_status(self.status, self.is_cross_origin)
    }

    /// Returns the cause, or `None` if the status does not concern the repository, the file or the token, as for
    /// status 500.
    ///
    /// `X-Error-Code` takes precedence, because the status is ambiguous: a missing repository is a 401 without a
    /// token and a 404 with one.
    #[must_use]
    pub fn kind(&self) -> Option<HubErrorKind> {
        match self.code.as_deref() {
            Some("RepoNotFound") => return Some(HubErrorKind::RepoNotFound),
            Some("RevisionNotFound") => return Some(HubErrorKind::RevisionNotFound),
            Some("EntryNotFound") => return Some(HubErrorKind::EntryNotFound),
            Some("GatedRepo") => return Some(HubErrorKind::Gated),
            _ => {}
        }
        match self.status {
            // A CDN knows neither repositories nor tokens.
            _ if self.is_cross_origin => None,
            401 if self.message.as_deref()
                == Some("Invalid credentials in Authorization header") =>
            {
                Some(HubErrorKind::RejectedToken)
            }
            401 => Some(HubErrorKind::RepoNotFound),
            403 => Some(HubErrorKind::Forbidden),
            // Servers other than the Hub send no error codes.
            404 | 410 => Some(HubErrorKind::EntryNotFound),
            _ => None,
        }
    }
}

fn text(headers: &ResponseHeaders, name: &str) -> Option<String> {
    headers.get(name).map(clip)
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` responded with status {}", self.url, self.status)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        // For a missing repository, the Hub responds to anonymous readers with "Invalid username or password."
        let is_misleading = self.status == 401 && self.kind() == Some(HubErrorKind::RepoNotFound);
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
        use HubErrorKind::{
            EntryNotFound, Forbidden, Gated, RejectedToken, RepoNotFound, RevisionNotFound,
        };
        let bad_token = "Invalid credentials in Authorization header";
        let cases = [
            (404, Some("EntryNotFound"), None, Some(EntryNotFound)),
            (404, Some("RevisionNotFound"), None, Some(RevisionNotFound)),
            (404, Some("RepoNotFound"), None, Some(RepoNotFound)),
            (401, Some("RepoNotFound"), Some("Invalid username or password."), Some(RepoNotFound)),
            (401, None, Some("Invalid username or password."), Some(RepoNotFound)),
            (401, Some("GatedRepo"), Some("Access to model a/b is restricted."), Some(Gated)),
            (403, Some("GatedRepo"), None, Some(Gated)),
            (401, None, Some(bad_token), Some(RejectedToken)),
            (403, None, Some("Access to this resource is disabled."), Some(Forbidden)),
            (404, None, None, Some(EntryNotFound)),
            (429, None, None, None),
            (500, None, None, None),
        ];
        for (status, code, message, kind) in cases {
            let [code, message] = [code, message].map(|text| text.map(str::to_owned));
            let url = SafeUrl::from(&url::Url::parse("https://hub.example/a/b").unwrap());
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
