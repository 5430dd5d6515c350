//! Error responses with the Hub's codes and messages.
//!
//! Clients have to read `X-Error-Code`, because three different errors have status 401.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use serde_json::json;

use super::header_names::{X_ERROR_CODE, X_ERROR_MESSAGE, X_REPO_COMMIT};
use super::response::ResponseSpec;
use super::state::Caller;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrorResponse {
    UnknownRoute,
    InvalidToken,
    /// Missing, or private without access. The Hub does not reveal which.
    RepoNotFound {
        caller: Caller,
    },
    Disabled,
    Gated {
        repo: String,
        caller: Caller,
    },
    RevisionNotFound {
        revision: String,
    },
    EntryNotFound {
        commit: String,
    },
}

impl ErrorResponse {
    /// Returns the error as sent by `/api`, with a JSON body.
    pub(super) fn into_json(self) -> ResponseSpec {
        let body = json!({ "error": self.message() }).to_string();
        self.response(body).with(CONTENT_TYPE, "application/json; charset=utf-8")
    }

    /// Returns the error as sent by `/resolve`, with a plain text body.
    pub(super) fn into_text(self) -> ResponseSpec {
        let body = self.message();
        self.response(body)
    }

    fn response(&self, body: String) -> ResponseSpec {
        let mut response =
            ResponseSpec::text(self.status(), body).with(X_ERROR_MESSAGE, self.message());
        if let Some(code) = self.code() {
            response = response.with(X_ERROR_CODE, code);
        }
        if let Self::EntryNotFound { commit } = self {
            response = response.with(X_REPO_COMMIT, commit);
        }
        if response.status == StatusCode::UNAUTHORIZED {
            response = response.with(
                WWW_AUTHENTICATE,
                r#"Bearer realm="Authentication required", charset="UTF-8""#,
            );
        }
        response
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidToken
            | Self::RepoNotFound { caller: Caller::Anonymous }
            | Self::Gated { caller: Caller::Anonymous, .. } => StatusCode::UNAUTHORIZED,
            Self::Disabled | Self::Gated { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::NOT_FOUND,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::UnknownRoute | Self::InvalidToken | Self::Disabled => None,
            Self::RepoNotFound { .. } => Some("RepoNotFound"),
            Self::Gated { .. } => Some("GatedRepo"),
            Self::RevisionNotFound { .. } => Some("RevisionNotFound"),
            Self::EntryNotFound { .. } => Some("EntryNotFound"),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::UnknownRoute => "Not Found".to_owned(),
            Self::InvalidToken => "Invalid credentials in Authorization header".to_owned(),
            Self::RepoNotFound { caller: Caller::Anonymous } => {
                "Invalid username or password.".to_owned()
            }
            Self::RepoNotFound { .. } => "Repository not found".to_owned(),
            Self::Disabled => "Access to this resource is disabled.".to_owned(),
            Self::Gated { repo, caller: Caller::Anonymous } => format!(
                "Access to model {repo} is restricted. You must have access to it and be authenticated to access \
                 it. Please log in."
            ),
            Self::Gated { repo, .. } => format!(
                "Access to model {repo} is restricted and you are not in the authorized list. Visit \
                 https://huggingface.co/{repo} to ask for access."
            ),
            Self::RevisionNotFound { revision } => format!("Invalid rev id: {revision}"),
            Self::EntryNotFound { .. } => "Entry not found".to_owned(),
        }
    }
}
