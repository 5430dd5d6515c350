//! The errors of an index: which tensor, what was found, what was expected.

use thiserror::Error;

use crate::formats::{DetectedFormat, PathError};

/// Why an index (`*.safetensors.index.json`) is not valid, or not true of its shards.
///
/// Text from the file is bounded as in [`HeaderError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum IndexError {
    #[error("the file is not an index: it starts like {detected}")]
    NotAnIndex { detected: DetectedFormat },
    #[error("the index holds an unresolved merge conflict at line {line}")]
    MergeConflict { line: usize },
    #[error("the index is not valid JSON of its kind: {message}")]
    Json { message: String },
    #[error("the index has no `weight_map`")]
    NoWeightMap,
    #[error("the `weight_map` of the index is empty")]
    EmptyWeightMap,
    #[error("tensor `{tensor}` occurs twice in the index")]
    DuplicateTensor { tensor: String },
    #[error("the index puts tensor `{tensor}` into a shard with an unsafe name")]
    UnsafeShardName { tensor: String, source: PathError },
    #[error("the index puts tensor `{tensor}` into `{shard}`, which is not a safetensors file")]
    NotSafetensors { tensor: String, shard: String },
    #[error("the index names more than {limit} shards")]
    TooManyShards { limit: usize },
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    InTwoShards { tensor: String, first: String, second: String },
    #[error("the index puts tensor `{tensor}` into `{shard}`, but no shard holds it")]
    Missing { tensor: String, shard: String },
    #[error("the parameters of the shards do not fit in 64 bits, at tensor `{tensor}`")]
    CountOverflow { tensor: String },
    #[error("the index names shard `{shard}`, whose header is missing")]
    MissingHeader { shard: String },
    #[error("there are no headers")]
    NoHeaders,
}

impl IndexError {
    /// What is beyond what places in a text are kept in.
    pub(super) fn too_long() -> Self {
        Self::Json { message: "longer than 4 GiB".to_owned() }
    }
}
