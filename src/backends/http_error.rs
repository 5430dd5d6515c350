//! Errors of files that are read over HTTP.

use std::time::Duration;

use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::http::{HttpError, HubError, RequestFailure};
use crate::hub::{RepoId, Revision};

/// Converts a request failure to the error for a file. `repo` is `None` on servers without repositories.
pub(crate) fn explain(
    file: String,
    failure: RequestFailure,
    repo: Option<(&RepoId, &Revision)>,
) -> Error {
    let RequestFailure { error, attempts, elapsed } = failure;
    match error {
        HttpError::TooLarge { limit, .. } => Error::TooLarge { file, limit },
        HttpError::Status(response) => refused(file, response, repo, (attempts, elapsed)),
        error => Error::RequestFailed { file, attempts, elapsed, source: Box::new(error) },
    }
}

/// Returns the error for a response with an error status.
fn refused(
    file: String,
    source: Box<HubError>,
    repo: Option<(&RepoId, &Revision)>,
    (attempts, elapsed): (usize, Duration),
) -> Error {
    let Some(kind) = source.kind() else {
        return Error::Refused { file, attempts, elapsed, source };
    };
    match (kind, repo) {
        (ErrorKind::FileNotFound, _) => Error::FileNotFound { file, source },
        (ErrorKind::RepoNotFound, Some((repo, _))) => {
            Error::RepoNotFound { repo: repo.clone(), source }
        }
        (ErrorKind::RevisionNotFound, Some((repo, revision))) => {
            let (repo, revision) = (repo.clone(), revision.clone());
            Error::RevisionNotFound { repo, revision, source }
        }
        (ErrorKind::Gated, Some((repo, _))) => Error::Gated { repo: repo.clone(), source },
        (ErrorKind::RejectedToken, Some(_)) => Error::RejectedToken { source },
        (ErrorKind::RepoNotFound | ErrorKind::RevisionNotFound, _) if source.status == 404 => {
            Error::FileNotFound { file, source }
        }
        _ => Error::Forbidden { file, source },
    }
}
