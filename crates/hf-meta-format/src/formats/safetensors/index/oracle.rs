//! A second index parser, based on `serde_json` alone, as a reference in tests.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor,
};
use serde_json::value::RawValue;

use super::{EXTENSION, IndexMetadata, IndexParser, SafetensorsIndexJson};
use crate::formats::clip;
use crate::formats::safetensors::{DetectedFormat, IndexError, IndexErrorKind};

pub(super) fn from_json(json: &[u8]) -> Result<SafetensorsIndexJson, IndexError> {
    let mut visitor = OracleVisitor { index: IndexParser::new(EXTENSION), refusal: None };
    let text = json.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if let Err(error) = visitor.read(text) {
        // A broken rule ends the parsing early, so the error of `serde_json` is meaningless.
        return Err(visitor.refusal.unwrap_or_else(|| diagnose(text, &error)));
    }
    if text.len() < json.len() {
        return Err(IndexError::malformed_index("invalid UTF-8"));
    }
    visitor.index.into_index()
}

/// Returns the likely cause of a parser error.
fn diagnose(text: &str, error: &serde_json::Error) -> IndexError {
    if let Some(detected) = DetectedFormat::recognize(text.as_bytes()) {
        let message = format!("the file looks like {detected}");
        return IndexError::new(IndexErrorKind::WrongFormat(detected), message);
    }
    IndexError::malformed_index(&clip(&error.to_string()))
}

struct OracleVisitor {
    index: IndexParser,
    /// The broken rule that ended the parsing.
    refusal: Option<IndexError>,
}

impl OracleVisitor {
    fn read(&mut self, json: &str) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
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
        while let Some(key) = map.next_key()? {
            match key {
                IndexKey::Metadata if self.index.has_metadata => {
                    return Err(A::Error::duplicate_field("metadata"));
                }
                IndexKey::WeightMap if self.index.has_weight_map => {
                    return Err(A::Error::duplicate_field("weight_map"));
                }
                IndexKey::Metadata => {
                    self.index.has_metadata = true;
                    self.index.metadata = map.next_value::<OracleMetadata>()?.0.map(IndexMetadata);
                }
                IndexKey::WeightMap => map.next_value_seed(WeightMapSeed(self))?,
                IndexKey::Dtype if self.index.dtype.is_some() => {
                    return Err(A::Error::duplicate_field("dtype"));
                }
                IndexKey::Dtype => self.index.dtype = map.next_value::<ScalarValue>()?.text(),
                IndexKey::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
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
        visitor.index.has_weight_map = true;
        while let Some((tensor, shard)) = map.next_entry::<String, String>()? {
            if let Err(refusal) = visitor.index.select_shard(&tensor, &shard) {
                visitor.refusal = Some(refusal);
                return Err(A::Error::custom("refused"));
            }
            visitor.index.push(&tensor);
        }
        Ok(())
    }
}

/// The maximum number of entries in `metadata`. huggingface.js has the same limit.
const MAX_METADATA: usize = 1_000;

/// The value of `metadata`: the scalar values of an object, or `null`.
#[derive(Debug)]
struct OracleMetadata(Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for OracleMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OracleMetadataVisitor).map(Self)
    }
}

struct OracleMetadataVisitor;

impl<'de> Visitor<'de> for OracleMetadataVisitor {
    type Value = Option<BTreeMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`metadata`, an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((key, ScalarValue(value))) = map.next_entry::<String, _>()? {
            let twice = value.is_some_and(|value| metadata.insert(key, value).is_some());
            if twice {
                return Err(A::Error::custom("a key in `metadata` appears twice"));
            }
            if metadata.len() > MAX_METADATA {
                return Err(A::Error::custom("`metadata` has more than 1,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}

/// A scalar value; `None` for an object or an array, which is skipped.
struct ScalarValue(Option<String>);

impl ScalarValue {
    /// Returns the value if it is a string.
    fn text(self) -> Option<String> {
        serde_json::from_str(&self.0?).ok()
    }
}

impl<'de> Deserialize<'de> for ScalarValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        Ok(Self((!raw.starts_with(['{', '['])).then(|| raw.to_owned())))
    }
}
