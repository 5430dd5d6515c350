//! The Hub's errors, as it words and codes them.
//!
//! A client is to tell them apart by `X-Error-Code`; three different ones share 401.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use serde_json::json;

use super::answer::Answer;
use super::names::{X_ERROR_CODE, X_ERROR_MESSAGE, X_REPO_COMMIT};
use super::site::Caller;

#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    UnknownRoute,
    BadToken,
    /// Missing, or private and none of the caller's business: the Hub does not tell which.
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

impl Refusal {
    /// The error as `/api` sends it, with a JSON body.
    pub fn into_json(self) -> Answer {
        let body = json!({ "error": self.message() }).to_string();
        self.answer(body).with(CONTENT_TYPE, "application/json; charset=utf-8")
    }

    /// The error as `/resolve` sends it, with a body of plain text.
    pub fn into_text(self) -> Answer {
        let body = self.message();
        self.answer(body)
    }

    fn answer(&self, body: String) -> Answer {
        let mut answer = Answer::text(self.status(), body).with(X_ERROR_MESSAGE, self.message());
        if let Some(code) = self.code() {
            answer = answer.with(X_ERROR_CODE, code);
        }
        if let Self::EntryNotFound { commit } = self {
            answer = answer.with(X_REPO_COMMIT, commit);
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            answer = answer.with(
                WWW_AUTHENTICATE,
                r#"Bearer realm="Authentication required", charset="UTF-8""#,
            );
        }
        answer
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadToken
            | Self::RepoNotFound { caller: Caller::Anonymous }
            | Self::Gated { caller: Caller::Anonymous, .. } => StatusCode::UNAUTHORIZED,
            Self::Disabled | Self::Gated { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::NOT_FOUND,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::UnknownRoute | Self::BadToken | Self::Disabled => None,
            Self::RepoNotFound { .. } => Some("RepoNotFound"),
            Self::Gated { .. } => Some("GatedRepo"),
            Self::RevisionNotFound { .. } => Some("RevisionNotFound"),
            Self::EntryNotFound { .. } => Some("EntryNotFound"),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::UnknownRoute => "Not Found".to_owned(),
            Self::BadToken => "Invalid credentials in Authorization header".to_owned(),
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
