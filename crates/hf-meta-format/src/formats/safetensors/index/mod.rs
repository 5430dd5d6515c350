//! The index of a sharded checkpoint.

mod reader;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

pub use self::reader::IndexReader;
use super::SafetensorsFileHeader;
use crate::base::json_object::raw;
use crate::formats::names::{NameList, Names};
pub use crate::formats::{HeaderError as IndexError, HeaderErrorKind as IndexErrorKind};
use crate::formats::{RepoPath, whole_number};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SafetensorsIndexJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")
    )]
    metadata: Option<IndexMetadata>,
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    weight_map: WeightMap,
}

/// The scalar entries of the `metadata`, as JSON texts, so that every number stays exact.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexMetadata(BTreeMap<String, String>);

/// The shard of each tensor, in index order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WeightMap {
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
        headers: &BTreeMap<RepoPath, SafetensorsFileHeader>,
    ) -> Result<Self, IndexError> {
        let (mut names, mut shard_indices) = (NameList::default(), Vec::new());
        for (shard_index, (_, header)) in (0_u16..).zip(headers) {
            for tensor in header.tensors().names() {
                if !names.has_room_for(tensor.len()) {
                    return Err(IndexError::index_too_long());
                }
                names.push(tensor);
                shard_indices.push(shard_index);
            }
        }
        let tensors = names.into_names("index")?;
        let shards = headers.keys().cloned().collect();
        let weight_map = WeightMap { shards, tensors, shard_indices };
        Ok(Self { dtype: None, metadata: None, weight_map })
    }

    /// Returns the shards, sorted by name.
    pub fn shards(&self) -> &[RepoPath] {
        &self.weight_map.shards
    }

    /// Returns every tensor with its shard, in index order.
    pub fn weight_map(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        self.weight_map.iter()
    }

    /// Returns the shard of a tensor, or `None` if the index does not list it.
    pub fn shard(&self, tensor: &str) -> Option<&RepoPath> {
        let index = self.index_of(tensor, 0)? as usize;
        Some(&self.shards()[usize::from(self.weight_map.shard_indices[index])])
    }

    /// Returns the index of a tensor in the `weight_map`. `next` is tried first: most shards have the order of their
    /// index, and a search takes longer.
    pub(crate) fn index_of(&self, tensor: &str, next: u32) -> Option<u32> {
        let names = &self.weight_map.tensors;
        let is_next =
            names.list.indices().contains(&next) && names.list.bytes(next) == tensor.as_bytes();
        if is_next { Some(next) } else { names.index_of(tensor) }
    }

    /// Returns the number of tensors per shard, and the total length of their names in bytes.
    pub fn names_per_shard(&self) -> Vec<(u64, u64)> {
        let WeightMap { shards, tensors, shard_indices } = &self.weight_map;
        let mut shards = vec![(0, 0); shards.len()];
        for (tensor, shard_index) in tensors.list.iter().zip(shard_indices) {
            let (tensors, bytes) = &mut shards[usize::from(*shard_index)];
            *tensors += 1;
            *bytes += tensor.len() as u64;
        }
        shards
    }

    /// Returns the `metadata` of the index, or `None` if it has none. The values are JSON texts, such as `8` or `"pt"`.
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref().map(|metadata| &metadata.0)
    }

    /// Returns the total size of the tensors in bytes, as declared by the index (`total_size`).
    pub fn total_size(&self) -> Option<u64> {
        self.declared("total_size")
    }

    /// Returns the number of parameters declared by the index (`total_parameters`).
    ///
    /// This number is not verified; in published files it has been wrong by orders of magnitude
    /// (`huggingface_hub` #4221).
    pub fn declared_total(&self) -> Option<u64> {
        self.declared("total_parameters")
    }

    fn declared(&self, key: &str) -> Option<u64> {
        whole_number(self.metadata()?.get(key)?)
    }
}

impl WeightMap {
    fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        let shards = self.shard_indices.iter().map(|index| &self.shards[usize::from(*index)]);
        self.tensors.list.iter().zip(shards)
    }
}

impl Serialize for IndexMetadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, text)| (key, raw(text))))
    }
}

impl Serialize for WeightMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl IndexError {
    /// Creates the error for an index that is not JSON with the expected structure.
    fn malformed_index(reason: &str) -> Self {
        Self::new(IndexErrorKind::InvalidJson, format!("the index is malformed: {reason}"))
    }

    /// Creates the error for an index whose offsets do not fit in 32 bits.
    fn index_too_long() -> Self {
        Self::malformed_index("it is longer than 4 GiB")
    }

    /// Creates the error for an index of more than `limit` shards.
    pub(crate) fn too_many_shards(limit: usize) -> Self {
        let message = format!("the index lists more than {limit} shards");
        Self::new(IndexErrorKind::TooManyShards, message)
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
