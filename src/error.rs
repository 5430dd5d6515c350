//! The errors of a call, with the repo or the file where they are about one.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::formats::safetensors::{HeaderError, IndexError};
use crate::formats::weight_sets::{OtherWeights, WeightSet};
use crate::http::HttpError;
use crate::hub::SourceError;
use crate::hub::{CommitSha, EndpointError, HubError, ListingError, RepoId, Revision};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call gave no result.
///
/// No message repeats that of its [source](std::error::Error::source): print the whole chain. No
/// message holds a token, a password or a signed URL. Text from a file or a server is bounded, but
/// otherwise as it came: escape it before it meets a terminal.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum Error {
    /// The text names neither a repo nor a URL nor a local file.
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the endpoint cannot be used")]
    Endpoint { source: EndpointError },
    /// The token itself is left out.
    #[error("the token holds characters that no token has")]
    MalformedToken,
    #[error("the name of the program holds characters that no header may hold")]
    UserAgent,
    #[error("no cache is known that could be read offline")]
    NoCache,
    #[error("repository `{repo}` not found, or not open to this reader")]
    RepoNotFound { repo: RepoId, source: Box<HubError> },
    #[error("revision `{revision}` not found in `{repo}`")]
    RevisionNotFound { repo: RepoId, revision: Revision, source: Box<HubError> },
    #[error("access to `{repo}` is restricted to readers who were granted it")]
    Gated { repo: RepoId, source: Box<HubError> },
    #[error("the token is not valid")]
    RejectedToken { source: Box<HubError> },
    #[error("access to `{file}` is denied")]
    Forbidden { file: String, source: Box<HubError> },
    #[error("`{file}` not found")]
    FileNotFound { file: String, source: BoxError },
    /// Neither under the two names that most weights have nor, where the files could be listed, under any
    /// other; `instead` is what was found in other formats.
    #[error(
        "no safetensors weights in `{place}`: neither `{single}` nor `{index}` is there{}",
        in_place(instead)
    )]
    NoSafetensors {
        place: String,
        single: String,
        index: String,
        instead: Vec<OtherWeights>,
        source: BoxError,
    },
    /// Adding them up would count some weights twice. One is read by its path.
    #[error("`{place}` holds {} sets of weights, and none by the name of the model", sets.len())]
    SeveralSets { place: String, sets: Vec<WeightSet> },
    #[error("`{set}` is not complete: of {total} shards there are {found}, and no index")]
    MissingShards { set: String, found: usize, total: u32 },
    /// The files themselves may be there, under names that could not be found out.
    #[error("the files of `{place}` cannot be listed")]
    Listing { place: String, source: ListingError },
    #[error("`{repo}` at `{revision}` is not in the cache, and nothing else is read offline")]
    NotCached { repo: RepoId, revision: Revision, source: SnapshotError },
    #[error("`{what}` is not read offline")]
    Offline { what: String },
    #[error("`{file}` is not a valid safetensors file")]
    Header { file: String, source: HeaderError },
    #[error("`{file}` is not a valid index of its shards")]
    Index { file: String, source: IndexError },
    #[error("`{file}` has more than {limit} bytes")]
    TooLarge { file: String, limit: u64 },
    #[error("the headers up to that of `{file}` have more than {limit} bytes together")]
    TooManyHeaders { file: String, limit: u64 },
    /// A server that does not keep to the commit that it was asked for, or a push between two attempts at
    /// an index of which the first broke off.
    #[error("asked for `{file}` of commit {pinned}, got that of {found}")]
    OtherCommit { file: String, pinned: CommitSha, found: CommitSha },
    #[error("`{file}` changed while it was read: it had {before} bytes, then {after}")]
    Changed { file: String, before: u64, after: u64 },
    #[error("failed to fetch `{file}`{}", tries(*attempts, *elapsed))]
    Fetch { file: String, attempts: usize, elapsed: Duration, source: Box<HttpError> },
    /// A status that tells nothing of the repo or of the reader, such as a rate limit.
    #[error("failed to fetch `{file}`{}", tries(*attempts, *elapsed))]
    Refused { file: String, attempts: usize, elapsed: Duration, source: Box<HubError> },
    #[error("failed to read `{file}`")]
    Read { file: String, source: io::Error },
    #[error("the call took longer than {} s", limit.as_secs_f64())]
    DeadlineExceeded { limit: Duration },
}

/// A part that the disk cache of `huggingface_hub` lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct SnapshotError {
    /// A file or a folder in the cache.
    pub path: String,
    /// The reason why it cannot be used.
    pub reason: &'static str,
}

/// What was tried, where it was more than once.
fn tries(attempts: usize, elapsed: Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        _ => format!(", after {attempts} attempts in {:.1} s", elapsed.as_secs_f64()),
    }
}

/// What is there in other formats, as the end of a sentence.
fn in_place(others: &[OtherWeights]) -> String {
    let others = others.iter().map(|OtherWeights { format, files }| match files {
        1 => format!("{format}, 1 file"),
        files => format!("{format}, {files} files"),
    });
    match others.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        others => format!(", but {others}"),
    }
}

impl Error {
    /// What went wrong with a local file.
    pub(crate) fn from_io(file: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::FileNotFound { file, source: source.into() }
            }
            _ => Self::Read { file, source },
        }
    }

    /// Whether the repo, the revision or the file is not there, as far as this reader may know.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::RepoNotFound { .. }
                | Self::RevisionNotFound { .. }
                | Self::FileNotFound { .. }
                | Self::NoSafetensors { .. }
                | Self::NotCached { .. }
        )
    }

    /// Whether the reader lacks access: a gated or closed repo, or a token that is not valid.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Gated { .. } | Self::RejectedToken { .. } | Self::Forbidden { .. })
    }

    /// Whether the files themselves are wrong. Reading them again gives the same.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(
            self,
            Self::Header { .. }
                | Self::Index { .. }
                | Self::TooLarge { .. }
                | Self::TooManyHeaders { .. }
                | Self::MissingShards { .. }
        )
    }

    /// Whether the call was wrong before anything was asked for.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Source(_)
                | Self::Endpoint { .. }
                | Self::MalformedToken
                | Self::UserAgent
                | Self::NoCache
                | Self::Offline { .. }
        )
    }
}
