//! The same reading done by `serde_json` from one slice, to hold the reader against.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::frame::Frame;
use super::metadata::{Metadata, Plain};
use super::shards::Shards;
use super::{SafetensorsIndexJson, WeightMapEntries};
use crate::formats::clip;
use crate::formats::safetensors::{DetectedFormat, IndexError};

pub(super) fn from_json(json: &[u8]) -> Result<SafetensorsIndexJson, IndexError> {
    let mut listing = Listing::default();
    if let Err(error) = listing.read(json) {
        // A refusal of our own ends the parser's work early; its complaint then says nothing.
        return Err(listing.refusal.unwrap_or_else(|| diagnose(json, &error)));
    }
    let entries = listing.entries.ok_or(IndexError::NoWeightMap)?;
    let shards = listing.shards.paths;
    if shards.is_empty() {
        return Err(IndexError::EmptyWeightMap);
    }
    let mut frame = Frame { dtype: listing.dtype, metadata: listing.metadata, shards };
    let ranks = frame.sort_shards();
    entries.finish(frame, &ranks)
}

/// What a parser's complaint most likely means.
fn diagnose(json: &[u8], error: &serde_json::Error) -> IndexError {
    if let Some(detected) = DetectedFormat::recognize(json) {
        return IndexError::NotAnIndex { detected };
    }
    match json.split(|&byte| byte == b'\n').position(|line| line.starts_with(b"<<<<<<< ")) {
        Some(at) => IndexError::MergeConflict { line: at + 1 },
        None => IndexError::Json { message: clip(&error.to_string()) },
    }
}

#[derive(Default)]
struct Listing {
    dtype: Option<String>,
    metadata: Option<Map<String, Value>>,
    entries: Option<WeightMapEntries>,
    shards: Shards,
    /// Our own reason to stop, where it is not the parser's.
    refusal: Option<IndexError>,
}

impl Listing {
    fn read(&mut self, json: &[u8]) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        deserializer.deserialize_map(&mut *self)?;
        deserializer.end()
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
                Key::WeightMap if self.entries.is_some() => {
                    return Err(A::Error::duplicate_field("weight_map"));
                }
                Key::Metadata => metadata = Some(map.next_value::<Metadata>()?.0),
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
        let mut tensors = WeightMapEntries::default();
        while map.next_key_seed(Text(|tensor: &str| tensors.names.push(tensor)))?.is_some() {
            let tensor = tensors.names.get(tensors.names.len() - 1);
            match map.next_value_seed(Text(|shard: &str| listing.shards.place(tensor, shard)))? {
                Ok(place) => tensors.places.push(place),
                Err(refusal) => {
                    listing.refusal = Some(refusal);
                    return Err(A::Error::custom("refused"));
                }
            }
        }
        listing.entries = Some(tensors);
        Ok(())
    }
}

/// Reads a string, and makes something of it before it is gone.
struct Text<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text))
    }
}
