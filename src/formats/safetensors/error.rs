//! The errors of an index.

use thiserror::Error;

use crate::formats::{DetectedFormat, PathError};

/// The error of an index that is not valid, or that disagrees with its shards.
///
/// Text from the file is cut to 200 characters, as in [`HeaderError`](crate::formats::HeaderError).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A file in another format.
    #[error("the file is not an index: it starts like {detected}")]
    NotAnIndex {
        /// The format that the file seems to have.
        detected: DetectedFormat,
    },
    /// An index with the marks of an unresolved merge.
    #[error("the index holds an unresolved merge conflict at line {line}")]
    MergeConflict {
        /// The line of the first mark, counted from 1.
        line: usize,
    },
    /// An index that is not JSON of the expected structure.
    #[error("the index is not valid JSON of its kind: {message}")]
    Json {
        /// The reason, with line and column.
        message: String,
    },
    /// An index without a `weight_map`.
    #[error("the index has no `weight_map`")]
    NoWeightMap,
    /// An index without tensors.
    #[error("the `weight_map` of the index is empty")]
    EmptyWeightMap,
    /// A tensor that the index lists twice.
    #[error("tensor `{tensor}` occurs twice in the index")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
    },
    /// A shard name that is not a plain relative path.
    #[error("the index lists tensor `{tensor}` in a shard with an unsafe name")]
    UnsafeShardName {
        /// The name of the tensor.
        tensor: String,
        /// The broken rule of the path.
        source: PathError,
    },
    /// A shard name without the extension of safetensors files.
    #[error("the index lists tensor `{tensor}` in `{shard}`, which is not a safetensors file")]
    NotSafetensors {
        /// The name of the tensor.
        tensor: String,
        /// The name of the shard.
        shard: String,
    },
    /// An index with too many shards.
    #[error("the index names more than {limit} shards")]
    TooManyShards {
        /// The largest accepted number of shards.
        limit: usize,
    },
    /// A tensor in two shards.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    InTwoShards {
        /// The name of the tensor.
        tensor: String,
        /// The name of one shard.
        first: String,
        /// The name of the other shard.
        second: String,
    },
    /// A tensor of the index that is in no shard.
    #[error("the index lists tensor `{tensor}` in `{shard}`, but no shard contains it")]
    Missing {
        /// The name of the tensor.
        tensor: String,
        /// The name of the shard that the index lists.
        shard: String,
    },
    /// A number of parameters that does not fit in 64 bits.
    #[error("the parameters of the shards do not fit in 64 bits, at tensor `{tensor}`")]
    CountOverflow {
        /// The name of the tensor at which the sum overflows.
        tensor: String,
    },
    /// A shard whose header was not given.
    #[error("the index names shard `{shard}`, whose header is missing")]
    MissingHeader {
        /// The name of the shard.
        shard: String,
    },
    /// A shard whose header was given more than once.
    #[error("the header of shard `{shard}` was given twice")]
    DuplicateHeader {
        /// The name of the shard.
        shard: String,
    },
    /// An empty list of headers.
    #[error("there are no headers")]
    NoHeaders,
}

impl IndexError {
    /// Creates the error of a text with offsets that do not fit in 32 bits.
    pub(super) fn too_long() -> Self {
        Self::Json { message: "longer than 4 GiB".to_owned() }
    }
}
