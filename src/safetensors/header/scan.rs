//! One pass over the JSON of a header, tensor by tensor, keeping no more of it than it is asked to.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::spans::{Gap, Spans};
use crate::safetensors::names::{LONGEST, NameList, Names};
use crate::safetensors::tensor::Entry;
use crate::safetensors::text::Text;
use crate::safetensors::{HeaderError, clip};

/// The key that holds the file's own metadata among the tensors.
pub(super) const METADATA: &str = "__metadata__";

/// The most entries of `__metadata__` that are kept; a map of a hundred megabytes of short ones would
/// be gigabytes.
const MAX_METADATA: usize = 100_000;

/// What a header holds beside its tensors.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) metadata: Option<BTreeMap<String, String>>,
    pub(super) names: Names,
    pub(super) data_length: u64,
}

/// Hands every tensor to a function, in the order of the file, and checks every rule.
pub(super) fn scan(
    json: &[u8],
    each: impl FnMut(&str, &Entry<'_>) -> Result<(), HeaderError>,
) -> Result<Scanned, HeaderError> {
    let mut deserializer = serde_json::Deserializer::from_str(text(json)?);
    let mut scan = Scan::new(each);
    let read = (&mut deserializer).deserialize_map(&mut scan);
    match read.and_then(|()| deserializer.end()) {
        Ok(()) => scan.finish(),
        Err(error) => Err(scan.describe(&error)),
    }
}

/// The header as text, with the flaws that a JSON parser would only call unexpected bytes.
fn text(json: &[u8]) -> Result<&str, HeaderError> {
    match json.first() {
        None => return Err(HeaderError::Empty),
        Some(b'{') => {}
        Some(&first) => return Err(HeaderError::NotAnObject { first }),
    }
    if json.len() > LONGEST {
        return Err(HeaderError::OverLimit { length: json.len() as u64, limit: LONGEST as u64 });
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        return Err(HeaderError::NulPadding { at: json.len() - padding });
    }
    std::str::from_utf8(json).map_err(|error| HeaderError::NotUtf8 { at: error.valid_up_to() })
}

struct Scan<F> {
    each: F,
    metadata: Option<BTreeMap<String, String>>,
    names: NameList,
    spans: Spans,
    /// The dimensions of the tensor that is being read.
    shape: Vec<u64>,
    /// Whether an error of the JSON parser is about the last name.
    is_in_entry: bool,
    /// What is wrong with the first tensor that is. It is told only if the text is all right: what is
    /// not JSON has no tensors, and a name that occurs twice explains most other flaws.
    flaw: Option<HeaderError>,
}

impl<F: FnMut(&str, &Entry<'_>) -> Result<(), HeaderError>> Scan<F> {
    fn new(each: F) -> Self {
        Self {
            each,
            metadata: None,
            names: NameList::default(),
            spans: Spans::default(),
            shape: Vec::new(),
            is_in_entry: false,
            flaw: None,
        }
    }

    /// Takes a key; whether it is that of the metadata.
    fn key(&mut self, key: &str) -> bool {
        let is_metadata = key == METADATA;
        if !is_metadata {
            self.names.push(key);
        }
        is_metadata
    }

    /// Reads the value of the last name.
    fn tensor<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        let (dtype, data_offsets) = map.next_value_seed(Entry::seed(&mut self.shape))?;
        let entry = Entry { dtype: &dtype, shape: &self.shape, data_offsets };
        let name = self.names.last().unwrap_or_default();
        if self.flaw.is_none() {
            self.flaw = entry.check(name).and_then(|()| (self.each)(name, &entry)).err();
        }
        self.spans.push(data_offsets);
        Ok(())
    }

    fn finish(self) -> Result<Scanned, HeaderError> {
        let names = self.names.into_names();
        let names = names.map_err(|tensor| HeaderError::DuplicateTensor { tensor })?;
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        let name = |at| clip(names.get(at));
        let data_length = self.spans.length().map_err(|gap| match gap {
            Gap::Hole { at, begin, expected } => {
                HeaderError::Hole { tensor: name(at), begin, expected }
            }
            Gap::Overlap { at, begin, expected } => {
                HeaderError::Overlap { tensor: name(at), begin, expected }
            }
        })?;
        Ok(Scanned { metadata: self.metadata, names, data_length })
    }

    fn describe(self, error: &serde_json::Error) -> HeaderError {
        let message = clip(&error.to_string());
        match self.names.last().filter(|_| self.is_in_entry) {
            Some(tensor) => HeaderError::Entry { tensor: clip(tensor), message },
            None => HeaderError::Json { message },
        }
    }
}

impl<'de, F: FnMut(&str, &Entry<'_>) -> Result<(), HeaderError>> Visitor<'de> for &mut Scan<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header, an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut metadata = None;
        while let Some(is_metadata) = map.next_key_seed(Text(|key: &str| self.key(key)))? {
            if !is_metadata {
                self.is_in_entry = true;
                self.tensor(&mut map)?;
                self.is_in_entry = false;
            } else if metadata.replace(map.next_value_seed(Metadata)?).is_some() {
                return Err(A::Error::duplicate_field(METADATA));
            }
        }
        self.metadata = metadata.flatten();
        Ok(())
    }
}

/// Reads `__metadata__`: strings by distinct keys, or `null`, which a published model has
/// (vllm #50827).
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Option<BTreeMap<String, String>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
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
            if metadata.len() > MAX_METADATA {
                return Err(A::Error::custom("`__metadata__` has more than 100,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}
