//! Errors of indexes.

use thiserror::Error;

use crate::formats::{DetectedFormat, PathError};

/// The error returned for an index that is invalid or inconsistent with its shards.
///
/// Text from the file is truncated to 200 characters, as in [`HeaderError`](crate::formats::HeaderError).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file is in a different format.
    #[error("the file looks like {detected}")]
    NotAnIndex {
        /// The format that the file appears to have.
        detected: DetectedFormat,
    },
    /// The index contains an unresolved merge conflict.
    #[error("the index contains an unresolved merge conflict at line {line}")]
    MergeConflict {
        /// The line of the first conflict marker, counted from 1.
        line: usize,
    },
    /// The index is not JSON with the expected structure.
    #[error("the index is malformed: {message}")]
    InvalidJson {
        /// The reason, with line and column.
        message: String,
    },
    /// The index has no `weight_map`.
    #[error("the index has no `weight_map`")]
    NoWeightMap,
    /// The index lists no tensors.
    #[error("the `weight_map` of the index is empty")]
    EmptyWeightMap,
    /// The index lists a tensor twice.
    #[error("tensor `{tensor}` appears twice in the index")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
    },
    /// A shard name is not a safe relative path.
    #[error("the index lists tensor `{tensor}` in a shard with an unsafe name")]
    UnsafeShardName {
        /// The name of the tensor.
        tensor: String,
        /// The violated rule for paths.
        source: PathError,
    },
    /// A shard name does not have the extension that the name of the index implies.
    #[error("the index lists tensor `{tensor}` in `{shard}`, which is not a `{extension}` file")]
    UnexpectedExtension {
        /// The name of the tensor.
        tensor: String,
        /// The name of the shard.
        shard: String,
        /// The expected extension.
        extension: &'static str,
    },
    /// The index lists too many shards.
    #[error("the index lists more than {limit} shards")]
    TooManyShards {
        /// The maximum number of shards.
        limit: usize,
    },
    /// Two shards contain the same tensor.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    TensorInTwoShards {
        /// The name of the tensor.
        tensor: String,
        /// The name of one shard.
        first: String,
        /// The name of the other shard.
        second: String,
    },
    /// The index lists a tensor that no shard contains.
    #[error("the index lists tensor `{tensor}` in `{shard}`, but no shard contains it")]
    MissingTensor {
        /// The name of the tensor.
        tensor: String,
        /// The shard in which the index lists it.
        shard: String,
    },
    /// The parameter count overflows 64 bits.
    #[error("the parameter count overflows 64 bits at tensor `{tensor}`")]
    CountOverflow {
        /// The tensor at which the sum overflowed.
        tensor: String,
    },
    /// The header of a shard is missing.
    #[error("the index lists shard `{shard}`, but its header is missing")]
    MissingHeader {
        /// The name of the shard.
        shard: String,
    },
    /// The header of a shard was given more than once.
    #[error("the header of shard `{shard}` was given twice")]
    DuplicateHeader {
        /// The name of the shard.
        shard: String,
    },
    /// No headers were given.
    #[error("no headers were given")]
    NoHeaders,
}

impl IndexError {
    /// Creates the error for a text whose offsets do not fit in 32 bits.
    pub(super) fn too_long() -> Self {
        Self::InvalidJson { message: "it is longer than 4 GiB".to_owned() }
    }
}
