//! What the Hub means when it does not send the file.

use std::fmt;

use super::CommitSha;
use crate::formats::clip;
use crate::http::{HttpError, ResponseHeaders, SafeUrl};

/// An answer of the Hub that is not the file, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubError {
    /// Who answered.
    pub url: SafeUrl,
    /// The HTTP status.
    pub status: u16,
    /// `X-Error-Code`, such as `GatedRepo`.
    pub code: Option<String>,
    /// `X-Error-Message`, cut to 200 characters.
    pub message: Option<String>,
    /// The name of this request in the Hub's logs, for a report to its operators.
    pub request_id: Option<String>,
    /// The commit that lacks the file, which the Hub says beside a 404.
    pub(crate) commit: Option<CommitSha>,
    /// Whether another server answered than the one that was asked, such as the CDN.
    pub(crate) is_cross_origin: bool,
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubErrorKind {
    /// The repo does not exist, or is private and the reader is not known to have access.
    RepoNotFound,
    /// The repo exists, the revision does not.
    RevisionNotFound,
    /// The revision exists, the file does not.
    EntryNotFound,
    /// The repo is open only to those who were granted access.
    Gated,
    /// The token is not one that the Hub knows.
    RejectedToken,
    /// Access is denied for another reason, which the message may tell.
    Forbidden,
}

impl HubError {
    /// The Hub's words on an answer; `None` when no status came.
    pub(crate) fn from_http(error: &HttpError) -> Option<Self> {
        let HttpError::Status { url, status, headers, is_cross_origin } = error else {
            return None;
        };
        let ids = ["x-request-id", "x-amzn-trace-id", "x-amz-cf-id"];
        Some(Self {
            url: url.clone(),
            commit: headers.get("x-repo-commit").and_then(|commit| commit.parse().ok()),
            is_cross_origin: *is_cross_origin,
            status: *status,
            code: text(headers, "x-error-code"),
            message: text(headers, "x-error-message"),
            request_id: ids.into_iter().find_map(|name| text(headers, name)),
        })
    }

    /// What the refusal is about; `None` for a status that says nothing of repo, file or reader.
    ///
    /// Decided by the code. The status alone would not do: a missing repo is a 401 for a reader
    /// without a token and a 404 for one with, and so is a gated one.
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
            // A status of the CDN is about the exchange, not about the repo or its reader.
            _ if self.is_cross_origin => None,
            401 if self.message.as_deref()
                == Some("Invalid credentials in Authorization header") =>
            {
                Some(HubErrorKind::RejectedToken)
            }
            401 => Some(HubErrorKind::RepoNotFound),
            403 => Some(HubErrorKind::Forbidden),
            // Servers that are not the Hub know no codes.
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
        write!(f, "`{}` answered with status {}", self.url, self.status)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        match &self.request_id {
            Some(id) => write!(f, " [request id {id}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HubError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_and_the_status_only_without_it() {
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
            let refusal =
                HubError { url, status, code, message, request_id, commit, is_cross_origin };
            assert_eq!(refusal.kind(), kind, "{refusal}");
            let has_code = refusal.code.is_some();
            let elsewhere = HubError { is_cross_origin: true, ..refusal };
            assert_eq!(elsewhere.kind().is_some(), has_code, "{elsewhere}");
        }
    }
}
