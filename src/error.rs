//! The error of a call, with the repository or file that it concerns.

mod classification;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::formats::safetensors::{HeaderError, IndexError};
use crate::formats::weight_sets::{UnsupportedWeights, WeightSet};
use crate::http::{HttpError, HubError, ProxyError};
use crate::hub::{CommitSha, EndpointError, ListingError, RepoId, Revision, SourceError};

/// An error of any type, shared so that an [`Error`] can be cloned.
pub(crate) type SharedError = Arc<dyn std::error::Error + Send + Sync>;

/// Shares the cause of an error.
pub(crate) fn shared(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SharedError {
    cause.into().into()
}

/// An error returned by a call.
///
/// A message never repeats the message of its [source](std::error::Error::source), so print the whole chain. No
/// message contains a token, a password or a signed URL. Text from a file or a server is truncated, but may contain
/// control characters: escape it before printing it to a terminal.
///
/// ```no_run
/// use hf_meta::{Client, Error};
///
/// # async fn example() -> Result<(), Error> {
/// let client = Client::new()?;
/// match client.model("org/name").parse_safetensors_metadata().await {
///     Ok(parsed) => println!("{} parameters", parsed.parameter_count().total()),
///     Err(Error::Gated { repo, .. }) => println!("request access to {repo} first"),
///     Err(error) if error.is_not_found() => println!("not found"),
///     Err(error) if error.has_no_weights() => println!("there are no weights to read"),
///     Err(error) if error.is_transient() => println!("try again later"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is not a valid repository name, URL or path.
    #[error(transparent)]
    InvalidSource(#[from] SourceError),
    /// The endpoint is not a valid Hub URL.
    #[error("cannot use the endpoint `{text}`")]
    #[non_exhaustive]
    InvalidEndpoint {
        /// The endpoint without user, password, query and fragment, truncated to 200 characters.
        text: String,
        /// The underlying error.
        source: EndpointError,
    },
    /// The token cannot be sent in an HTTP header. The token itself is not included.
    #[error("the token contains invalid characters")]
    InvalidToken,
    /// The client is offline and has no [`hub_cache`](crate::ClientBuilder::hub_cache).
    #[error("offline mode requires a cache folder")]
    MissingHubCache,
    /// A header passed to [`ClientBuilder::request_header`](crate::ClientBuilder::request_header) is invalid. Its value is not
    /// included.
    #[error("cannot set the header `{name}`: {reason}")]
    #[non_exhaustive]
    InvalidRequestHeader {
        /// The name of the header, truncated to 200 characters.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// The HTTP library rejected a setting, such as a root certificate.
    #[error("failed to set up the HTTP client")]
    #[non_exhaustive]
    HttpClient {
        /// The underlying error.
        source: SharedError,
    },
    /// A setting of the client is out of range or contradicts another one.
    #[error("invalid `{setting}`: {reason}")]
    #[non_exhaustive]
    InvalidSetting {
        /// The method of [`ClientBuilder`](crate::ClientBuilder).
        setting: &'static str,
        /// The violated rule.
        reason: &'static str,
    },
    /// The format passed to [`Model::format`](crate::Model::format) is unknown.
    #[error("unknown format `{name}`")]
    #[non_exhaustive]
    UnknownFormat {
        /// The name of the format.
        name: String,
    },
    /// A proxy setting is invalid.
    #[error(transparent)]
    InvalidProxy(#[from] ProxyError),
    /// No TLS provider is installed. The feature `rustls-no-provider` requires one.
    #[error("no TLS provider is installed; call `rustls::crypto::CryptoProvider::install_default`")]
    NoTlsProvider,
    /// The repository does not exist, or is private and the caller has no access to it.
    #[error("repository `{repo}` not found or not accessible")]
    #[non_exhaustive]
    RepoNotFound {
        /// The repository.
        repo: RepoId,
        /// The Hub's response.
        source: Cause<HubError>,
    },
    /// The repository exists, but the revision does not.
    #[error("revision `{revision}` not found in `{repo}`")]
    #[non_exhaustive]
    RevisionNotFound {
        /// The repository.
        repo: RepoId,
        /// The branch, tag, ref or commit.
        revision: Revision,
        /// The Hub's response.
        source: Cause<HubError>,
    },
    /// The repository is gated, and the caller has not been granted access.
    #[error("repository `{repo}` is gated, and access has not been granted")]
    #[non_exhaustive]
    Gated {
        /// The repository.
        repo: RepoId,
        /// The Hub's response.
        source: Cause<HubError>,
    },
    /// The Hub rejected the token, and the repository cannot be read without one.
    #[error("the Hub rejected the token")]
    #[non_exhaustive]
    RejectedToken {
        /// The Hub's response.
        source: Cause<HubError>,
    },
    /// Access to the file was denied for another reason, which the response may state.
    #[error("access to `{file}` denied")]
    #[non_exhaustive]
    Forbidden {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The server's response.
        source: Cause<HubError>,
    },
    /// The file does not exist.
    #[error("`{file}` not found")]
    #[non_exhaustive]
    FileNotFound {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The cause: a response, an I/O error, or a file missing from a cache.
        source: SharedError,
    },
    /// The index lists a shard that does not exist.
    #[error("shard `{file}` not found")]
    #[non_exhaustive]
    ShardNotFound {
        /// The shard, identified by repository, URL or local path.
        file: String,
        /// The cause: a response or an I/O error.
        source: SharedError,
    },
    /// There are no weights in a format that the call reads: neither under one of the two standard names of
    /// safetensors, nor in the file listing, if there is one.
    #[error(
        "no supported weights in `{location}`{}: neither `{single}` nor `{index}` exists",
        list_formats(other_formats)
    )]
    #[non_exhaustive]
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
    /// count weights twice. Select one with [`Model::path`](crate::Model::path).
    #[error("`{location}` contains {} weight sets, and it is unclear which one is the main model", sets.len())]
    #[non_exhaustive]
    SeveralSets {
        /// The source that was searched.
        location: String,
        /// The weight sets.
        sets: Vec<WeightSet>,
    },
    /// Some shards are missing, and no index lists them.
    #[error(
        "`{set}` is incomplete: found {found} of {total} shards and no index{}",
        describe_missing(first_missing.as_deref())
    )]
    #[non_exhaustive]
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
    /// The files cannot be listed, so weights with nonstandard names cannot be found.
    #[error("failed to list the files of `{location}`")]
    #[non_exhaustive]
    ListingFailed {
        /// The repository.
        location: String,
        /// The underlying error.
        source: ListingError,
    },
    /// The client is offline, and the repository is not cached at this revision.
    #[error("`{repo}` at `{revision}` is not in the cache, and the client is offline")]
    #[non_exhaustive]
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
    #[non_exhaustive]
    Offline {
        /// The URL.
        url: String,
    },
    /// The file violates its format.
    #[error("`{file}` is not a valid {format} file")]
    #[non_exhaustive]
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
    #[non_exhaustive]
    InvalidIndex {
        /// The index, identified by repository, URL or local path.
        file: String,
        /// The violated rule.
        source: IndexError,
    },
    /// The file exceeds one of the client's size limits.
    #[error("`{file}` exceeds the limit of {limit} bytes")]
    #[non_exhaustive]
    TooLarge {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The headers of all shards together exceed [`max_total_header_bytes`](crate::ClientBuilder::max_total_header_bytes).
    #[error("the headers exceed the total limit of {limit} bytes, reached at `{file}`")]
    #[non_exhaustive]
    HeadersTooLarge {
        /// The file at which the limit was exceeded.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The server returned a different commit than requested, or the branch moved while the index was being read.
    #[error("expected `{file}` at commit {pinned}, got commit {found}")]
    #[non_exhaustive]
    CommitMismatch {
        /// The file, identified by its repository.
        file: String,
        /// The commit that the call is pinned to.
        pinned: CommitSha,
        /// The commit in the response.
        found: CommitSha,
    },
    /// The file size changed between two requests.
    #[error("`{file}` changed while being read: its size was {before} bytes, then {after} bytes")]
    #[non_exhaustive]
    FileChanged {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The first size in bytes.
        before: u64,
        /// The second size in bytes.
        after: u64,
    },
    /// No usable response was received.
    #[error("failed to fetch `{file}`{}", describe_attempts(*attempts, *elapsed))]
    #[non_exhaustive]
    RequestFailed {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The number of attempts made.
        attempts: usize,
        /// The time from the first attempt to the last failure.
        elapsed: Duration,
        /// The failure of the last attempt.
        source: Cause<HttpError>,
    },
    /// The server refused the request for a reason unrelated to the repository or the caller's permissions, such as a
    /// rate limit.
    #[error("failed to fetch `{file}`{}", describe_attempts(*attempts, *elapsed))]
    #[non_exhaustive]
    Refused {
        /// The file, identified by repository, URL or local path.
        file: String,
        /// The number of attempts made.
        attempts: usize,
        /// The time from the first attempt to the last failure.
        elapsed: Duration,
        /// The last response.
        source: Cause<HubError>,
    },
    /// A local file or folder cannot be read.
    #[error("failed to read `{file}`")]
    #[non_exhaustive]
    Io {
        /// The path.
        file: String,
        /// The operating system error, an [`io::Error`].
        source: SharedError,
    },
    /// The call exceeded its timeout: [`Model::timeout`](crate::Model::timeout) or
    /// [`ClientBuilder::call_timeout`](crate::ClientBuilder::call_timeout).
    #[error("the call timed out after {} s", limit.as_secs_f64())]
    #[non_exhaustive]
    DeadlineExceeded {
        /// The timeout.
        limit: Duration,
    },
}

/// The cause of an [`Error`](enum@Error), stored on the heap to keep results small.
///
/// Dereferences to the cause. Unlike a `Box`, it is not an error itself, so
/// [`Error::source`](std::error::Error::source) returns the cause, which callers can downcast.
#[derive(Clone, Debug)]
pub struct Cause<T>(Box<T>);

impl<T> Deref for Cause<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> From<Box<T>> for Cause<T> {
    fn from(cause: Box<T>) -> Self {
        Self(cause)
    }
}

impl<T> From<T> for Cause<T> {
    fn from(cause: T) -> Self {
        Self(Box::new(cause))
    }
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

/// Describes the attempts of a request as the end of a sentence, if there was more than one.
fn describe_attempts(attempts: usize, elapsed: Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!(" after {attempts} attempts in {:.1} s", elapsed.as_secs_f64()),
    }
}

/// Describes the first missing shard as the end of a sentence.
fn describe_missing(shard: Option<&str>) -> String {
    shard.map_or_else(String::new, |shard| format!("; the first missing one is `{shard}`"))
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

impl Error {
    /// Wraps an error of the HTTP library about its settings.
    pub(crate) fn http_client(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::HttpClient { source: shared(source) }
    }

    /// Converts an error from accessing a local file.
    pub(crate) fn from_io(file: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::FileNotFound { file, source: shared(source) }
            }
            _ => Self::Io { file, source: shared(source) },
        }
    }

    /// Converts the error of one shard into the error of the call. A shard that is missing from a cache may exist in the
    /// repository.
    pub(crate) fn of_shard(self) -> Self {
        match self {
            Self::FileNotFound { file, source } if !source.is::<HubCacheMiss>() => {
                Self::ShardNotFound { file, source }
            }
            error => error,
        }
    }
}
