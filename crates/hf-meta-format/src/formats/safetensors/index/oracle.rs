//! A second index parser, based on `serde_json` alone, as a reference in tests.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::fields::IndexFields;
use super::metadata::{IndexMetadata, ScalarValue};
use super::shard_table::ShardTable;
use super::{SafetensorsIndexJson, WeightMapEntries};
use crate::formats::clip;
use crate::formats::safetensors::{DetectedFormat, IndexError};

pub(super) fn from_json(json: &[u8]) -> Result<SafetensorsIndexJson, IndexError> {
    let mut visitor = OracleVisitor::default();
    if let Err(error) = visitor.read(json) {
        // A broken rule ends the parsing early, so the error of `serde_json` is meaningless.
        return Err(visitor.refusal.unwrap_or_else(|| diagnose(json, &error)));
    }
    let entries = visitor.entries.ok_or(IndexError::NoWeightMap)?;
    let shards = visitor.shards.paths;
    if shards.is_empty() {
        return Err(IndexError::EmptyWeightMap);
    }
    let mut fields = IndexFields { dtype: visitor.dtype, metadata: visitor.metadata, shards };
    let ranks = fields.sort_shards();
    entries.finish(fields, &ranks)
}

/// Returns the likely cause of a parser error.
fn diagnose(json: &[u8], error: &serde_json::Error) -> IndexError {
    if let Some(detected) = DetectedFormat::recognize(json) {
        return IndexError::NotAnIndex { detected };
    }
    match json.split(|&byte| byte == b'\n').position(|line| line.starts_with(b"<<<<<<< ")) {
        Some(at) => IndexError::MergeConflict { line: at + 1 },
        None => IndexError::InvalidJson { message: clip(&error.to_string()) },
    }
}

#[derive(Default)]
struct OracleVisitor {
    dtype: Option<String>,
    metadata: Option<Map<String, Value>>,
    entries: Option<WeightMapEntries>,
    shards: ShardTable,
    /// The broken rule that ended the parsing.
    refusal: Option<IndexError>,
}

impl OracleVisitor {
    fn read(&mut self, json: &[u8]) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        deserializer.deserialize_map(&mut *self)?;
        deserializer.end()
    }
}

impl<'de> Visitor<'de> for &mut OracleVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index, an object with a `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut metadata = None;
        while let Some(key) = map.next_key()? {
            match key {
                IndexKey::Metadata if metadata.is_some() => {
                    return Err(A::Error::duplicate_field("metadata"));
                }
                IndexKey::WeightMap if self.entries.is_some() => {
                    return Err(A::Error::duplicate_field("weight_map"));
                }
                IndexKey::Metadata => metadata = Some(map.next_value::<IndexMetadata>()?.0),
                IndexKey::WeightMap => map.next_value_seed(WeightMapSeed(self))?,
                IndexKey::Dtype if self.dtype.is_some() => {
                    return Err(A::Error::duplicate_field("dtype"));
                }
                IndexKey::Dtype => self.dtype = map.next_value::<ScalarValue>()?.text(),
                IndexKey::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        self.metadata = metadata.flatten();
        Ok(())
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum IndexKey {
    Dtype,
    Metadata,
    WeightMap,
    #[serde(other)]
    Unknown,
}

/// A seed that reads the `weight_map` and interns the shard names.
struct WeightMapSeed<'a>(&'a mut OracleVisitor);

impl<'de> DeserializeSeed<'de> for WeightMapSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMapSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a `weight_map`, an object of shard names by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(visitor) = self;
        let mut tensors = WeightMapEntries::default();
        while map.next_key_seed(StringSeed(|tensor: &str| tensors.names.push(tensor)))?.is_some() {
            let tensor = tensors.names.get(tensors.names.len() - 1);
            match map
                .next_value_seed(StringSeed(|shard: &str| visitor.shards.place(tensor, shard)))?
            {
                Ok(place) => tensors.places.push(place),
                Err(refusal) => {
                    visitor.refusal = Some(refusal);
                    return Err(A::Error::custom("refused"));
                }
            }
        }
        visitor.entries = Some(tensors);
        Ok(())
    }
}

/// A seed that reads a string and passes it to a function.
struct StringSeed<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for StringSeed<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for StringSeed<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text))
    }
}
