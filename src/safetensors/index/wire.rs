//! Reading the JSON of an index. Whatever could grow without a bound is refused as it comes.

use std::collections::HashMap;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use super::SafetensorsIndexJson;
use crate::safetensors::names::NameList;
use crate::safetensors::text::Text;
use crate::safetensors::{IndexError, RepoPath, clip};

/// The most entries of `metadata`, the limit of huggingface.js.
const MAX_METADATA: usize = 1_000;

/// What the JSON lists: tensors, and for each of them the place of its shard in `shards`.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) dtype: Option<String>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) tensors: Option<NameList>,
    pub(super) places: Vec<u16>,
    pub(super) shards: Vec<RepoPath>,
    places_by_name: HashMap<Box<str>, u16>,
    /// Our own reason to stop, where it is not the parser's.
    pub(super) refusal: Option<IndexError>,
}

impl Listing {
    pub(super) fn read(&mut self, json: &[u8]) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        deserializer.deserialize_map(&mut *self)?;
        deserializer.end()?;
        self.sort_shards();
        Ok(())
    }

    /// Brings the shards into the order of their names, which is that of their numbers; an index
    /// lists tensors by name, and so shards in the order of the digits of their layers.
    fn sort_shards(&mut self) {
        let mut order: Vec<usize> = (0..self.shards.len()).collect();
        order.sort_unstable_by_key(|&place| &self.shards[place]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(order).for_each(|(rank, place)| ranks[place] = rank);
        self.places.iter_mut().for_each(|place| *place = ranks[usize::from(*place)]);
        self.shards.sort_unstable();
    }

    /// The place of a shard among the shards.
    fn place(&mut self, tensor: &str, shard: &str) -> Result<u16, IndexError> {
        if let Some(&place) = self.places_by_name.get(shard) {
            return Ok(place);
        }
        let path: RepoPath = shard
            .parse()
            .map_err(|source| IndexError::UnsafeShardName { tensor: clip(tensor), source })?;
        if !path.is_safetensors() {
            return Err(IndexError::NotSafetensors { tensor: clip(tensor), shard: clip(shard) });
        }
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        let place = u16::try_from(self.shards.len()).ok().filter(|&at| usize::from(at) < limit);
        let place = place.ok_or(IndexError::TooManyShards { limit })?;
        self.shards.push(path);
        self.places_by_name.insert(shard.into(), place);
        Ok(place)
    }
}

impl<'de> Visitor<'de> for &mut Listing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index, an object with a `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut metadata = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::Metadata if metadata.is_some() => {
                    return Err(A::Error::duplicate_field("metadata"));
                }
                Key::WeightMap if self.tensors.is_some() => {
                    return Err(A::Error::duplicate_field("weight_map"));
                }
                Key::Metadata => metadata = Some(map.next_value_seed(Metadata)?),
                Key::WeightMap => map.next_value_seed(WeightMap(self))?,
                Key::Dtype if self.dtype.is_some() => {
                    return Err(A::Error::duplicate_field("dtype"));
                }
                Key::Dtype => self.dtype = map.next_value::<Plain>()?.text(),
                Key::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        self.metadata = metadata.flatten();
        Ok(())
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Dtype,
    Metadata,
    WeightMap,
    #[serde(other)]
    Unknown,
}

/// Reads `weight_map`, and keeps each shard's name once.
struct WeightMap<'a>(&'a mut Listing);

impl<'de> DeserializeSeed<'de> for WeightMap<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a `weight_map`, an object of shard names by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(listing) = self;
        let mut tensors = NameList::default();
        while map.next_key_seed(Text(|tensor: &str| tensors.push(tensor)))?.is_some() {
            let tensor = tensors.last().unwrap_or_default();
            match map.next_value_seed(Text(|shard: &str| listing.place(tensor, shard)))? {
                Ok(place) => listing.places.push(place),
                Err(refusal) => {
                    listing.refusal = Some(refusal);
                    return Err(A::Error::custom("refused"));
                }
            }
        }
        listing.tensors = Some(tensors);
        Ok(())
    }
}

/// Reads `metadata`: an object of which the plain values are kept, or `null`.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Option<Map<String, Value>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Option<Map<String, Value>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`metadata`, an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = Map::new();
        while let Some((key, Plain(value))) = map.next_entry::<String, _>()? {
            let twice = value.is_some_and(|value| metadata.insert(key, value).is_some());
            if twice {
                return Err(A::Error::custom("a key of `metadata` occurs twice"));
            }
            if metadata.len() > MAX_METADATA {
                return Err(A::Error::custom("`metadata` has more than 1,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}

/// A value without others inside; `None` for an object or an array, which is passed over unread.
struct Plain(Option<Value>);

impl Plain {
    fn text(self) -> Option<String> {
        self.0?.as_str().map(str::to_owned)
    }
}

impl<'de> serde::Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Self)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
