//! The error of a call, with the repository or file that it concerns.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_format::formats::safetensors::IndexError;
use hf_meta_format::formats::weight_sets::{UnsupportedWeights, WeightSet};
use hf_meta_format::formats::{HeaderError, HeaderErrorKind, chain};
use hf_meta_format::{RepoId, Revision, SourceError};
use thiserror::Error;

use super::error_kind::ErrorKind;
use super::request_error::{HttpError, HttpErrorKind, HubError, Refusal};

/// An error of any type, shared so that an [`enum@Error`] can be cloned.
pub type SharedError = Arc<dyn std::error::Error + Send + Sync>;

/// Shares the cause of an error.
pub fn shared(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SharedError {
    cause.into().into()
}

/// An error returned by a call.
///
/// A message never repeats the message of its [source](std::error::Error::source), so print the whole chain. No
/// message contains a token, a password or a signed URL. Text from a file or a server is truncated, but may contain
/// control characters: escape it before printing it to a terminal.
///
/// ```
/// use hf_meta_inspect::{Error, ErrorKind};
///
/// fn describe(error: &Error) -> &'static str {
///     match error {
///         error if error.kind() == ErrorKind::Gated => "request access first",
///         error if error.is_not_found() => "not found",
///         error if error.has_no_weights() => "there are no weights to read",
///         error if error.is_transient() => "try again later",
///         _ => "failed",
///     }
/// }
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is not a valid repository name, URL or path.
    #[error(transparent)]
    InvalidSource(#[from] SourceError),
    /// A setting of the client is invalid. The message contains no secrets.
    #[error("{message}")]
    InvalidSetting {
        /// The method of `ClientBuilder`, or `tls_provider` or `http_client`.
        setting: &'static str,
        /// The violated rule.
        message: String,
        /// The underlying error, if any.
        source: Option<SharedError>,
    },
    /// An option of the call is invalid. The message contains no secrets.
    #[error("{message}")]
    InvalidOption {
        /// The option: `token` or `format`.
        option: &'static str,
        /// The violated rule.
        message: String,
    },
    /// A server refused the request. The [kind](ErrorKind) shows whether the repository, the revision, the access or the
    /// token is the reason, or something else, such as a rate limit.
    #[error("{message}")]
    Refused {
        /// The reason.
        kind: ErrorKind,
        /// The message, which names the repository or the file.
        message: String,
        /// The number of attempts made.
        attempts: usize,
        /// The last response.
        source: Arc<HubError>,
    },
    /// The file does not exist.
    #[error("`{file}` not found")]
    FileNotFound {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The cause: a response, an I/O error, or a file missing from a cache.
        source: SharedError,
    },
    /// The index lists a shard that does not exist.
    #[error("shard `{file}` not found")]
    ShardNotFound {
        /// The shard, identified by repository, URL or local path.
        file: String,
        /// The cause: a response or an I/O error.
        source: SharedError,
    },
    /// The repository or folder contains no weights in a supported format. Both standard names of safetensors are
    /// missing, and the file listing, if there is one, lists no other weights.
    #[error(
        "no supported weights in `{location}`{}: neither `{single}` nor `{index}` exists",
        list_formats(other_formats)
    )]
    NoWeights {
        /// The source that was searched.
        location: String,
        /// The path of the standard single file.
        single: String,
        /// The path of the standard index.
        index: String,
        /// Weights found in other formats.
        other_formats: Vec<UnsupportedWeights>,
        /// The cause: the response for the single file or the index, or a file missing from a cache.
        source: SharedError,
    },
    /// There are several weight sets, and their names do not show which one is the main model. Adding them up could
    /// count weights twice. Select one with `Model::path`.
    #[error("`{location}` contains {} weight sets, and it is unclear which one is the main model", sets.len())]
    SeveralSets {
        /// The source that was searched.
        location: String,
        /// The weight sets.
        sets: Vec<WeightSet>,
    },
    /// Some shards are missing, and no index lists them.
    #[error(
        "`{set}` {}",
        describe_shards(*found, *total, first_missing.as_deref())
    )]
    IncompleteShards {
        /// The common path of the shards, with a `*` in place of the number.
        set: String,
        /// The number of shards found.
        found: usize,
        /// The number of shards according to their names.
        total: u32,
        /// The path of the first missing shard; `None` if the defect is a number that appears twice.
        first_missing: Option<String>,
    },
    /// The client is offline, and the repository is not cached at this revision.
    #[error("`{repo}` at `{revision}` is not in the cache, and the client is offline")]
    NotCached {
        /// The repository.
        repo: RepoId,
        /// The branch, tag, ref or commit.
        revision: Revision,
        /// The part that is missing from the cache.
        source: HubCacheMiss,
    },
    /// The source is a URL, which an offline client cannot read.
    #[error("cannot read `{url}` offline")]
    Offline {
        /// The URL.
        url: String,
    },
    /// The file violates its format.
    #[error("`{file}` is not a valid {format} file")]
    InvalidHeader {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The display name of the format, such as `GGUF`.
        format: &'static str,
        /// The violated rule.
        source: HeaderError,
    },
    /// The index is invalid or contradicts the headers of its shards.
    #[error("`{file}` is not a valid shard index")]
    InvalidIndex {
        /// The index, identified by repository, URL or local path.
        file: String,
        /// The violated rule.
        source: IndexError,
    },
    /// The file exceeds one of the client's size limits.
    #[error("`{file}` exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The headers of all shards together exceed `max_total_header_bytes`.
    #[error("the headers exceed the total limit of {limit} bytes, reached at `{file}`")]
    HeadersTooLarge {
        /// The file at which the limit was exceeded.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The files changed while they were being read: their commit or their size.
    #[error("{message}")]
    Changed {
        /// The message, which names the file.
        message: String,
    },
    /// No usable response was received.
    #[error("{message}")]
    RequestFailed {
        /// The message, which names the file.
        message: String,
        /// The failure of the last attempt.
        source: Arc<HttpError>,
    },
    /// Files that the program of the caller reads cannot be read.
    #[error("{message}")]
    Reader {
        /// The kind of the error.
        kind: ErrorKind,
        /// The message, which names the file.
        message: String,
        /// The number by which the reader knows the original error.
        number: usize,
    },
    /// A local file or folder cannot be read.
    #[error("failed to read `{file}`")]
    Io {
        /// The path.
        file: String,
        /// The operating system error, an [`io::Error`].
        source: SharedError,
    },
    /// A store of the caller failed to read a file or to list its files.
    #[error("failed to read `{file}`")]
    StoreFailed {
        /// The kind of the error: a timeout, a denied access, or a failure of the network.
        kind: ErrorKind,
        /// The file or the store.
        file: String,
        /// The error of the store, an [`io::Error`].
        source: SharedError,
    },
    /// The `Budget` of the call ended it.
    #[error("the budget of the call is used up")]
    OverBudget {
        /// The reason that the budget gave.
        source: SharedError,
    },
    /// The call exceeded its timeout: `Model::timeout` or
    /// `ClientBuilder::call_timeout`.
    #[error("the call timed out after {} s", limit.as_secs_f64())]
    DeadlineExceeded {
        /// The timeout.
        limit: Duration,
    },
}

