//! What was read of a Hub before, and what has to be asked of it all the same.

use std::sync::Arc;

use super::{Place, Store, X_REPO_COMMIT};
use crate::cache::{CachedHeaders, Keys};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::http::transfer::RequestMeter;
use crate::hub::{CommitSha, HubReportedCount, Revision};

const NOT_KEPT: &str = "it is not in the cache";

impl Store {
    /// The commit that the revision is now, as the Hub says of any path, be there a file or not. One
    /// small request; `None` where the server does not say.
    pub(crate) async fn commit_now(
        &self,
        path: &RepoPath,
        meter: &RequestMeter,
    ) -> Result<Option<CommitSha>, Error> {
        let Place::Web(http, url) = self.at(path) else { return Ok(None) };
        let commit = http.response_header(&url, X_REPO_COMMIT, meter).await;
        let commit = commit.map_err(|failure| self.explain(self.name(path), failure))?;
        Ok(commit.and_then(|commit| commit.parse().ok()))
    }

    /// What the Hub says of the parameters; `None` where it says nothing, or there is no Hub.
    pub(crate) async fn claim(&self) -> Result<Option<HubReportedCount>, Error> {
        let Self::Hub { http, endpoint, repo, revision, .. } = self else { return Ok(None) };
        let url = endpoint.revision_url(repo, revision);
        let read = http.read_all(&url, HubReportedCount::LIMIT, &RequestMeter::default()).await;
        let (json, _) = read.map_err(|failure| self.explain(repo.to_string(), failure))?;
        Ok(HubReportedCount::from_json(&json))
    }

    /// What tells its entries in a cache from all others; `None` for a store that is not kept in one.
    pub(crate) fn keys(&self, target: &str) -> Option<Keys> {
        match self {
            Self::Hub { http, endpoint, repo, .. } => {
                Some(Keys::new(endpoint, http.token_bytes(), repo, target))
            }
            _ => None,
        }
    }

    /// The revision that is asked for; `None` where there are none.
    pub(crate) fn revision(&self) -> Option<&Revision> {
        match self {
            Self::Hub { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// The same store as it was at a commit, with nothing in it but what was read of it then.
    pub(crate) fn of_kept(&self, commit: &CommitSha, heads: CachedHeaders) -> Option<Self> {
        let Self::Hub { repo, .. } = self else { return None };
        Some(Self::Kept { repo: repo.clone(), commit: commit.clone(), heads: Arc::new(heads) })
    }

    /// A file that is not among what was read.
    pub(super) fn not_kept(&self, path: &RepoPath) -> Error {
        Error::FileNotFound { file: self.name(path), source: NOT_KEPT.into() }
    }

    /// A list of files that is not among what was read.
    pub(super) fn not_listed(&self) -> Error {
        Error::FileNotFound {
            file: format!("list of files of {}", self.folder()),
            source: NOT_KEPT.into(),
        }
    }
}
