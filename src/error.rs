//! The errors of a call, with the repository or the file that they concern.

mod code;

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::formats::safetensors::{HeaderError, IndexError};
use crate::formats::weight_sets::{OtherWeights, WeightSet};
use crate::http::{HttpError, ProxyError};
use crate::hub::SourceError;
use crate::hub::{CommitSha, EndpointError, HubError, ListingError, RepoId, Revision};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call.
///
/// No message repeats the message of its [source](std::error::Error::source): print the whole chain. No
/// message holds a token, a password or a signed URL. Text from a file or a server has a limited length, but
/// may contain control characters: escape it before you print it on a terminal.
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
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a repository, URL or path.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The endpoint is not the address of a Hub.
    #[error("the endpoint `{text}` cannot be used")]
    Endpoint {
        /// The endpoint without user, password and query, shortened to 200 characters.
        text: String,
        /// The reason.
        source: EndpointError,
    },
    /// The token cannot be sent in an HTTP header. The token itself is left out.
    #[error("the token contains characters that are not allowed in a token")]
    MalformedToken,
    /// The name of the program cannot be sent in an HTTP header.
    #[error("the user agent contains characters that are not allowed in an HTTP header")]
    UserAgent,
    /// The client is offline and has no [`hub_cache`](crate::ClientBuilder::hub_cache).
    #[error("offline mode needs a cache folder")]
    NoCache,
    /// A header of [`ClientBuilder::header`](crate::ClientBuilder::header) cannot be set. Its value is left out.
    #[error("the header `{name}` cannot be set: {reason}")]
    RequestHeader {
        /// The name, shortened to 200 characters.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// The HTTP library rejects the settings, such as a root certificate.
    #[error("the HTTP client cannot be set up")]
    HttpClient {
        /// The reason.
        source: BoxError,
    },
    /// No format has the name that was set by [`Model::format`](crate::Model::format).
    #[error("there is no format `{name}`")]
    UnknownFormat {
        /// The name.
        name: String,
    },
    /// A proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The program has installed no provider for TLS. The feature `rustls-no-provider` needs one.
    #[error("no TLS provider is installed; call `rustls::crypto::CryptoProvider::install_default`")]
    NoTlsProvider,
    /// The repository does not exist, or it is private and this reader has no access.
    #[error("repository `{repo}` not found or not accessible")]
    RepoNotFound {
        /// The repository.
        repo: RepoId,
        /// The response of the Hub.
        source: Box<HubError>,
    },
    /// The repository exists, the revision does not.
    #[error("revision `{revision}` not found in `{repo}`")]
    RevisionNotFound {
        /// The repository.
        repo: RepoId,
        /// The branch, tag, ref or commit.
        revision: Revision,
        /// The response of the Hub.
        source: Box<HubError>,
    },
    /// The repository is gated, and this reader has not been granted access.
    #[error("repository `{repo}` is gated, and this reader has no access")]
    Gated {
        /// The repository.
        repo: RepoId,
        /// The response of the Hub.
        source: Box<HubError>,
    },
    /// The Hub does not know the token, and the repository cannot be read without it.
    #[error("the token is not valid")]
    RejectedToken {
        /// The response of the Hub.
        source: Box<HubError>,
    },
    /// Access to the file is denied for another reason, which the response may state.
    #[error("access to `{file}` is denied")]
    Forbidden {
        /// The file by its repository, URL or path.
        file: String,
        /// The response of the server.
        source: Box<HubError>,
    },
    /// The file does not exist.
    #[error("`{file}` not found")]
    FileNotFound {
        /// The file by its repository, URL or path.
        file: String,
        /// The reason: a response, an I/O error, or what a cache lacks.
        source: BoxError,
    },
    /// The index names a shard that does not exist.
    #[error("shard `{file}` not found")]
    MissingShard {
        /// The file by its repository, URL or path.
        file: String,
        /// The reason: a response or an I/O error.
        source: BoxError,
    },
    /// There are no safetensors weights under the two usual names, nor under any other name that could be
    /// listed.
    #[error(
        "no safetensors weights in `{place}`{}: neither `{single}` nor `{index}` exists",
        list_formats(instead)
    )]
    NoSafetensors {
        /// The source that was searched.
        place: String,
        /// The path of the usual single file.
        single: String,
        /// The path of the usual index.
        index: String,
        /// Weights in other formats.
        instead: Vec<OtherWeights>,
        /// The response for the single file or the index.
        source: BoxError,
    },
    /// There are several sets of weights, and no name shows which of them is the model. Their sum would
    /// count some weights twice. Choose one by [`Model::path`](crate::Model::path).
    #[error("`{place}` contains {} sets of weights, and it is unclear which one is the model", sets.len())]
    SeveralSets {
        /// The source that was searched.
        place: String,
        /// The sets.
        sets: Vec<WeightSet>,
    },
    /// Some of the shards are missing, and no index lists them.
    #[error("`{set}` is incomplete: it has {found} of {total} shards and no index")]
    MissingShards {
        /// The common path of the shards, with a `*` in place of the number.
        set: String,
        /// The number of shards that exist.
        found: usize,
        /// The number of shards that their names state.
        total: u32,
    },
    /// The files cannot be listed, so weights under an unusual name cannot be found.
    #[error("the files of `{place}` cannot be listed")]
    Listing {
        /// The repository.
        place: String,
        /// The reason.
        source: ListingError,
    },
    /// The client is offline, and the cache does not have the repository at this revision.
    #[error("`{repo}` at `{revision}` is not in the cache, and the client is offline")]
    NotCached {
        /// The repository.
        repo: RepoId,
        /// The branch, tag, ref or commit.
        revision: Revision,
        /// The part that the cache lacks.
        source: SnapshotError,
    },
    /// The client is offline, and a URL cannot be read from the cache.
    #[error("`{what}` cannot be read offline")]
    Offline {
        /// The URL.
        what: String,
    },
    /// The file violates a rule of the format.
    #[error("`{file}` is not a valid {format} file")]
    Header {
        /// The file by its repository, URL or path.
        file: String,
        /// The name of the format as people write it, such as `GGUF`.
        format: &'static str,
        /// The violated rule.
        source: HeaderError,
    },
    /// The index violates a rule, or contradicts the headers of its shards.
    #[error("`{file}` is not a valid index of its shards")]
    Index {
        /// The index by its repository, URL or path.
        file: String,
        /// The violated rule.
        source: IndexError,
    },
    /// The file is larger than a limit of the client.
    #[error("`{file}` is larger than {limit} bytes")]
    TooLarge {
        /// The file by its repository, URL or path.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The headers of all shards together are larger than
    /// [`headers_limit`](crate::ClientBuilder::headers_limit).
    #[error(
        "the headers are larger than {limit} bytes in total; the limit was reached at `{file}`"
    )]
    TooManyHeaders {
        /// The file whose header exceeds the limit.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The server returned another commit than the one that was asked for, or the branch moved while the
    /// index was read.
    #[error("expected `{file}` of commit {pinned}, got commit {found}")]
    OtherCommit {
        /// The file by its repository.
        file: String,
        /// The commit of the call.
        pinned: CommitSha,
        /// The commit of the response.
        found: CommitSha,
    },
    /// The size of the file changed between two requests.
    #[error("`{file}` changed while it was read: it had {before} bytes, then {after}")]
    Changed {
        /// The file by its repository, URL or path.
        file: String,
        /// The first size in bytes.
        before: u64,
        /// The second size in bytes.
        after: u64,
    },
    /// No usable response arrived.
    #[error("failed to fetch `{file}`{}", describe_attempts(*attempts, *elapsed))]
    Fetch {
        /// The file by its repository, URL or path.
        file: String,
        /// The number of attempts.
        attempts: usize,
        /// The time from the first attempt to the last failure.
        elapsed: Duration,
        /// The failure of the last attempt.
        source: Box<HttpError>,
    },
    /// The server refused the request for a reason that concerns neither the repository nor the reader,
    /// such as a rate limit.
    #[error("failed to fetch `{file}`{}", describe_attempts(*attempts, *elapsed))]
    Refused {
        /// The file by its repository, URL or path.
        file: String,
        /// The number of attempts.
        attempts: usize,
        /// The time from the first attempt to the last failure.
        elapsed: Duration,
        /// The last response.
        source: Box<HubError>,
    },
    /// A local file or folder cannot be read.
    #[error("failed to read `{file}`")]
    Read {
        /// The path.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The call took longer than [`call_timeout`](crate::ClientBuilder::call_timeout).
    #[error("the call took longer than {} s", limit.as_secs_f64())]
    DeadlineExceeded {
        /// The time limit.
        limit: Duration,
    },
}

/// A part that the disk cache of `huggingface_hub` lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct SnapshotError {
    /// The file or folder in the cache.
    pub path: String,
    /// The reason why it cannot be used.
    pub reason: &'static str,
}

