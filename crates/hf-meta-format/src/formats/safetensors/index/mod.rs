//! The index of a sharded checkpoint.

mod reader;

use std::error::Error;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use self::reader::IndexReader;
use super::SafetensorsFileHeader;
use crate::formats::names::{MAX_TOTAL_BYTES, NameFinder, NameList, Names};
use crate::formats::{DetectedFormat, PathError, RepoPath, clip, whole_number};

/// The validated index of a sharded checkpoint, `model.safetensors.index.json`.
///
/// Serializes to the JSON in the file, without unknown keys (as in huggingface.js) and without nested objects and
/// arrays in `metadata`: no known writer produces them, and a small nested file could expand to a large value.
///
/// ```
/// use hf_meta_format::SafetensorsIndexJson;
///
/// let json = br#"{"metadata":{"total_size":24},"weight_map":{"w":"model-00001-of-00001.safetensors"}}"#;
/// let index = SafetensorsIndexJson::from_json(json)?;
/// assert_eq!(index.shards()[0].as_str(), "model-00001-of-00001.safetensors");
/// # Ok::<(), hf_meta_format::formats::safetensors::IndexError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsIndexJson {
    dtype: Option<String>,
    metadata: Option<Map<String, Value>>,
    /// Sorted by name.
    shards: Vec<RepoPath>,
    tensors: Names,
    /// For each tensor, the index of its shard, so that each shard name is stored once.
    shard_indices: Vec<u16>,
}

impl SafetensorsIndexJson {
    /// The default maximum size of an index in bytes, the same as in huggingface.js. The largest known index has 60
    /// MB for 497,000 tensors.
    pub const DEFAULT_LIMIT: u64 = 250_000_000;

    /// The maximum number of shards in an index, the same as in huggingface.js.
    pub const MAX_SHARDS: usize = 10_000;

    /// Parses an index. Checks that every tensor is listed once, and that all shards are safetensors files in the
    /// folder of the index or below it.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule, naming the tensor that violates it.
    pub fn from_json(json: &[u8]) -> Result<Self, IndexError> {
        let mut reader = IndexReader::default();
        reader.feed(json)?;
        reader.finish()
    }

    /// Creates an index from the headers of unindexed shards. There must be at most [`Self::MAX_SHARDS`].
    pub(crate) fn from_headers(
        headers: &[(RepoPath, SafetensorsFileHeader)],
    ) -> Result<Self, IndexError> {
        let (mut names, mut shard_indices, mut length) = (NameList::default(), Vec::new(), 0);
        for (shard_index, (_, header)) in (0_u16..).zip(headers) {
            for tensor in header.tensors().names() {
                length += tensor.len();
                if length > MAX_TOTAL_BYTES {
                    return Err(IndexError::too_long());
                }
                names.push(tensor);
                shard_indices.push(shard_index);
            }
        }
        let tensors = names.into_names().map_err(|tensor| IndexError::duplicate(&tensor))?;
        let shards = headers.iter().map(|(shard, _)| shard.clone()).collect();
        Ok(Self { dtype: None, metadata: None, shards, tensors, shard_indices })
    }

    /// Returns the shards, sorted by name.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.shards
    }

    /// Returns every tensor with its shard, in index order.
    #[must_use]
    pub fn weight_map(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        self.tensors
            .iter()
            .zip(&self.shard_indices)
            .map(|(tensor, &index)| (tensor, self.shard_at(index)))
    }

    /// Returns the shard of a tensor, or `None` if the index does not list it.
    #[must_use]
    pub fn shard(&self, tensor: &str) -> Option<&RepoPath> {
        self.tensors.index_of(tensor).map(|index| self.tensor_at(index).1)
    }

    /// Returns the tensor at an index in the `weight_map`, with its shard.
    pub(crate) fn tensor_at(&self, index: usize) -> (&str, &RepoPath) {
        (self.tensors.get(index), self.shard_at(self.shard_indices[index]))
    }

    /// Returns a finder that looks up many tensors.
    pub(crate) fn finder(&self) -> NameFinder<'_> {
        NameFinder::new(&self.tensors)
    }

    /// Returns the number of tensors per shard, and the total length of their names in bytes.
    #[must_use]
    pub fn names_per_shard(&self) -> Vec<(u64, u64)> {
        let mut shards = vec![(0, 0); self.shards().len()];
        for (tensor, &shard_index) in self.tensors.iter().zip(&self.shard_indices) {
            let (tensors, bytes) = &mut shards[usize::from(shard_index)];
            *tensors += 1;
            *bytes += tensor.len() as u64;
        }
        shards
    }

    /// Returns the shard at an index.
    fn shard_at(&self, shard_index: u16) -> &RepoPath {
        &self.shards[usize::from(shard_index)]
    }

    /// Returns the `metadata` of the index, or `None` if it has none.
    #[must_use]
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.metadata.as_ref()
    }

    /// Returns the total size of the tensors in bytes, as declared by the index (`total_size`).
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        self.declared("total_size")
    }

    /// Returns the number of parameters declared by the index (`total_parameters`).
    ///
    /// This number is not verified; in published files it has been wrong by orders of magnitude
    /// (`huggingface_hub` #4221).
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        self.declared("total_parameters")
    }

    fn declared(&self, key: &str) -> Option<u64> {
        whole_number(&self.metadata()?.get(key)?.to_string())
    }
}

impl Serialize for SafetensorsIndexJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct IndexDocument<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            dtype: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata: Option<&'a Map<String, Value>>,
            #[serde(serialize_with = "serialize_weight_map")]
            weight_map: &'a SafetensorsIndexJson,
        }

        let (dtype, metadata) = (self.dtype.as_deref(), self.metadata());
        IndexDocument { dtype, metadata, weight_map: self }.serialize(serializer)
    }
}

fn serialize_weight_map<S: Serializer>(
    index: &SafetensorsIndexJson,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(index.weight_map())
}

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
    fn invalid_json(reason: &str) -> Self {
        Self::new(IndexErrorKind::InvalidJson, format!("the index is malformed: {reason}"))
    }

    /// Creates the error for a text whose offsets do not fit in 32 bits.
    fn too_long() -> Self {
        Self::invalid_json("it is longer than 4 GiB")
    }

    /// Creates the error for a tensor that is listed twice.
    fn duplicate(tensor: &str) -> Self {
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

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
