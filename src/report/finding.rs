//! What can be wrong or odd about a set of weights.

use std::error::Error as StdError;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::formats::chain;
use crate::formats::safetensors::{HeaderError, IndexError};

/// Something wrong or odd about a set of weights.
///
/// The result of an ordinary call lists those that leave its counts right; a verdict lists all. Text
/// from a file is bounded as in [`HeaderError`], and otherwise as it stands there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum Finding {
    #[error("`{file}` is not a valid safetensors file: {}", chain(reason))]
    MalformedHeader {
        file: String,
        #[serde(serialize_with = "as_text")]
        reason: HeaderError,
    },
    #[error("`{file}` is not a valid index: {}", chain(reason))]
    MalformedIndex {
        file: String,
        #[serde(serialize_with = "as_text")]
        reason: IndexError,
    },
    #[error("the index names `{file}`, which is not there")]
    MissingShard { file: String },
    /// Nothing is known of the file: the server or the network failed.
    #[error("`{file}` could not be read: {reason}")]
    Unreadable { file: String, reason: String },
    /// It would be counted twice.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    DuplicateTensor { tensor: String, first: String, second: String },
    #[error("the index puts tensor `{tensor}` into `{shard}`, but no shard holds it")]
    MissingTensor { tensor: String, shard: String },
    #[error("the shards hold more than 64 bits can count")]
    CountOverflow,
    /// Loaders that go by the index pass it over.
    #[error("`{shard}` holds tensor `{tensor}`, which the index does not name")]
    UnindexedTensor { tensor: String, shard: String },
    #[error("tensor `{tensor}` is in `{found}`, not in `{indexed}` as the index says")]
    WrongShard { tensor: String, indexed: String, found: String },
    /// Of `total_size`.
    #[error("the index declares {declared} bytes of tensors, but they have {found}")]
    TotalSizeMismatch { declared: u64, found: u64 },
    /// Of `total_parameters`, which an index or the metadata of a file may have.
    #[error("the file declares {declared} parameters, but has {found}")]
    TotalParametersMismatch { declared: u64, found: u64 },
    /// Its width is not known, either.
    #[error("dtype `{dtype}` is not known; the sizes of its tensors ({tensors}) are not checked")]
    UnknownDtype { dtype: String, tensors: u64 },
    #[error(
        "by their names there are {of} shards `{shards}`, but the index names {named} of them; number {first} is the first that it does not"
    )]
    ShardNumberMissing { shards: String, of: u64, named: u64, first: u64 },
    #[error("`{shard}` is beyond the {of} shards that its name counts from {first} on")]
    ShardNumberOutOfRange { shard: String, of: u64, first: u64 },
    #[error("`{first}` and `{second}` have the same number")]
    DuplicateShardNumber { first: String, second: String },
    #[error("the names `{first}` and `{second}` differ in how many shards there are")]
    ShardTotalMismatch { first: String, second: String },
    /// It is mostly of another split of the same model. Loaders pass it over; downloads do not.
    #[error("`{shard}` is there, but the index does not name it")]
    UnindexedShard { shard: String },
    /// An output embedding, dropped when the weights were saved.
    #[error(
        "the index puts tensor `{tensor}` into `{shard}`, but no shard holds it: it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    DroppedTiedEmbedding { tensor: String, shard: String, stored: String },
    #[error(
        "no output embedding is stored, though it is not tied to `{stored}` (`tie_word_embeddings`)"
    )]
    MissingOutputEmbedding { stored: String },
    /// It may say how weights are packed, and whether embeddings are tied.
    #[error("`{file}` is passed over, and packed weights are counted as stored: {message}")]
    UnusableConfig { file: String, message: String },
    #[error("no output embedding is stored: it is tied to `{stored}` (`tie_word_embeddings`)")]
    TiedEmbedding { stored: String },
    #[error(
        "`{tensor}` is stored and counted, though it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    TiedEmbeddingStored { tensor: String, stored: String },
    /// They could be of several.
    #[error("the server does not say of which commit its files are")]
    NotPinned,
    /// The weights are not where most repos have them, and only a part of the repo could be searched.
    #[error(
        "only what was downloaded was searched; the repo may hold the weights that are the model"
    )]
    PartialListing,
    #[error("{findings} more of that kind")]
    MoreFindings { findings: u64 },
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Explains what could be taken for a fault.
    Note,
    /// Wrong, but each of the weights is there once.
    Warning,
    /// Weights are broken, missing or in doubt, or could not be checked.
    Error,
}

impl Finding {
    /// How much it matters.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::MalformedHeader { .. }
            | Self::MalformedIndex { .. }
            | Self::MissingShard { .. }
            | Self::Unreadable { .. }
            | Self::DuplicateTensor { .. }
            | Self::MissingTensor { .. }
            | Self::CountOverflow => Severity::Error,
            Self::TiedEmbedding { .. }
            | Self::TiedEmbeddingStored { .. }
            | Self::NotPinned
            | Self::MoreFindings { .. } => Severity::Note,
            _ => Severity::Warning,
        }
    }
}

/// The first findings, and how many more there are: a file may give cause for as many as it likes.
pub(crate) fn bounded(mut findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    /// The most findings of a kind that are listed one by one.
    const MOST_FINDINGS: usize = 1_000;

    let mut listed: Vec<_> = findings.by_ref().take(MOST_FINDINGS).collect();
    match findings.count() as u64 {
        0 => {}
        more => listed.push(Finding::MoreFindings { findings: more }),
    }
    listed
}

fn as_text<S: Serializer>(error: &impl StdError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&chain(error))
}
