//! The kind of an error: the only classification of errors. Statuses, exit codes, badge texts and hints are tables over
//! it.

use std::fmt;
use std::time::Duration;

use super::Error;
use crate::http::{HttpError, TransportKind};
use crate::hub::HubError;

macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $code:literal,)+) => {
        /// The kind of an [`Error`], for programs that react to errors or count them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the machine-readable code, such as `repoNotFound`. The command, the service, the census and the
            /// Python module use the same codes.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The input is not a repository name, URL or path.
    InvalidSource = "invalidSource",
    /// A setting of the client or of the call is invalid.
    InvalidSettings = "invalidSettings",
    /// The repository does not exist, or is not visible to the caller.
    RepoNotFound = "repoNotFound",
    /// The repository exists, but the revision does not.
    RevisionNotFound = "revisionNotFound",
    /// The file does not exist.
    FileNotFound = "fileNotFound",
    /// The repository is gated, and the caller has not been granted access.
    Gated = "gated",
    /// The Hub rejected the token.
    RejectedToken = "rejectedToken",
    /// Access was denied for another reason.
    Forbidden = "forbidden",
    /// The repository has no weights in a format that the call reads.
    NoWeights = "noWeights",
    /// There are several weight sets, and it is unclear which one is the main model.
    SeveralSets = "severalSets",
    /// Some shards are missing.
    MissingShards = "missingShards",
    /// A file violates its format.
    MalformedHeader = "malformedHeader",
    /// The index is invalid or contradicts the headers.
    MalformedIndex = "malformedIndex",
    /// The file listing cannot be used.
    MalformedListing = "malformedListing",
    /// A file exceeds a limit of the client.
    TooLarge = "tooLarge",
    /// The files changed while they were being read.
    Changed = "changed",
    /// A server has rate limited the client.
    RateLimited = "rateLimited",
    /// A server refused the request for another reason.
    Refused = "refused",
    /// The request failed before a usable response arrived.
    Network = "network",
    /// The timeout of the call or of a request has elapsed.
    Timeout = "timeout",
    /// The source is a URL, and the client is offline.
    Offline = "offline",
    /// The client is offline, and the repository is not cached.
    NotCached = "notCached",
    /// A local file or folder cannot be read.
    LocalIo = "localIo",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Error {
    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidSource(_) => ErrorKind::InvalidSource,
            Self::InvalidEndpoint { .. }
            | Self::InvalidToken
            | Self::InvalidUserAgent
            | Self::MissingHubCache
            | Self::InvalidRequestHeader { .. }
            | Self::HttpClient { .. }
            | Self::UnknownFormat { .. }
            | Self::InvalidProxy(_)
            | Self::NoTlsProvider => ErrorKind::InvalidSettings,
            Self::RepoNotFound { .. } => ErrorKind::RepoNotFound,
            Self::RevisionNotFound { .. } => ErrorKind::RevisionNotFound,
            Self::FileNotFound { .. } => ErrorKind::FileNotFound,
            Self::Gated { .. } => ErrorKind::Gated,
            Self::RejectedToken { .. } => ErrorKind::RejectedToken,
            Self::Forbidden { .. } => ErrorKind::Forbidden,
            Self::NoWeights { .. } => ErrorKind::NoWeights,
            Self::SeveralSets { .. } => ErrorKind::SeveralSets,
            Self::ShardNotFound { .. } | Self::IncompleteShards { .. } => ErrorKind::MissingShards,
            Self::ListingFailed { .. } => ErrorKind::MalformedListing,
            Self::NotCached { .. } => ErrorKind::NotCached,
            Self::Offline { .. } => ErrorKind::Offline,
            Self::InvalidHeader { .. } => ErrorKind::MalformedHeader,
            Self::InvalidIndex { .. } => ErrorKind::MalformedIndex,
            Self::TooLarge { .. } | Self::HeadersTooLarge { .. } => ErrorKind::TooLarge,
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
        use ErrorKind::{InvalidSettings, InvalidSource, Offline};
        matches!(self.kind(), InvalidSource | InvalidSettings | Offline)
    }

    /// Returns whether a server has rate limited the client.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.kind() == ErrorKind::RateLimited
    }

    /// Returns whether the timeout of the call or of a request has elapsed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
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