/// An entry that is missing from the disk cache of `huggingface_hub`, or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct HubCacheMiss {
    /// The file or folder in the cache.
    pub path: String,
    /// The reason, phrased to follow the path.
    pub reason: &'static str,
}

impl HubCacheMiss {
    #[doc(hidden)]
    pub fn new(path: String, reason: &'static str) -> Self {
        Self { path, reason }
    }
}

/// The error for a quantization that no weights in the repository or folder have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no weights with quantization `{name}`")]
#[non_exhaustive]
pub struct QuantizationNotFound {
    /// The requested name, truncated to 200 characters.
    pub name: String,
    /// The quantizations that are available, without duplicates.
    pub quantizations: Vec<String>,
}

/// Describes the first missing shard as the end of a sentence.
fn describe_shards(found: usize, total: u32, first_missing: Option<&str>) -> String {
    if found > total as usize {
        return format!("has no index, and {found} shards, although the names imply {total}");
    }
    let missing = first_missing.map(|shard| format!("; the first missing one is `{shard}`"));
    let missing = missing.unwrap_or_default();
    format!("is incomplete: found {found} of {total} shards and no index{missing}")
}

/// Lists weights in other formats as the end of a sentence.
fn list_formats(others: &[UnsupportedWeights]) -> String {
    let others = others.iter().map(|UnsupportedWeights { format, files, .. }| match files {
        1 => format!("{format}, 1 file"),
        files => format!("{format}, {files} files"),
    });
    match others.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        others => format!(", only {others}"),
    }
}

