//! The kind of an error: the only classification of errors. Statuses, exit codes, badge texts and hints are tables over
//! it.

use std::fmt;

macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $code:literal, $status:literal;)+) => {
        /// The kind of an [`Error`](crate::Error), for programs that react to errors or count them.
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
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code,)+
                }
            }

            /// Returns the documentation of this kind of error.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($($doc),+).trim_start(),)+
                }
            }

            /// Returns the HTTP status that a service should answer with if one of its calls fails with this kind
            /// of error. If a repository that a user requests cannot be read, the user or the authors of the
            /// repository have to act (4xx). Every other error is a problem of the service or the Hub (5xx).
            ///
            /// [`Error::http_status`](crate::Error::http_status) distinguishes transient errors from others.
            pub const fn http_status(self) -> u16 {
                match self {
                    $(Self::$kind => $status,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The input is not a repository name, URL or path.
    InvalidSource = "invalidSource", 400;
    /// An option of the call is invalid: the format is unknown, or the token cannot be sent. A service often takes both
    /// from its users.
    InvalidOption = "invalidOption", 400;
    /// A setting of the client is invalid.
    InvalidSettings = "invalidSettings", 500;
    /// The repository does not exist, or is not visible to the caller.
    RepoNotFound = "repoNotFound", 404;
    /// The repository exists, but the revision does not.
    RevisionNotFound = "revisionNotFound", 404;
    /// The file does not exist.
    FileNotFound = "fileNotFound", 404;
    /// The repository is gated, and the caller has not been granted access.
    Gated = "gated", 403;
    /// The Hub rejected the token.
    RejectedToken = "rejectedToken", 403;
    /// Access was denied for another reason.
    Forbidden = "forbidden", 403;
    /// The repository has no weights in a format that the call reads.
    NoWeights = "noWeights", 422;
    /// Several weight sets may be the main model.
    SeveralSets = "severalSets", 422;
    /// Some shards are missing.
    MissingShards = "missingShards", 422;
    /// A file violates its format.
    MalformedHeader = "malformedHeader", 422;
    /// The index is invalid or contradicts the headers.
    MalformedIndex = "malformedIndex", 422;
    /// The file listing cannot be used.
    MalformedListing = "malformedListing", 502;
    /// A file exceeds a limit of the client.
    TooLarge = "tooLarge", 422;
    /// The files changed while they were being read.
    Changed = "changed", 503;
    /// A server has rate limited the client.
    RateLimited = "rateLimited", 503;
    /// A server refused the request for another reason, or the budget of the call did.
    Refused = "refused", 503;
    /// The request failed before a usable response arrived.
    Network = "network", 503;
    /// The timeout of the call or of a request has elapsed.
    Timeout = "timeout", 504;
    /// The source is a URL, and the client is offline.
    Offline = "offline", 500;
    /// The client is offline, and the repository is not cached.
    NotCached = "notCached", 404;
    /// A local file or folder cannot be read.
    LocalIo = "localIo", 500;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
