//! What a file says of itself: `__metadata__`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

/// The key that holds the file's own metadata among the tensors.
pub(super) const METADATA: &str = "__metadata__";

/// The most entries of `__metadata__` that are kept; a map of a hundred megabytes of short ones would
/// be gigabytes.
const MOST_ENTRIES: usize = 100_000;

/// `__metadata__`: strings by distinct keys, or `null`, which a published model has (vllm #50827).
pub(super) struct Metadata(pub(super) Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MetadataVisitor).map(Self)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Option<BTreeMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`__metadata__`, an object of strings")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if metadata.insert(key, value).is_some() {
                return Err(A::Error::custom("a key of `__metadata__` occurs twice"));
            }
            if metadata.len() > MOST_ENTRIES {
                return Err(A::Error::custom("`__metadata__` has more than 100,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}
