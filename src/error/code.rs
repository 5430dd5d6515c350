//! Machine-readable error codes.

use std::time::Duration;

use super::Error;
use crate::http::{HttpError, TransportKind};
use crate::hub::HubError;

impl Error {
    /// Returns a machine-readable code, such as `repoNotFound`. The command uses the same codes in its JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidSource(_) => "invalidSource",
            Self::InvalidEndpoint { .. }
            | Self::InvalidToken
            | Self::InvalidUserAgent
            | Self::MissingHubCache
            | Self::InvalidRequestHeader { .. }
            | Self::HttpClient { .. }
            | Self::UnknownFormat { .. }
            | Self::InvalidProxy(_)
            | Self::NoTlsProvider => "invalidSettings",
            Self::RepoNotFound { .. } => "repoNotFound",
            Self::RevisionNotFound { .. } => "revisionNotFound",
            Self::FileNotFound { .. } => "fileNotFound",
            Self::Gated { .. } => "gated",
            Self::RejectedToken { .. } => "rejectedToken",
            Self::Forbidden { .. } => "forbidden",
            Self::NoWeights { .. } => "noWeights",
            Self::SeveralSets { .. } => "severalSets",
            Self::ShardNotFound { .. } | Self::IncompleteShards { .. } => "missingShards",
            Self::ListingFailed { .. } => "malformedListing",
            Self::NotCached { .. } => "notCached",
            Self::Offline { .. } => "offline",
            Self::InvalidHeader { .. } => "malformedHeader",
            Self::InvalidIndex { .. } => "malformedIndex",
            Self::TooLarge { .. } | Self::HeadersTooLarge { .. } => "tooLarge",
            Self::CommitMismatch { .. } | Self::FileChanged { .. } => "changed",
            Self::Refused { source, .. } if source.status == 429 => "rateLimited",
            Self::Refused { .. } => "refused",
            Self::RequestFailed { source, .. } => fetch_code(source),
            Self::DeadlineExceeded { .. } => "timeout",
            Self::Io { .. } => "localIo",
        }
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

    /// Returns whether a server has rate limited the client.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.code() == "rateLimited"
    }

    /// Returns whether the timeout of the call or of a request has elapsed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.code() == "timeout"
    }

    /// Returns whether the same call may succeed later without any change to the repository or the settings.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RequestFailed { source, .. } => source.is_retryable() || self.is_rate_limited(),
            Self::Refused { source, .. } => source.is_transient(),
            Self::DeadlineExceeded { .. }
            | Self::FileChanged { .. }
            | Self::CommitMismatch { .. } => true,
            _ => false,
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

fn fetch_code(error: &HttpError) -> &'static str {
    match error {
        HttpError::RateLimited { .. } => "rateLimited",
        HttpError::Transport { kind: TransportKind::Timeout, .. } => "timeout",
        _ => "network",
    }
}