/// Weights have other quantizations than the one that a path names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no weights have the quantization `{name}`")]
#[non_exhaustive]
pub struct MissingQuantization {
    /// The name, shortened to 200 characters.
    pub name: String,
    /// The quantizations of the weights in the repository or folder, each once.
    pub quantizations: Vec<String>,
}

/// Describes the attempts of a request, if there was more than one, as the end of a sentence.
fn describe_attempts(attempts: usize, elapsed: Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!(", after {attempts} attempts in {:.1} s", elapsed.as_secs_f64()),
    }
}

/// Lists weights in other formats, as the end of a sentence.
fn list_formats(others: &[OtherWeights]) -> String {
    let others = others.iter().map(|OtherWeights { format, files }| match files {
        1 => format!("{format}, 1 file"),
        files => format!("{format}, {files} files"),
    });
    match others.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        others => format!(", only {others}"),
    }
}

impl Error {
    /// Returns the error of settings that the HTTP library rejects.
    pub(crate) fn http_client(source: impl Into<BoxError>) -> Self {
        Self::HttpClient { source: source.into() }
    }

    /// Returns the error of an access to a local file.
    pub(crate) fn from_io(file: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::FileNotFound { file, source: source.into() }
            }
            _ => Self::Read { file, source },
        }
    }

    /// Returns the error of a call that needs all shards, of which one failed with this error. A cache that lacks a
    /// shard does not show that the repository lacks it.
    pub(crate) fn of_shard(self) -> Self {
        match self {
            Self::FileNotFound { file, source } if !source.is::<SnapshotError>() => {
                Self::MissingShard { file, source }
            }
            error => error,
        }
    }

    /// Returns whether the repository, the revision or the file does not exist, as far as this reader can see.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.code(), "repoNotFound" | "revisionNotFound" | "fileNotFound" | "notCached")
    }

    /// Returns whether the repository exists and has no safetensors weights, as far as this reader can see.
    #[must_use]
    pub fn has_no_weights(&self) -> bool {
        matches!(self, Self::NoSafetensors { .. })
    }

    /// Returns whether access was denied: the repository is gated or closed, or the token is not valid.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Gated { .. } | Self::RejectedToken { .. } | Self::Forbidden { .. })
    }

    /// Returns whether the files themselves are invalid or too large. A retry gives the same error.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(self.code(), "malformedHeader" | "malformedIndex" | "tooLarge" | "missingShards")
    }

    /// Returns whether the call itself was wrong, so that nothing was read.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self.code(), "invalidSource" | "invalidSettings" | "offline")
    }
}
