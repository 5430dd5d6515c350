//! Sample errors of every kind, for tests of programs that handle them.

use std::io;
use std::time::Duration;

use url::Url;

use crate::error::{Error, HubCacheMiss};
use crate::formats::safetensors::{HeaderError, IndexError};
use crate::http::{HttpError, SafeUrl, TransportKind};
use crate::hub::{HubError, ListingError, Revision};

/// All values of [`Error::code`].
pub const ERROR_CODES: [&str; 23] = [
    "invalidSource",
    "invalidSettings",
    "repoNotFound",
    "revisionNotFound",
    "fileNotFound",
    "gated",
    "rejectedToken",
    "forbidden",
    "noWeights",
    "severalSets",
    "missingShards",
    "malformedHeader",
    "malformedIndex",
    "malformedListing",
    "tooLarge",
    "changed",
    "rateLimited",
    "refused",
    "network",
    "timeout",
    "offline",
    "notCached",
    "localIo",
];

/// Returns a sample error for `org/model` with the given code, or `None` if the code is not in [`ERROR_CODES`].
///
/// ```
/// use hf_meta::testing::{ERROR_CODES, error};
///
/// for code in ERROR_CODES {
///     assert!(error(code).is_some_and(|error| error.code() == code));
/// }
/// assert!(error("rateLimited").is_some_and(|error| error.retry_after().is_some()));
/// ```
#[must_use]
pub fn error(code: &str) -> Option<Error> {
    let (repo, place, file) = (
        "org/model".parse().ok()?,
        "org/model".to_owned(),
        "org/model/model.safetensors".to_owned(),
    );
    let (attempts, elapsed) = (1, Duration::from_millis(50));
    let respond = |status, code| Box::new(hub_error(status, Some(code), None));
    let missing = || respond(404, "EntryNotFound");
    Some(match code {
        "invalidSource" => Error::InvalidSource("a/b/c/d".parse::<crate::RepoId>().err()?.into()),
        "invalidSettings" => Error::InvalidToken,
        "repoNotFound" => Error::RepoNotFound { repo, source: respond(401, "RepoNotFound") },
        "revisionNotFound" => {
            let (revision, source) = (Revision::default(), respond(404, "RevisionNotFound"));
            Error::RevisionNotFound { repo, revision, source }
        }
        "fileNotFound" => Error::FileNotFound { file, source: missing() },
        "gated" => Error::Gated { repo, source: respond(403, "GatedRepo") },
        "rejectedToken" => Error::RejectedToken { source: Box::new(hub_error(401, None, None)) },
        "forbidden" => Error::Forbidden { file, source: Box::new(hub_error(403, None, None)) },
        "noWeights" => Error::NoWeights {
            place,
            single: "model.safetensors".to_owned(),
            index: "model.safetensors.index.json".to_owned(),
            instead: Vec::new(),
            source: missing(),
        },
        "severalSets" => Error::SeveralSets { place, sets: Vec::new() },
        "missingShards" => Error::ShardNotFound { file, source: missing() },
        "malformedHeader" => {
            let source = HeaderError::FileTooShort { file_size: 7 };
            Error::InvalidHeader { file, format: "safetensors", source }
        }
        "malformedIndex" => {
            Error::InvalidIndex { file, source: IndexError::MergeConflict { line: 1 } }
        }
        "malformedListing" => Error::ListingFailed { place, source: ListingError::EndlessPages },
        "tooLarge" => Error::TooLarge { file, limit: 100_000_000 },
        "changed" => Error::FileChanged { file, before: 8, after: 9 },
        "rateLimited" => {
            let wait = Some(Duration::from_secs(60));
            let source = Box::new(hub_error(429, None, wait));
            Error::Refused { file, attempts, elapsed, source }
        }
        "refused" => {
            let source = Box::new(hub_error(500, None, None));
            Error::Refused { file, attempts, elapsed, source }
        }
        "network" => {
            let (kind, source) = (TransportKind::Interrupted, "connection reset".into());
            let source = HttpError::Transport { url: url(), proxy: None, kind, source };
            Error::RequestFailed { file, attempts, elapsed, source: Box::new(source) }
        }
        "timeout" => Error::DeadlineExceeded { limit: Duration::from_secs(360) },
        "offline" => Error::Offline { what: url().to_string() },
        "notCached" => {
            let source = HubCacheMiss { path: "refs/main".to_owned(), reason: "does not exist" };
            Error::NotCached { repo, revision: Revision::default(), source }
        }
        "localIo" => Error::Io { file, source: io::ErrorKind::PermissionDenied.into() },
        _ => return None,
    })
}

/// Returns an error response of the Hub with the given status, `X-Error-Code` (such as `GatedRepo`) and
/// `Retry-After`, the source of many variants of [`Error`].
#[must_use]
pub fn hub_error(status: u16, code: Option<&str>, retry_after: Option<Duration>) -> HubError {
    HubError {
        url: url(),
        status,
        code: code.map(str::to_owned),
        message: None,
        request_id: None,
        retry_after,
        commit: None,
        is_cross_origin: false,
    }
}

/// The URL in all errors.
fn url() -> SafeUrl {
    let url = Url::parse("https://huggingface.co/org/model/resolve/main/model.safetensors");
    url.map_or_else(|_| SafeUrl::default(), |url| SafeUrl::from(&url))
}
