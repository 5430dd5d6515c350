//! The header of one file.

mod frame;
mod metadata;
mod outline;
mod plain;
mod read;
mod records;
mod scan;
mod spans;

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use self::frame::Frame;
use self::metadata::METADATA;
pub(crate) use self::outline::HeaderOutline;
use self::read::scan;
use self::records::Records;
use self::scan::Scanned;
pub(crate) use self::scan::Sink;
use super::HeaderError;
use crate::count::ParameterCount;
use crate::formats::names::Names;
use crate::formats::{TensorInfo, clip};

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
/// # Ok::<(), hf_meta::formats::safetensors::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsFileHeader {
    frame: Frame,
    names: Names,
    records: Records,
    parameter_count: ParameterCount,
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
        let (Scanned { metadata, names, data_length }, kept) = scan(json, Kept::default)?;
        let Kept { mut records, parameter_count } = kept;
        records.shrink_to_fit();
        let frame = Frame { metadata, length: json.len() as u64, data_length };
        Ok(Self { frame, names, records, parameter_count })
    }

    /// Counts what the bytes after the prefix list, and keeps nothing of it. Checks what
    /// [`from_json`](Self::from_json) does, in less memory and, by `cargo bench --bench parse`, 10 to 20 %
    /// less time.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the tensor that breaks it.
    pub fn count_json(json: &[u8]) -> Result<ParameterCount, HeaderError> {
        HeaderOutline::scan(json, ParameterCount::default).map(|(_, count)| count)
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
        self.frame.metadata.as_ref()
    }

    /// Every tensor with its name, in the order of the file.
    #[must_use]
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, TensorInfo)> {
        self.names.iter().enumerate().map(|(at, name)| (name, self.records.get(at)))
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorInfo> {
        self.names.position(name).map(|at| self.records.get(at))
    }

    /// Parameters, scalars and bytes per dtype.
    #[must_use]
    pub fn parameter_count(&self) -> &ParameterCount {
        &self.parameter_count
    }

    /// The length of the header in bytes, without the eight before it.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.frame.length
    }

    /// The length of the data in bytes.
    #[must_use]
    pub fn data_length(&self) -> u64 {
        self.frame.data_length
    }

    /// The size in bytes of a file with this header: prefix, header and data.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.frame.file_size()
    }

    /// The total that the file claims of itself, `total_parameters` of its metadata. A claim, not a
    /// count: it has been wrong by orders of magnitude (`huggingface_hub` #4221).
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        self.frame.declared_total()
    }
}

/// What a header keeps of its tensors beside their names.
#[derive(Default)]
struct Kept {
    records: Records,
    parameter_count: ParameterCount,
}

impl Sink for Kept {
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
        self.records.push(tensor);
        self.parameter_count.take(name, tensor)
    }
}

impl Sink for ParameterCount {
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
        self.add(tensor).ok_or_else(|| HeaderError::overflow(name))
    }
}

impl Serialize for SafetensorsFileHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(metadata) = self.metadata() {
            map.serialize_entry(METADATA, metadata)?;
        }
        for (name, tensor) in self.tensors() {
            map.serialize_entry(name, &tensor)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
