//! What can be wrong or odd about a set of weights.

use std::error::Error as StdError;

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{HeaderError, IndexError, chain};

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
    BadHeader {
        file: String,
        #[serde(serialize_with = "as_text")]
        reason: HeaderError,
    },
    #[error("`{file}` is not a valid index: {}", chain(reason))]
    BadIndex {
        file: String,
        #[serde(serialize_with = "as_text")]
        reason: IndexError,
    },
    #[error("the index names `{file}`, which is not there")]
    NoFile { file: String },
    /// Nothing is known of the file: the server or the network failed.
    #[error("`{file}` could not be read: {reason}")]
    NotRead { file: String, reason: String },
    /// It would be counted twice.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    InTwoShards { tensor: String, first: String, second: String },
    #[error("the index puts tensor `{tensor}` into `{shard}`, but no shard holds it")]
    Missing { tensor: String, shard: String },
    #[error("the shards hold more than 64 bits can count")]
    Overflow,
    /// Loaders that go by the index pass it over.
    #[error("`{shard}` holds tensor `{tensor}`, which the index does not name")]
    NotInIndex { tensor: String, shard: String },
    #[error("tensor `{tensor}` is in `{found}`, not in `{indexed}` as the index says")]
    OtherShard { tensor: String, indexed: String, found: String },
    /// Of `total_size`.
    #[error("the index declares {declared} bytes of tensors, but they have {found}")]
    TotalSize { declared: u64, found: u64 },
    /// Of `total_parameters`, which an index or the metadata of a file may have.
    #[error("the file declares {declared} parameters, but has {found}")]
    TotalParameters { declared: u64, found: u64 },
    /// Its width is not known, either.
    #[error("dtype `{dtype}` is not known; the sizes of its tensors ({tensors}) are not checked")]
    UnknownDtype { dtype: String, tensors: u64 },
    #[error(
        "by their names there are {of} shards `{shards}`, but the index names {named} of them; number {first} is the first that it does not"
    )]
    NumberMissing { shards: String, of: u64, named: u64, first: u64 },
    #[error("`{shard}` is beyond the {of} shards that its name counts from {first} on")]
    NumberBeyond { shard: String, of: u64, first: u64 },
    #[error("`{first}` and `{second}` have the same number")]
    NumberTwice { first: String, second: String },
    #[error("the names `{first}` and `{second}` differ in how many shards there are")]
    NumberOf { first: String, second: String },
    /// It is mostly of another split of the same model. Loaders pass it over; downloads do not.
    #[error("`{shard}` is there, but the index does not name it")]
    LeftOver { shard: String },
    /// An output embedding, dropped when the weights were saved.
    #[error(
        "the index puts tensor `{tensor}` into `{shard}`, but no shard holds it: it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    DroppedTied { tensor: String, shard: String, stored: String },
    #[error(
        "no output embedding is stored, though it is not tied to `{stored}` (`tie_word_embeddings`)"
    )]
    NoOutput { stored: String },
    /// It may say how weights are packed, and whether embeddings are tied.
    #[error("`{file}` is passed over, and packed weights are counted as stored: {message}")]
    Config { file: String, message: String },
    #[error("no output embedding is stored: it is tied to `{stored}` (`tie_word_embeddings`)")]
    Tied { stored: String },
    #[error(
        "`{tensor}` is stored and counted, though it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    TiedTwice { tensor: String, stored: String },
    /// They could be of several.
    #[error("the server does not say of which commit its files are")]
    NotPinned,
    /// The weights are not where most repos have them, and only a part of the repo could be searched.
    #[error(
        "only what was downloaded was searched; the repo may hold the weights that are the model"
    )]
    PartlyListed,
    #[error("{findings} more of that kind")]
    More { findings: u64 },
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
            Self::BadHeader { .. }
            | Self::BadIndex { .. }
            | Self::NoFile { .. }
            | Self::NotRead { .. }
            | Self::InTwoShards { .. }
            | Self::Missing { .. }
            | Self::Overflow => Severity::Error,
            Self::Tied { .. } | Self::TiedTwice { .. } | Self::NotPinned | Self::More { .. } => {
                Severity::Note
            }
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
        more => listed.push(Finding::More { findings: more }),
    }
    listed
}

fn as_text<S: Serializer>(error: &impl StdError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&chain(error))
}
