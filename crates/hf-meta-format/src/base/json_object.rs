//! JSON objects whose values are parsed on demand, because few of them are needed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::text::whole_number;

/// A JSON object, in file order. A value of an unexpected type counts as missing, because a configuration may contain
/// anything.
#[derive(Clone, Default)]
pub struct JsonObject<'a>(Vec<(JsonKey<'a>, &'a RawValue)>);

#[derive(Clone, serde::Deserialize)]
#[serde(transparent)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> JsonObject<'a> {
    /// Returns the value of a key. Of duplicate keys, the last one counts.
    pub fn raw(&self, key: &str) -> Option<&'a RawValue> {
        let mut entries = self.0.iter().rev();
        entries.find_map(|(JsonKey(found), value)| (found == key).then_some(*value))
    }

    /// Returns the value of a key if it is a `T`.
    pub fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        read(self.raw(key)?)
    }

    /// Returns the value of a key if it is a whole number: `8`, `8.0` or `"8"`.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.raw(key).and_then(number)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns all keys with their values.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(JsonKey(key), value)| (&**key, *value))
    }
}

/// Parses the JSON text of a file. All JSON is parsed as text, because the code of a second kind of input is not small.
pub fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    let text = str::from_utf8(json).map_err(serde::de::Error::custom)?;
    serde_json::from_str(text)
}

/// Parses a value if it is a `T`.
pub fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the strings in a list. Returns no strings for other values, and `None` if the list is longer than `limit`.
pub fn strings(list: Option<&RawValue>, limit: usize) -> Option<Vec<String>> {
    let elements = list.and_then(read::<Vec<&RawValue>>).unwrap_or_default();
    let strings = || elements.iter().filter_map(|text| read::<JsonKey>(text));
    (elements.len() <= limit).then(|| strings().map(|JsonKey(text)| text.into_owned()).collect())
}

/// Returns a JSON object of keys and values, which are JSON texts.
pub fn object<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let entries = entries.map(|(key, value)| format!("{}:{value}", string(key)));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(",")).into_bytes()
}

/// Returns a JSON string.
pub fn string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Returns the value of a JSON text, or `null` if the text is invalid.
pub fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap_or(RawValue::NULL)
}

/// Reads a whole number: `8`, `8.0` or `"8"`.
pub fn number(value: &RawValue) -> Option<u64> {
    whole_number(value.get())
}

/// Replaces `NaN` and `Infinity` by objects of the same length. Python writes them, although JSON has no such numbers.
pub fn standard_json(json: &[u8]) -> Cow<'_, [u8]> {
    const NAMES: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

    let mut standard = Cow::Borrowed(json);
    let (mut at, mut in_string) = (0, false);
    while let Some(rest) = json.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(name) = NAMES.iter().find(|name| !in_string && rest.starts_with(name)) {
            let number = &mut standard.to_mut()[at..at + name.len()];
            number.fill(b' ');
            number[..2].copy_from_slice(b"{}");
            at += name.len();
            continue;
        }
        in_string ^= rest[0] == b'"';
        at += if rest[0] == b'\\' { 2 } else { 1 };
    }
    standard
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

/// The maximum number of entries of an object: twice the number of modules that a configuration may name.
const MAX_ENTRIES: usize = 100_000;

impl<'de: 'a, 'a> Visitor<'de> for JsonObject<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(entry) = map.next_entry()? {
            if self.len() == MAX_ENTRIES {
                return Err(serde::de::Error::custom("an object has too many entries"));
            }
            self.0.push(entry);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_forms() {
        let json = r#"{"a":8,"b":8.0,"c":"8","d":-1,"e":1e300,"f":"x","g":8.5,"h":null,"i":"8.0","j":[8],"k":NUMBER}"#;
        let json = json.replace("NUMBER", &u64::MAX.to_string());
        let object: JsonObject = serde_json::from_str(&json).unwrap();
        let numbers =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"].map(|key| object.number(key));
        let eight = Some(8);
        assert_eq!(
            numbers,
            [eight, eight, eight, None, None, None, None, None, eight, None, Some(u64::MAX)]
        );
    }

    #[test]
    fn values_of_unexpected_types_are_missing() {
        let json = r#"{"b":1,"a":"x","c":null,"b":{"k":[1,"\u0078",null,"y"]},"d":1e999}"#;
        let object: JsonObject = serde_json::from_str(json).unwrap();
        assert_eq!(
            object.entries().map(|(key, _)| key).collect::<Vec<_>>(),
            ["b", "a", "c", "b", "d"]
        );
        assert_eq!(object.get::<u32>("b"), None);
        assert_eq!(
            strings(object.get::<JsonObject>("b").unwrap().raw("k"), 9).unwrap(),
            ["x", "y"]
        );
        assert_eq!(object.get::<String>("a").as_deref(), Some("x"));
        assert_eq!(strings(object.raw("a"), 9).unwrap(), [""; 0]);
        let error = serde_json::from_str::<JsonObject>("[]").err().unwrap().to_string();
        assert!(error.contains("expected an object"), "{error}");
    }

    #[test]
    fn special_floats_become_objects() {
        let cases = [
            (r#"{"a":Infinity,"b":[-Infinity, NaN]}"#, r#"{"a":{}      ,"b":[{}       , {} ]}"#),
            (r#"{"NaN":"Infinity \"NaN"}"#, r#"{"NaN":"Infinity \"NaN"}"#),
            ("[1", "[1"),
        ];
        for (json, expected) in cases {
            assert_eq!(str::from_utf8(&standard_json(json.as_bytes())), Ok(expected), "{json}");
        }
    }
}