impl From<Refusal> for Error {
    fn from(Refusal(source): Refusal) -> Self {
        Self::OverBudget { source }
    }
}

impl Error {
    #[doc(hidden)]
    /// Creates the error of an invalid setting.
    pub fn setting(setting: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidSetting { setting, message: message.into(), source: None }
    }

    #[doc(hidden)]
    /// Wraps an error of the HTTP library about its settings.
    pub fn http_client(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let (setting, source) = ("http_client", Some(shared(source)));
        Self::InvalidSetting { setting, message: "failed to set up the HTTP client".into(), source }
    }

    #[doc(hidden)]
    /// Converts an error from accessing a local file.
    pub fn from_io(file: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::FileNotFound { file, source: shared(source) }
            }
            _ => Self::Io { file, source: shared(source) },
        }
    }

    #[doc(hidden)]
    /// Converts the error of a store that the caller implements.
    pub fn from_store(file: String, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => return Self::FileNotFound { file, source: shared(source) },
            io::ErrorKind::TimedOut => ErrorKind::Timeout,
            io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
            _ => ErrorKind::Network,
        };
        Self::StoreFailed { kind, file, source: shared(source) }
    }

    #[doc(hidden)]
    /// Converts the error of one shard into the error of the call. A shard that is missing from a cache may exist in the
    /// repository.
    #[must_use]
    pub fn of_shard(self) -> Self {
        match self {
            Self::FileNotFound { file, source } if !source.is::<HubCacheMiss>() => {
                Self::ShardNotFound { file, source }
            }
            error => error,
        }
    }

    #[doc(hidden)]
    /// Returns whether a file exceeds one of the client's size limits.
    pub fn is_over_limit(&self) -> bool {
        match self {
            Self::TooLarge { .. } | Self::HeadersTooLarge { .. } => true,
            Self::InvalidHeader { source, .. } => {
                matches!(source.kind, HeaderErrorKind::TooLarge | HeaderErrorKind::OverLimit)
            }
            _ => false,
        }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidSource(_) => ErrorKind::InvalidSource,
            Self::InvalidSetting { .. } => ErrorKind::InvalidSettings,
            Self::InvalidOption { .. } => ErrorKind::InvalidOption,
            Self::Refused { kind, .. }
            | Self::StoreFailed { kind, .. }
            | Self::Reader { kind, .. } => *kind,
            Self::OverBudget { .. } => ErrorKind::Refused,
            Self::FileNotFound { .. } => ErrorKind::FileNotFound,
            // Other programs, and other kinds of pickles, use the extensions of checkpoints.
            Self::NoWeights { .. }
            | Self::InvalidHeader {
                source: HeaderError { kind: HeaderErrorKind::NotACheckpoint, .. },
                ..
            } => ErrorKind::NoWeights,
            Self::SeveralSets { .. } => ErrorKind::SeveralSets,
            Self::ShardNotFound { .. } | Self::IncompleteShards { .. } => ErrorKind::MissingShards,
            Self::NotCached { .. } => ErrorKind::NotCached,
            Self::Offline { .. } => ErrorKind::Offline,
            // The checkpoint may be valid, while no valid header in another format is as large.
            Self::TooLarge { .. }
            | Self::HeadersTooLarge { .. }
            | Self::InvalidHeader {
                format: "PyTorch",
                source: HeaderError { kind: HeaderErrorKind::TooLarge, .. },
                ..
            }
            | Self::InvalidHeader {
                source: HeaderError { kind: HeaderErrorKind::OverLimit, .. },
                ..
            } => ErrorKind::TooLarge,
            Self::InvalidHeader { .. } => ErrorKind::MalformedHeader,
            Self::InvalidIndex { .. } => ErrorKind::MalformedIndex,
            Self::Changed { .. } => ErrorKind::Changed,
            Self::RequestFailed { source, .. } => match source.kind {
                HttpErrorKind::RateLimited { .. } => ErrorKind::RateLimited,
                HttpErrorKind::Timeout => ErrorKind::Timeout,
                HttpErrorKind::EndlessListing | HttpErrorKind::InvalidListing => {
                    ErrorKind::MalformedListing
                }
                _ => ErrorKind::Network,
            },
            Self::DeadlineExceeded { .. } => ErrorKind::Timeout,
            Self::Io { .. } => ErrorKind::LocalIo,
        }
    }

    /// Returns a machine-readable code, such as `repoNotFound`; see [`ErrorKind::code`].
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// Returns the HTTP status that a service should answer with: the [status of the kind](ErrorKind::http_status), or 502 if a
    /// server refused the request, or the network failed, and repeating the call does not help.
    pub fn http_status(&self) -> u16 {
        match self.kind() {
            ErrorKind::Refused | ErrorKind::Network if !self.is_transient() => 502,
            kind => kind.http_status(),
        }
    }

    /// Returns the message followed by those of all causes, separated by colons.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// Returns whether the repository, revision or file does not exist, is not visible to the caller, or, for an
    /// offline client, is not cached.
    pub fn is_not_found(&self) -> bool {
        use ErrorKind::{FileNotFound, NotCached, RepoNotFound, RevisionNotFound};
        matches!(self.kind(), RepoNotFound | RevisionNotFound | FileNotFound | NotCached)
    }

    /// Returns whether the repository exists but has no weights to read, as far as the caller can see.
    pub fn has_no_weights(&self) -> bool {
        self.kind() == ErrorKind::NoWeights
    }

    /// Returns whether access was denied: the repository is gated, access is forbidden, or the token was rejected.
    pub fn is_denied(&self) -> bool {
        use ErrorKind::{Forbidden, Gated, RejectedToken};
        matches!(self.kind(), Gated | RejectedToken | Forbidden)
    }

    /// Returns whether the files themselves are invalid, incomplete or too large. Retrying does not help.
    pub fn is_malformed(&self) -> bool {
        use ErrorKind::{MalformedHeader, MalformedIndex, MissingShards, TooLarge};
        matches!(self.kind(), MalformedHeader | MalformedIndex | TooLarge | MissingShards)
    }

    /// Returns whether the call was invalid, so that nothing was read: a bad source, a bad setting, or a URL while
    /// offline.
    pub fn is_usage(&self) -> bool {
        use ErrorKind::{InvalidOption, InvalidSettings, InvalidSource, Offline};
        matches!(self.kind(), InvalidSource | InvalidOption | InvalidSettings | Offline)
    }

    /// Returns the HTTP status of the response that caused this error, or `None` if no response did.
    pub fn status(&self) -> Option<u16> {
        self.response().map(|response| response.status)
    }

    /// Returns how long to wait before the server accepts requests again, or `None` if the server did not say.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RequestFailed { source, .. } => match source.kind {
                HttpErrorKind::RateLimited { wait } => Some(wait),
                _ => None,
            },
            _ => self.response()?.retry_after,
        }
    }

    /// Returns [`retry_after`](Self::retry_after) in whole seconds, rounded up, for the header `Retry-After`.
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after()?;
        Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)))
    }

    /// Returns whether the same call may succeed later without any change to the repository or the settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RequestFailed { source, .. } if source.is_retryable() => true,
            Self::OverBudget { .. } => true,
            Self::Refused { kind: ErrorKind::Refused, source, .. } => {
                source.is_transient() || source.is_foreign()
            }
            _ => matches!(
                self.kind(),
                ErrorKind::Changed | ErrorKind::RateLimited | ErrorKind::Timeout
            ),
        }
    }

    /// Returns the Hub response that caused this error, or `None` if no response did.
    fn response(&self) -> Option<&HubError> {
        match self {
            Self::Refused { source, .. } => Some(source),
            Self::FileNotFound { source, .. }
            | Self::ShardNotFound { source, .. }
            | Self::NoWeights { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}
