//! The header of one file.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::table::Table;
use super::{HeaderError, PREFIX_LENGTH, ParameterCount, TensorInfo, clip};

/// The key that holds the file's own metadata among the tensors.
const METADATA: &str = "__metadata__";

/// The checked header of one safetensors file.
///
/// Serializes to the JSON it came from, less fields that the format does not know: tensors in the order
/// of the file, which is neither that of their names nor that of their data.
///
/// ```
/// use hf_meta::SafetensorsFileHeader;
///
/// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// assert_eq!(header.parameter_count().total(), 6);
/// assert_eq!(header.file_size(), 8 + 57 + 24);
/// # Ok::<(), hf_meta::safetensors::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsFileHeader {
    metadata: Option<BTreeMap<String, String>>,
    tensors: Table<TensorInfo>,
    parameter_count: ParameterCount,
    length: u64,
    data_length: u64,
}

impl SafetensorsFileHeader {
    /// Parses the bytes after the prefix, and checks everything that they alone can show: names are
    /// distinct, each tensor's shape and dtype fill exactly its span of bytes, and the spans cover
    /// the data from its first byte on, without hole or overlap.
    ///
    /// Differs from the `safetensors` crate in this: an unknown dtype is kept (of its size only the
    /// least is checked), a shape with a 0 never overflows, and fields that the format does not know
    /// are passed over unread; duplicate names, duplicate metadata keys, an array in place of an entry,
    /// an object in place of a dtype, white space before the `{` and counts beyond 64 bits are refused.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the tensor that breaks it.
    pub fn from_json(json: &[u8]) -> Result<Self, HeaderError> {
        let listing = Listing::parse(text(json)?)?;
        let tensors = Table::new(listing.tensors)
            .map_err(|tensor| HeaderError::DuplicateTensor { tensor })?;
        let mut parameter_count = ParameterCount::default();
        for (name, tensor) in tensors.iter() {
            tensor.check(name)?;
            parameter_count
                .add(tensor)
                .ok_or_else(|| HeaderError::Overflow { tensor: clip(name) })?;
        }
        let data_length = contiguous_length(&tensors)?;
        Ok(Self {
            metadata: listing.metadata,
            tensors,
            parameter_count,
            length: json.len() as u64,
            data_length,
        })
    }

    /// Checks that the data ends where the file does.
    ///
    /// # Errors
    ///
    /// [`HeaderError::FileSize`] when the file is shorter or longer than the header says.
    pub fn check_file_size(&self, file_size: u64) -> Result<(), HeaderError> {
        let expected = self.file_size();
        if expected == file_size {
            Ok(())
        } else {
            Err(HeaderError::FileSize { tensor: self.last_tensor(), expected, found: file_size })
        }
    }

    /// The tensor whose data comes last.
    fn last_tensor(&self) -> Option<String> {
        let last = self.tensors().max_by_key(|(_, tensor)| tensor.data_offsets)?;
        Some(clip(last.0))
    }

    /// The `__metadata__` of the file; `None` when it has none, or `null`.
    #[must_use]
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()
    }

    /// Every tensor with its name, in the order of the file.
    #[must_use]
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter()
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// Parameters, scalars and bytes per dtype.
    #[must_use]
    pub fn parameter_count(&self) -> &ParameterCount {
        &self.parameter_count
    }

    /// The length of the header in bytes, without the eight before it.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The length of the data in bytes.
    #[must_use]
    pub fn data_length(&self) -> u64 {
        self.data_length
    }

    /// The size in bytes of a file with this header: prefix, header and data.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        PREFIX_LENGTH.saturating_add(self.length).saturating_add(self.data_length)
    }

    /// The total that the file claims of itself, `total_parameters` of its metadata. A claim, not a
    /// count: it has been wrong by orders of magnitude (`huggingface_hub` #4221).
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("total_parameters")?.parse().ok()
    }
}

impl Serialize for SafetensorsFileHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(metadata) = &self.metadata {
            map.serialize_entry(METADATA, metadata)?;
        }
        for (name, tensor) in self.tensors() {
            map.serialize_entry(name, tensor)?;
        }
        map.end()
    }
}

/// The header as text, with the flaws that a JSON parser would only call unexpected bytes.
fn text(json: &[u8]) -> Result<&str, HeaderError> {
    match json.first() {
        None => return Err(HeaderError::Empty),
        Some(b'{') => {}
        Some(&first) => return Err(HeaderError::NotAnObject { first }),
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        return Err(HeaderError::NulPadding { at: json.len() - padding });
    }
    std::str::from_utf8(json).map_err(|error| HeaderError::NotUtf8 { at: error.valid_up_to() })
}

/// The length of the data, if the spans follow each other without hole or overlap.
fn contiguous_length(tensors: &Table<TensorInfo>) -> Result<u64, HeaderError> {
    let mut in_data_order: Vec<_> = tensors.iter().collect();
    in_data_order.sort_unstable_by_key(|(_, tensor)| tensor.data_offsets);
    in_data_order.into_iter().try_fold(0, |expected, (name, tensor)| {
        let (begin, end) = tensor.data_offsets;
        match begin.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(end),
            std::cmp::Ordering::Greater => {
                Err(HeaderError::Hole { tensor: clip(name), begin, expected })
            }
            std::cmp::Ordering::Less => {
                Err(HeaderError::Overlap { tensor: clip(name), begin, expected })
            }
        }
    })
}

/// What the JSON of a header lists, not yet checked.
#[derive(Default)]
struct Listing {
    metadata: Option<BTreeMap<String, String>>,
    tensors: Vec<(String, TensorInfo)>,
    /// The key whose value is being read: what an error of the JSON parser is about.
    current: Option<String>,
}

impl Listing {
    fn parse(json: &str) -> Result<Self, HeaderError> {
        let mut listing = Self::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match listing.read(&mut deserializer).and_then(|()| deserializer.end()) {
            Ok(()) => Ok(listing),
            Err(error) => Err(listing.describe(&error)),
        }
    }

    fn read<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn describe(self, error: &serde_json::Error) -> HeaderError {
        let message = clip(&error.to_string());
        match self.current {
            Some(tensor) => HeaderError::Entry { tensor: clip(&tensor), message },
            None => HeaderError::Json { message },
        }
    }
}

impl<'de> Visitor<'de> for &mut Listing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header, an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                if metadata.replace(map.next_value_seed(Metadata)?).is_some() {
                    return Err(A::Error::duplicate_field(METADATA));
                }
                continue;
            }
            let name = self.current.insert(name);
            let tensor = map.next_value()?;
            self.tensors.push((std::mem::take(name), tensor));
            self.current = None;
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
        }
        Ok(Some(metadata))
    }
}

#[cfg(test)]
mod tests;
