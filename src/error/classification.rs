//! The kind of each error, and the questions that callers ask about it.

use std::time::Duration;

use super::Error;
use crate::error_kind::ErrorKind;
use crate::formats::{HeaderError, HeaderErrorKind, chain};
use crate::http::{HttpError, HubError, TransportKind};

impl Error {
    /// Returns whether a file exceeds one of the client's size limits.
    pub(crate) fn is_over_limit(&self) -> bool {
        match self {
            Self::TooLarge { .. } | Self::HeadersTooLarge { .. } => true,
            Self::InvalidHeader { source, .. } => source.kind == HeaderErrorKind::TooLarge,
            _ => false,
        }
    }

    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidSource(_) => ErrorKind::InvalidSource,
            Self::InvalidEndpoint { .. }
            | Self::InvalidSetting { .. }
            | Self::MissingHubCache
            | Self::InvalidRequestHeader { .. }
            | Self::HttpClient { .. }
            | Self::InvalidProxy(_)
            | Self::NoTlsProvider => ErrorKind::InvalidSettings,
            Self::InvalidToken | Self::UnknownFormat { .. } => ErrorKind::InvalidOption,
            Self::RepoNotFound { .. } => ErrorKind::RepoNotFound,
            Self::RevisionNotFound { .. } => ErrorKind::RevisionNotFound,
            Self::FileNotFound { .. } => ErrorKind::FileNotFound,
            Self::Gated { .. } => ErrorKind::Gated,
            Self::RejectedToken { .. } => ErrorKind::RejectedToken,
            Self::Forbidden { .. } => ErrorKind::Forbidden,
            // Other programs, and other kinds of pickles, use the extensions of checkpoints.
            Self::NoWeights { .. }
            | Self::InvalidHeader {
                source: HeaderError { kind: HeaderErrorKind::NotACheckpoint, .. },
                ..
            } => ErrorKind::NoWeights,
            Self::SeveralSets { .. } => ErrorKind::SeveralSets,
            Self::ShardNotFound { .. } | Self::IncompleteShards { .. } => ErrorKind::MissingShards,
            Self::ListingFailed { .. } => ErrorKind::MalformedListing,
            Self::NotCached { .. } => ErrorKind::NotCached,
            Self::Offline { .. } => ErrorKind::Offline,
            // The checkpoint may be valid, while no valid header in another format is as large.
            Self::TooLarge { .. }
            | Self::HeadersTooLarge { .. }
            | Self::InvalidHeader {
                format: "PyTorch",
                source: HeaderError { kind: HeaderErrorKind::TooLarge, .. },
                ..
            } => ErrorKind::TooLarge,
            Self::InvalidHeader { .. } => ErrorKind::MalformedHeader,
            Self::InvalidIndex { .. } => ErrorKind::MalformedIndex,
            Self::CommitMismatch { .. } | Self::FileChanged { .. } => ErrorKind::Changed,
            Self::Refused { source, .. } if source.status == 429 => ErrorKind::RateLimited,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::RequestFailed { source, .. } => match **source {
                HttpError::RateLimited { .. } => ErrorKind::RateLimited,
                HttpError::Transport { kind: TransportKind::Timeout, .. } => ErrorKind::Timeout,
                _ => ErrorKind::Network,
            },
            Self::DeadlineExceeded { .. } => ErrorKind::Timeout,
            Self::Io { .. } => ErrorKind::LocalIo,
        }
    }

    /// Returns a machine-readable code, such as `repoNotFound`; see [`ErrorKind::code`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// Returns the HTTP status that a service should answer with: the [status of the kind](ErrorKind::http_status), or 502 if a
    /// server refused the request, or the network failed, and repeating the call does not help.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        match self.kind() {
            ErrorKind::Refused | ErrorKind::Network if !self.is_transient() => 502,
            kind => kind.http_status(),
        }
    }

    /// Returns the message followed by those of all causes, separated by colons.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// Returns whether the repository, revision or file does not exist, is not visible to the caller, or, for an
    /// offline client, is not cached.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        use ErrorKind::{FileNotFound, NotCached, RepoNotFound, RevisionNotFound};
        matches!(self.kind(), RepoNotFound | RevisionNotFound | FileNotFound | NotCached)
    }

    /// Returns whether the repository exists but has no weights to read, as far as the caller can see.
    #[must_use]
    pub fn has_no_weights(&self) -> bool {
        self.kind() == ErrorKind::NoWeights
    }

    /// Returns whether access was denied: the repository is gated, access is forbidden, or the token was rejected.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        use ErrorKind::{Forbidden, Gated, RejectedToken};
        matches!(self.kind(), Gated | RejectedToken | Forbidden)
    }

    /// Returns whether the files themselves are invalid, incomplete or too large. Retrying does not help.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        use ErrorKind::{MalformedHeader, MalformedIndex, MissingShards, TooLarge};
        matches!(self.kind(), MalformedHeader | MalformedIndex | TooLarge | MissingShards)
    }

    /// Returns whether the call was invalid, so that nothing was read: a bad source, a bad setting, or a URL while
    /// offline.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        use ErrorKind::{InvalidOption, InvalidSettings, InvalidSource, Offline};
        matches!(self.kind(), InvalidSource | InvalidOption | InvalidSettings | Offline)
    }

    /// Returns the HTTP status of the response that caused this error, or `None` if no response did.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.response().map(|response| response.status)
    }

    /// Returns how long to wait before the server accepts requests again, or `None` if the server did not say.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RequestFailed { source, .. } => match &**source {
                HttpError::RateLimited { wait, .. } => Some(*wait),
                _ => None,
            },
            _ => self.response()?.retry_after,
        }
    }

    /// Returns [`retry_after`](Self::retry_after) in whole seconds, rounded up, for the header `Retry-After`.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after()?;
        Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)))
    }

    /// Returns whether the same call may succeed later without any change to the repository or the settings.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RequestFailed { source, .. } if source.is_retryable() => true,
            Self::Refused { source, .. } if source.is_transient() || source.is_foreign() => true,
            _ => matches!(
                self.kind(),
                ErrorKind::Changed | ErrorKind::RateLimited | ErrorKind::Timeout
            ),
        }
    }

    /// Returns the Hub response that caused this error, or `None` if no response did.
    fn response(&self) -> Option<&HubError> {
        match self {
            Self::RepoNotFound { source, .. }
            | Self::RevisionNotFound { source, .. }
            | Self::Gated { source, .. }
            | Self::RejectedToken { source }
            | Self::Forbidden { source, .. }
            | Self::Refused { source, .. } => Some(source),
            Self::FileNotFound { source, .. }
            | Self::ShardNotFound { source, .. }
            | Self::NoWeights { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}
