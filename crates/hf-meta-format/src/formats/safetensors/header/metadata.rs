//! The `__metadata__` of a header.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

/// The key of the metadata, on the same level as the tensors.
pub(super) const METADATA: &str = "__metadata__";

/// The maximum number of entries. A map with 100 MB of short entries would take gigabytes of memory.
const MOST_ENTRIES: usize = 100_000;

/// The value of `__metadata__`: an object of strings with distinct keys, or `null`, which a published model contains
/// (vllm #50827).
pub(super) struct MetadataMap(pub(super) Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for MetadataMap {
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
                return Err(A::Error::custom("a key in `__metadata__` appears twice"));
            }
            if metadata.len() > MOST_ENTRIES {
                return Err(A::Error::custom("`__metadata__` has more than 100,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}
