//! A tolerant third reader of headers: it accepts everything that one of the two compared readers accepts, and
//! records the differences.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::tree::reference_knows;

/// The content of a header in its order, with duplicates.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) metadata: Option<Vec<(String, String)>>,
    pub(super) tensors: Vec<(String, Entry)>,
    /// True if a field that the format does not know has a content that no parser can convert to a value.
    pub(super) unreadable_extra: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) data_offsets: (u64, u64),
    pub(super) is_array: bool,
    pub(super) dtype_is_object: bool,
    has_extra: bool,
}

impl Reading {
    /// Reads a header that at least one reader could accept; `None` for any other.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let mut reading = deserializer.deserialize_map(HeaderVisitor).ok()?;
        deserializer.end().ok()?;
        reading.unreadable_extra = reading.tensors.iter().any(|(_, entry)| entry.has_extra)
            && serde_json::from_slice::<Value>(json).is_err();
        Some(reading)
    }

    /// Returns whether the sum of all elements exceeds 64 bits, although no tensor alone does.
    pub(super) fn overflows_in_sum(&self) -> bool {
        let elements = |(_, entry): &(String, Entry)| {
            let elements = entry.elements()?;
            elements.checked_mul(entry.bits()).map(|_| elements)
        };
        let each: Option<Vec<u64>> = self.tensors.iter().map(elements).collect();
        each.is_some_and(|each| each.into_iter().try_fold(0, u64::checked_add).is_none())
    }

    /// Returns a header with the same tensors and data, written so that both readers agree on it.
    pub(super) fn undisputed(&self) -> String {
        let mut header = Map::new();
        if let Some(pairs) = &self.metadata {
            let pairs = pairs.iter().map(|(key, value)| (key.clone(), json!(value)));
            header.insert("__metadata__".to_owned(), Value::Object(pairs.collect()));
        }
        let as_bytes = self.overflows_in_sum();
        for (name, entry) in &self.tensors {
            for (at, piece) in entry.undisputed(as_bytes).into_iter().enumerate() {
                header.insert(format!("{name}{}", "'".repeat(at)), piece);
            }
        }
        Value::Object(header).to_string()
    }

    /// Returns the end of the data, according to the tensors.
    pub(super) fn data_end(&self) -> u64 {
        self.tensors.iter().map(|(_, entry)| entry.data_offsets.1).max().unwrap_or(0)
    }
}

impl Entry {
    /// Returns whether the product of the shape exceeds 64 bits before its 0 is reached.
    pub(super) fn overflows_before_zero(&self) -> bool {
        self.shape.contains(&0) && product(&self.shape).is_none()
    }

    fn elements(&self) -> Option<u64> {
        if self.shape.contains(&0) { Some(0) } else { product(&self.shape) }
    }

    /// Returns the width of an element in bits; 1 for an unknown dtype, which has at least one.
    fn bits(&self) -> u64 {
        hf_meta::Dtype::from(self.dtype.as_str()).bits().unwrap_or(1)
    }

    fn fills_its_span(&self) -> bool {
        let (begin, end) = self.data_offsets;
        let bits = self.elements().and_then(|elements| elements.checked_mul(self.bits()));
        bits.is_some() && bits == end.saturating_sub(begin).checked_mul(8)
    }

    /// Returns the tensor with a dtype that both readers know. A tensor of an unknown dtype becomes one of bytes,
    /// or several if its span is too long for one.
    fn undisputed(&self, as_bytes: bool) -> Vec<Value> {
        let dtype = match self.dtype.as_str() {
            "E8M0" | "UE8" => "F8_E8M0",
            "FP4" => "F4",
            dtype => dtype,
        };
        let (begin, end) = self.data_offsets;
        let is_known = reference_knows(dtype);
        let piece = |dtype, shape: &[u64]| vec![entry(dtype, shape, begin, end)];
        match self.elements() {
            Some(_) if !is_known => of_bytes(begin, end),
            // Only if the span is valid, so that the overflow is the only defect.
            Some(_) if as_bytes && self.fills_its_span() => of_bytes(begin, end),
            Some(0) => piece(dtype, &[0]),
            _ => piece(if is_known { dtype } else { "U8" }, &self.shape),
        }
    }
}

fn entry(dtype: &str, shape: &[u64], begin: u64, end: u64) -> Value {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] })
}

/// Returns tensors of bytes over a span, each with a number of bits that fits in 64 bits.
fn of_bytes(begin: u64, end: u64) -> Vec<Value> {
    const LARGEST: u64 = 1 << 60;
    if end.saturating_sub(begin) <= LARGEST {
        return vec![entry("U8", &[end.saturating_sub(begin)], begin, end)];
    }
    let begins = std::iter::successors(Some(begin), |begin| begin.checked_add(LARGEST));
    let pieces = begins.take_while(|&begin| begin < end).map(|begin| {
        let length = LARGEST.min(end - begin);
        entry("U8", &[length], begin, begin + length)
    });
    pieces.collect()
}

fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1, |product: u64, &length| product.checked_mul(length))
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Reading;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reading, A::Error> {
        let mut reading = Reading::default();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                once::<_, A::Error>(&mut metadata, map.next_value::<Option<Pairs>>()?)?;
            } else {
                reading.tensors.push((name, map.next_value()?));
            }
        }
        reading.metadata = metadata.flatten().map(|Pairs(pairs)| pairs);
        Ok(reading)
    }
}

fn once<T, E: Error>(slot: &mut Option<T>, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("twice")),
    }
}

/// An object of strings, with duplicate keys.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let (mut dtype, mut shape, mut data_offsets) = (None, None, None);
        let mut has_extra = false;
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "dtype" => once(&mut dtype, map.next_value()?)?,
                "shape" => once(&mut shape, map.next_value()?)?,
                "data_offsets" => once(&mut data_offsets, map.next_value()?)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    has_extra = true;
                }
            }
        }
        assemble(dtype, shape, data_offsets).map(|entry| Entry { has_extra, ..entry })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entry, A::Error> {
        let (dtype, shape) = (seq.next_element()?, seq.next_element()?);
        let entry = assemble(dtype, shape, seq.next_element()?)?;
        Ok(Entry { is_array: true, ..entry })
    }
}

fn assemble<E: Error>(
    dtype: Option<DtypeName>,
    shape: Option<Vec<u64>>,
    data_offsets: Option<(u64, u64)>,
) -> Result<Entry, E> {
    let missing = || E::custom("a field is missing");
    let dtype = dtype.ok_or_else(missing)?;
    Ok(Entry {
        dtype: dtype.name,
        shape: shape.ok_or_else(missing)?,
        data_offsets: data_offsets.ok_or_else(missing)?,
        is_array: false,
        dtype_is_object: dtype.is_object,
        has_extra: false,
    })
}

struct DtypeName {
    name: String,
    is_object: bool,
}

impl<'de> Deserialize<'de> for DtypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = DtypeName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dtype")
            }

            fn visit_str<E>(self, name: &str) -> Result<DtypeName, E> {
                Ok(DtypeName { name: name.to_owned(), is_object: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DtypeName, A::Error> {
                let (name, IgnoredAny) =
                    map.next_entry()?.ok_or_else(|| A::Error::custom("a dtype is missing"))?;
                Ok(DtypeName { name, is_object: true })
            }
        }

        deserializer.deserialize_any(NameVisitor)
    }
}
