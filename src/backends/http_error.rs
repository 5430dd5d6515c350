//! Errors of files that are read over HTTP.

use std::time::Duration;

use crate::error::Error;
use crate::http::{HttpError, RequestFailure};
use crate::hub::{HubError, HubErrorKind, RepoId, Revision};

/// Converts a request failure to the error for a file. `repo` is `None` on servers without repositories.
pub(crate) fn explain(
    file: String,
    failure: RequestFailure,
    repo: Option<(&RepoId, &Revision)>,
) -> Error {
    let RequestFailure { error, attempts, elapsed } = failure;
    if let HttpError::TooLarge { limit, .. } = error {
        return Error::TooLarge { file, limit };
    }
    match HubError::from_http(&error).map(Box::new) {
        Some(refusal) => refused(file, refusal, repo, (attempts, elapsed)),
        None => Error::RequestFailed { file, attempts, elapsed, source: Box::new(error) },
    }
}

/// Returns the error for a response with an error status.
fn refused(
    file: String,
    source: Box<HubError>,
    repo: Option<(&RepoId, &Revision)>,
    (attempts, elapsed): (usize, Duration),
) -> Error {
    use HubErrorKind::{
        EntryNotFound, Forbidden, Gated, RejectedToken, RepoNotFound, RevisionNotFound,
    };
    match (source.kind(), repo) {
        (None, _) => Error::Refused { file, attempts, elapsed, source },
        (Some(EntryNotFound), _) => Error::FileNotFound { file, source },
        (Some(RepoNotFound), Some((repo, _))) => Error::RepoNotFound { repo: repo.clone(), source },
        (Some(RevisionNotFound), Some((repo, revision))) => {
            let (repo, revision) = (repo.clone(), revision.clone());
            Error::RevisionNotFound { repo, revision, source }
        }
        (Some(Gated), Some((repo, _))) => Error::Gated { repo: repo.clone(), source },
        (Some(RejectedToken), Some(_)) => Error::RejectedToken { source },
        (Some(RepoNotFound | RevisionNotFound), _) if source.status == 404 => {
            Error::FileNotFound { file, source }
        }
        (Some(Forbidden | RejectedToken | Gated | RepoNotFound | RevisionNotFound), _) => {
            Error::Forbidden { file, source }
        }
    }
}
