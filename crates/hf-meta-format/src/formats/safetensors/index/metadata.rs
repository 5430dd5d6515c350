//! The values of an index other than its `weight_map`. Their size is limited while they are parsed.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The maximum number of entries in `metadata`. huggingface.js has the same limit.
const MAX_METADATA: usize = 1_000;

/// The value of `metadata`: the scalar values of an object, or `null`.
#[derive(Debug)]
pub(super) struct IndexMetadata(pub(super) Option<Map<String, Value>>);

impl<'de> Deserialize<'de> for IndexMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IndexMetadataVisitor).map(Self)
    }
}

struct IndexMetadataVisitor;

impl<'de> Visitor<'de> for IndexMetadataVisitor {
    type Value = Option<Map<String, Value>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`metadata`, an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = Map::new();
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
pub(super) struct ScalarValue(Option<Value>);

impl ScalarValue {
    /// Returns the value if it is a string.
    pub(super) fn text(self) -> Option<String> {
        self.0?.as_str().map(str::to_owned)
    }
}

impl<'de> Deserialize<'de> for ScalarValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor).map(Self)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
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
