//! The Hugging Face Hub: names, URLs, error responses and file listings.
//!
//! The validated names come from the crate of formats: a [`RepoId`] such as `bigscience/bloom`, a [`Revision`] such as
//! `main`, and a [`CommitSha`]. A [`Source`] is the parsed form of a text that a user pasted: a repository, a URL or a
//! local path.
//!
//! [`Endpoint`] builds all URLs that are requested from a Hub:
//!
//! | request | URL |
//! |---|---|
//! | a file or a range of it | `{endpoint}/{repo}/resolve/{revision}/{path}` |
//! | all files of a repository | `{endpoint}/api/models/{repo}/tree/{revision}?recursive=true` |
//! | the Hub's own parameter count | `{endpoint}/api/models/{repo}/revision/{revision}?expand=safetensors` |
//!
//! The Hub's response headers carry metadata. `X-Repo-Commit` is the commit of a response, `X-Error-Code`
//! distinguishes a missing repository from a missing file ([`HubError`](crate::HubError)), `Link` leads to the next
//! page of a listing ([`api`]), and `X-HF-Warning` is a message for users ([`HubWarnings`]).

pub(crate) mod api;
mod endpoint;
mod manifest;
mod source;

pub use self::{
    api::HubReportedCount,
    endpoint::{Endpoint, EndpointError},
    manifest::{Manifest, ManifestFile},
    source::Source,
};
use hf_meta_format::formats::clip;
pub(crate) use hf_meta_format::{
    CommitSha, PUBLIC_HUB_HOSTS, RepoId, RepoSource, Revision, SourceError, is_local_path,
};

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::base::lock;

/// The maximum number of distinct warnings that a client logs. A hostile server could send any number.
const MAX_WARNINGS: usize = 16;

/// The warnings a client has already logged. The Hub repeats them with every response.
#[derive(Debug, Default)]
pub(crate) struct HubWarnings {
    logged: Mutex<BTreeSet<String>>,
}

impl HubWarnings {
    /// Logs that the token is invalid, once per client.
    pub(crate) fn warn_rejected_token(&self) {
        if self.is_new("rejected token") {
            tracing::warn!("the Hub rejected the token; reading without it");
        }
    }

    /// Logs a warning of the form `topic; message`, once per client.
    pub(crate) fn warn_once(&self, warning: Option<&str>) {
        if let Some(message) = warning.map(clip).filter(|message| self.is_new(message)) {
            tracing::warn!(?message, "warning from the Hub");
        }
    }

    fn is_new(&self, warning: &str) -> bool {
        let mut logged = lock(&self.logged);
        logged.len() < MAX_WARNINGS && logged.insert(warning.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_logged_once_up_to_a_limit() {
        let warnings = HubWarnings::default();
        assert!(warnings.is_new("unauthenticated; Warning: …"));
        assert!(!warnings.is_new("unauthenticated; Warning: …"));
        let new = (0..100).filter(|n| warnings.is_new(&n.to_string())).count();
        assert_eq!(new, MAX_WARNINGS - 1);
    }
}
