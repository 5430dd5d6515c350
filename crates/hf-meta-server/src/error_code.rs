//! The codes of failures, with their HTTP status and their lifetime.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Serialize;

use super::reply::CachePolicy;
use hf_meta::{Error, ErrorKind, ListingError};

/// A machine-readable reason for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ErrorCode {
    /// The repository name, the revision or the path is invalid.
    Invalid,
    /// The query is too long.
    QueryTooLong,
    /// The repository, revision or file does not exist or is private.
    NotFound,
    /// The repository contains no safetensors weights.
    NoSafetensors,
    /// The repository contains several weight sets. Select one with `path`.
    SeveralSets,
    /// The repository is gated or private, or this service does not read repositories of its owner.
    Denied,
    /// The files are invalid.
    Malformed,
    /// The weights are split into more files than this service reads.
    TooManyFiles,
    /// The Hub is currently unavailable.
    Unavailable,
    /// The lookup is in progress.
    Pending,
    /// This client, or all clients together, sent too many requests.
    Busy,
}

/// The lifetime of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureLifetime {
    /// A failure that lasts until the repository changes.
    Permanent,
    /// A failure that may be over soon.
    Transient,
    /// A rejection. It concerns one client and must not be shown to others.
    Rejected,
}

impl From<&Error> for ErrorCode {
    fn from(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::SeveralSets => Self::SeveralSets,
            ErrorKind::NoWeights => Self::NoSafetensors,
            ErrorKind::RepoNotFound
            | ErrorKind::RevisionNotFound
            | ErrorKind::FileNotFound
            | ErrorKind::NotCached => Self::NotFound,
            ErrorKind::Gated | ErrorKind::RejectedToken | ErrorKind::Forbidden => Self::Denied,
            ErrorKind::MalformedHeader
            | ErrorKind::MalformedIndex
            | ErrorKind::MissingShards
            | ErrorKind::TooLarge => Self::Malformed,
            ErrorKind::InvalidSource
            | ErrorKind::InvalidOption
            | ErrorKind::InvalidSettings
            | ErrorKind::Offline => Self::Invalid,
            ErrorKind::MalformedListing if is_endless_listing(error) => Self::TooManyFiles,
            _ => Self::Unavailable,
        }
    }
}

/// Returns whether the repository has too many files to list. Listing the same commit later would find as many.
fn is_endless_listing(error: &Error) -> bool {
    use ListingError::{EndlessPages, TooManyFiles};
    matches!(error, Error::ListingFailed { source: TooManyFiles { .. } | EndlessPages, .. })
}

impl ErrorCode {
    /// Returns the status of a JSON response with this code.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::QueryTooLong => StatusCode::URI_TOO_LONG,
            Self::NotFound | Self::NoSafetensors => StatusCode::NOT_FOUND,
            Self::SeveralSets => StatusCode::MULTIPLE_CHOICES,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Malformed | Self::TooManyFiles => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable => StatusCode::BAD_GATEWAY,
            Self::Pending => StatusCode::ACCEPTED,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Returns whether a later lookup could succeed without a change of the repository.
    pub(super) fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Invalid)
    }

    /// Returns how long a lookup's failure with this code is remembered. A Hub that sends garbage may recover, so
    /// malformed files are read again as soon as those that could not be read.
    pub(super) fn lifetime(self) -> FailureLifetime {
        match self {
            Self::Unavailable | Self::Invalid | Self::Malformed | Self::Pending => {
                FailureLifetime::Transient
            }
            Self::Busy => FailureLifetime::Rejected,
            _ => FailureLifetime::Permanent,
        }
    }
}

impl FailureLifetime {
    /// Returns the time for which the service remembers the failure of a lookup.
    pub(super) fn ttl(self) -> Duration {
        Duration::from_secs(if self == Self::Permanent { 60 } else { 10 })
    }

    /// Returns the cache policy of a failure as JSON.
    pub(super) fn json_policy(self) -> CachePolicy {
        match self {
            Self::Permanent => CachePolicy::Short(self.ttl()),
            Self::Transient => CachePolicy::Short(Duration::from_secs(5)),
            Self::Rejected => CachePolicy::Private,
        }
    }

    /// Returns the cache policy of a failure as a badge, and so the minimum time between requests of an image proxy.
    pub(super) fn badge_policy(self) -> CachePolicy {
        match self {
            Self::Permanent | Self::Transient => CachePolicy::Short(self.ttl()),
            Self::Rejected => CachePolicy::Private,
        }
    }
}
