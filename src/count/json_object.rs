//! JSON objects whose values are parsed on demand, because few of them are needed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON object, in the order of the file. A value of an unexpected type is treated as missing, because a
/// configuration may contain anything.
pub(super) struct JsonObject<'a>(Vec<(JsonKey<'a>, &'a RawValue)>);

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> JsonObject<'a> {
    /// Returns the value of a key; the last one if the key occurs several times.
    pub(super) fn raw(&self, key: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rev().find(|(JsonKey(found), _)| found == key);
        found.map(|(_, value)| *value)
    }

    /// Returns the value of a key if it is a `T`.
    pub(super) fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        read(self.raw(key)?)
    }

    /// Returns whether a key has a value other than `null`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some_and(|value| value.get() != "null")
    }

    /// Returns the strings in a list; none if the value is not a list.
    pub(super) fn strings(&self, key: &str) -> Vec<Cow<'a, str>> {
        let elements = self.get::<Vec<&RawValue>>(key).unwrap_or_default();
        elements.into_iter().filter_map(read::<JsonKey>).map(|JsonKey(text)| text).collect()
    }

    /// Returns every key with its value.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(JsonKey(key), value)| (&**key, *value))
    }
}

/// Parses a value if it is a `T`.
pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonObjectVisitor).map(JsonObject)
    }
}

struct JsonObjectVisitor;

impl<'de> Visitor<'de> for JsonObjectVisitor {
    type Value = Vec<(JsonKey<'de>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_unexpected_types_are_missing() {
        let json = r#"{"b":1,"a":"x","c":null,"b":{"k":[1,"\u0078",null,"y"]},"d":1e999}"#;
        let object: JsonObject = serde_json::from_str(json).unwrap();
        assert_eq!(
            object.entries().map(|(key, _)| key).collect::<Vec<_>>(),
            ["b", "a", "c", "b", "d"]
        );
        assert_eq!(object.get::<u32>("b"), None);
        assert_eq!(object.get::<JsonObject>("b").unwrap().strings("k"), ["x", "y"]);
        assert_eq!(object.get::<String>("a").as_deref(), Some("x"));
        assert!(object.has("d") && !object.has("c") && !object.has("e"));
        assert_eq!(object.strings("a"), [""; 0]);
    }
}
