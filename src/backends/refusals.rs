//! What it means for a reader that a server does not send a file.

use std::io;
use std::time::Duration;

use super::Store;
use crate::backends::hub_cache::Snapshot;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::safetensors::{HeaderError, HeaderLength};
use crate::formats::weight_sets::WeightSet;
use crate::http::{HttpError, RequestFailure};
use crate::hub::{HubError, HubErrorKind, RepoId};

impl Store {
    /// What is missing in a cache may be in the repo all the same.
    pub(super) fn explain_cache(
        &self,
        path: &RepoPath,
        snapshot: &Snapshot,
        error: io::Error,
    ) -> Error {
        match Error::of_io(self.name(path), error) {
            Error::FileNotFound { file, .. } => {
                Error::FileNotFound { file, source: snapshot.lacks_file().into() }
            }
            other => other,
        }
    }

    /// What it means that shards are missing.
    pub(crate) fn without_shards(&self, set: &WeightSet, total: u32) -> Error {
        match self {
            Self::Cache { snapshot, .. } => Error::FileNotFound {
                file: self.name(&set.path),
                source: snapshot.lacks_shards().into(),
            },
            _ => Error::MissingShards { set: self.name(&set.path), found: set.files, total },
        }
    }

    /// A server that is not the Hub itself may know files and no listings, and its own way to say so.
    pub(super) fn without_listing<T>(
        &self,
        repo: &RepoId,
        failure: RequestFailure,
    ) -> Result<Option<T>, Error> {
        match self.explain(format!("list of files of {repo}"), failure) {
            Error::Refused { source, .. } if matches!(source.status, 405 | 501) => Ok(None),
            Error::FileNotFound { .. }
            | Error::Forbidden { .. }
            | Error::Gated { .. }
            | Error::RepoNotFound { .. }
            | Error::RevisionNotFound { .. } => Ok(None),
            error => Err(error),
        }
    }

    /// What an HTTP error means for a file of this store, by its name.
    pub(super) fn explain(&self, file: String, failure: RequestFailure) -> Error {
        let RequestFailure { error, attempts, elapsed } = failure;
        match &error {
            HttpError::TooLarge { limit, .. } => return Error::TooLarge { file, limit: *limit },
            HttpError::Range { start, .. } => {
                if let Some(source) = impostor(start) {
                    return Error::Header { file, source };
                }
            }
            _ => {}
        }
        let Some(refusal) = HubError::from_http(&error).map(Box::new) else {
            return Error::Fetch { file, attempts, elapsed, source: Box::new(error) };
        };
        self.interpret(file, refusal, attempts, elapsed)
    }

    /// What a refusal means for a file of this store. Only a Hub has repos and revisions.
    fn interpret(
        &self,
        file: String,
        source: Box<HubError>,
        attempts: usize,
        elapsed: Duration,
    ) -> Error {
        use HubErrorKind::{
            EntryNotFound, Forbidden, Gated, RejectedToken, RepoNotFound, RevisionNotFound,
        };
        match (source.kind(), self) {
            (None, _) => Error::Refused { file, attempts, elapsed, source },
            (Some(EntryNotFound), _) => Error::FileNotFound { file, source },
            (Some(RepoNotFound), Self::Hub { repo, .. }) => {
                Error::RepoNotFound { repo: repo.clone(), source }
            }
            (Some(RevisionNotFound), Self::Hub { repo, revision, .. }) => {
                let (repo, revision) = (repo.clone(), revision.clone());
                Error::RevisionNotFound { repo, revision, source }
            }
            (Some(Gated), Self::Hub { repo, .. }) => Error::Gated { repo: repo.clone(), source },
            (Some(RejectedToken), Self::Hub { .. }) => Error::RejectedToken { source },
            (Some(RepoNotFound | RevisionNotFound), _) if source.status == 404 => {
                Error::FileNotFound { file, source }
            }
            (Some(Forbidden | RejectedToken | Gated | RepoNotFound | RevisionNotFound), _) => {
                Error::Forbidden { file, source }
            }
        }
    }
}

/// What the start of a body shows it to be that a server sent in place of a range.
fn impostor(start: &[u8]) -> Option<HeaderError> {
    let length = HeaderLength::from_prefix(start, u64::MAX, HeaderLength::DEFAULT_LIMIT);
    length.err().filter(|error| matches!(error, HeaderError::NotSafetensors { .. }))
}
