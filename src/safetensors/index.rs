//! The index of a sharded set of weights.

mod wire;

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::{Map, Value};

use self::wire::Listing;
use super::names::{LONGEST, NameList, Names};
use super::{Impostor, IndexError, RepoPath, SafetensorsFileHeader, clip};

/// The checked index of a sharded repo, `model.safetensors.index.json`.
///
/// Serializes to the JSON it came from, less keys that huggingface.js does not know either, and less
/// values of `metadata` that are objects or arrays: nobody writes those, and nesting is how a small
/// file becomes a large value.
///
/// ```
/// use hf_meta::SafetensorsIndexJson;
///
/// let json = br#"{"metadata":{"total_size":24},"weight_map":{"w":"model-00001-of-00001.safetensors"}}"#;
/// let index = SafetensorsIndexJson::from_json(json)?;
/// assert_eq!(index.shards()[0].as_str(), "model-00001-of-00001.safetensors");
/// # Ok::<(), hf_meta::safetensors::IndexError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsIndexJson {
    dtype: Option<String>,
    metadata: Option<Map<String, Value>>,
    tensors: Names,
    /// For each tensor the place of its shard in `shards`: a name per shard is kept, not one per tensor.
    places: Vec<u16>,
    shards: Vec<RepoPath>,
}

impl SafetensorsIndexJson {
    /// The most bytes of an index that are read, the limit of huggingface.js. The longest known has
    /// 60 MB for 497,000 tensors.
    pub const DEFAULT_LIMIT: u64 = 250_000_000;

    /// The most shards that an index may name, the limit of huggingface.js.
    pub const MAX_SHARDS: usize = 10_000;

    /// Parses an index, and checks that every tensor stands in it once, in a shard with the name of
    /// a safetensors file beside or below the index.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the tensor that breaks it.
    pub fn from_json(json: &[u8]) -> Result<Self, IndexError> {
        if json.len() > LONGEST {
            return Err(IndexError::Json { message: "longer than 4 GiB".to_owned() });
        }
        let mut listing = Listing::default();
        if let Err(error) = listing.read(json) {
            // A refusal of our own ends the parser's work early; its complaint then says nothing.
            return Err(listing.refusal.unwrap_or_else(|| diagnose(json, &error)));
        }
        let tensors = listing.tensors.ok_or(IndexError::NoWeightMap)?;
        if tensors.len() == 0 {
            return Err(IndexError::EmptyWeightMap);
        }
        let tensors = tensors.into_names();
        Ok(Self {
            dtype: listing.dtype,
            metadata: listing.metadata,
            tensors: tensors.map_err(|tensor| IndexError::DuplicateTensor { tensor })?,
            places: listing.places,
            shards: listing.shards,
        })
    }

    /// The index of shards that have none, of at most [`Self::MAX_SHARDS`], from their headers.
    pub(crate) fn of_shards(
        headers: &[(RepoPath, SafetensorsFileHeader)],
    ) -> Result<Self, IndexError> {
        let (mut names, mut places, mut length) = (NameList::default(), Vec::new(), 0);
        for (place, (_, header)) in (0_u16..).zip(headers) {
            for (tensor, _) in header.tensors() {
                length += tensor.len();
                if length > LONGEST {
                    return Err(IndexError::Json { message: "longer than 4 GiB".to_owned() });
                }
                names.push(tensor);
                places.push(place);
            }
        }
        let tensors = names.into_names().map_err(|tensor| twice(tensor, headers))?;
        let shards = headers.iter().map(|(shard, _)| shard.clone()).collect();
        Ok(Self { dtype: None, metadata: None, tensors, places, shards })
    }

    /// The shards, each once, in the order of their names.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.shards
    }

    /// Every tensor with the shard that the index puts it into, in the order of the index.
    #[must_use]
    pub fn weight_map(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        self.tensors.iter().zip(&self.places).map(|(tensor, &place)| (tensor, self.at(place)))
    }

    /// Every tensor with the place of its shard among the shards.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, usize)> {
        self.tensors.iter().zip(self.places.iter().map(|&place| usize::from(place)))
    }

    /// The shard that the index puts a tensor into.
    #[must_use]
    pub fn shard(&self, tensor: &str) -> Option<&RepoPath> {
        self.tensors.position(tensor).map(|at| self.at(self.places[at]))
    }

    fn at(&self, place: u16) -> &RepoPath {
        &self.shards[usize::from(place)]
    }

    /// The `metadata` of the index, as it stands there.
    #[must_use]
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.metadata.as_ref()
    }

    /// The bytes of all tensors together, as the index claims them.
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_size")?)
    }

    /// The parameters of all tensors together, as the index claims them (`total_parameters`). A
    /// claim, not a count: it has been wrong by orders of magnitude (`huggingface_hub` #4221).
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_parameters")?)
    }
}

impl Serialize for SafetensorsIndexJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct WeightMap<'a>(&'a SafetensorsIndexJson);

        impl Serialize for WeightMap<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.tensors.len()))?;
                self.0
                    .weight_map()
                    .try_for_each(|(tensor, shard)| map.serialize_entry(tensor, shard))?;
                map.end()
            }
        }

        let mut index = serializer.serialize_struct("SafetensorsIndexJson", 3)?;
        if let Some(dtype) = &self.dtype {
            index.serialize_field("dtype", dtype)?;
        }
        if let Some(metadata) = &self.metadata {
            index.serialize_field("metadata", metadata)?;
        }
        index.serialize_field("weight_map", &WeightMap(self))?;
        index.end()
    }
}

/// What to say of a tensor that two headers hold.
fn twice(tensor: String, headers: &[(RepoPath, SafetensorsFileHeader)]) -> IndexError {
    let mut shards = headers.iter().filter(|(_, header)| header.tensor(&tensor).is_some());
    let mut next = || shards.next().map_or_else(String::new, |(shard, _)| clip(shard.as_str()));
    let (first, second) = (next(), next());
    IndexError::InTwoShards { tensor, first, second }
}

/// Some exporters write their totals as text, some as a float.
fn whole_number(value: &Value) -> Option<u64> {
    /// Above 2^53 a float no longer tells whole numbers apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range and whole by the test before"
    )]
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            ((0.0..EXACT).contains(&float) && float.fract() == 0.0).then_some(float as u64)
        }),
        _ => None,
    }
}

/// What a parser's complaint most likely means.
fn diagnose(json: &[u8], error: &serde_json::Error) -> IndexError {
    if let Some(impostor) = Impostor::recognize(json) {
        return IndexError::NotAnIndex { impostor };
    }
    match json.split(|&byte| byte == b'\n').position(|line| line.starts_with(b"<<<<<<< ")) {
        Some(at) => IndexError::MergeConflict { line: at + 1 },
        None => IndexError::Json { message: clip(&error.to_string()) },
    }
}

#[cfg(test)]
mod tests;
