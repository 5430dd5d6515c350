//! Errors of indexes.

use std::error::Error;
use std::fmt;

use crate::formats::{DetectedFormat, PathError, clip};

/// The error returned for an index that is invalid or inconsistent with its shards.
///
/// Text from the file is truncated to 200 characters, as in [`HeaderError`](crate::formats::HeaderError).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexError {
    /// The kind of the violated rule.
    pub kind: IndexErrorKind,
    /// The name of the tensor that violates the rule, if it concerns one.
    pub tensor: Option<String>,
    /// The violated rule, with the names and numbers that violate it.
    pub message: String,
}

/// The kind of rule that an invalid index violates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexErrorKind {
    /// The file is in this format instead of JSON.
    NotAnIndex(DetectedFormat),
    /// The index contains an unresolved merge conflict.
    MergeConflict,
    /// The index is not JSON with the expected structure.
    InvalidJson,
    /// The index has no `weight_map`.
    NoWeightMap,
    /// The index lists no tensors.
    EmptyWeightMap,
    /// The index lists a tensor twice.
    DuplicateTensor,
    /// A shard name is not a safe relative path.
    UnsafeShardName(PathError),
    /// A shard name does not have the extension that the name of the index implies.
    UnexpectedExtension,
    /// The index lists too many shards.
    TooManyShards,
    /// Two shards contain the same tensor.
    TensorInTwoShards,
    /// The index lists a tensor that no shard contains.
    MissingTensor,
    /// The parameter count overflows 64 bits at the tensor.
    CountOverflow,
    /// The header of a shard is missing.
    MissingHeader,
    /// The header of a shard was given more than once.
    DuplicateHeader,
    /// No headers were given.
    NoHeaders,
}

impl IndexError {
    /// Creates an error that concerns no single tensor.
    pub(crate) fn new(kind: IndexErrorKind, message: impl Into<String>) -> Self {
        Self { kind, tensor: None, message: message.into() }
    }

    /// Sets the tensor that the error concerns.
    pub(crate) fn with_tensor(self, name: &str) -> Self {
        Self { tensor: Some(clip(name)), ..self }
    }

    /// Creates the error for an index that is not JSON with the expected structure.
    pub(super) fn invalid_json(reason: &str) -> Self {
        Self::new(IndexErrorKind::InvalidJson, format!("the index is malformed: {reason}"))
    }

    /// Creates the error for a text whose offsets do not fit in 32 bits.
    pub(super) fn too_long() -> Self {
        Self::invalid_json("it is longer than 4 GiB")
    }

    /// Creates the error for a tensor that is listed twice.
    pub(super) fn duplicate(tensor: &str) -> Self {
        let message = format!("tensor `{}` appears twice in the index", clip(tensor));
        Self::new(IndexErrorKind::DuplicateTensor, message).with_tensor(tensor)
    }

    /// Creates the error for more than `limit` shards.
    pub(crate) fn too_many_shards(limit: usize) -> Self {
        let message = format!("the index lists more than {limit} shards");
        Self::new(IndexErrorKind::TooManyShards, message)
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for IndexError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            IndexErrorKind::UnsafeShardName(source) => Some(source),
            _ => None,
        }
    }
}
