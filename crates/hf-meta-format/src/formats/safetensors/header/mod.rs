//! The header of a safetensors file.

mod metadata;
mod parse;

use std::ops::{Deref, Range};

use serde::ser::{Serialize, SerializeMap, Serializer};

use self::metadata::METADATA;
use self::parse::ParsedHeader;
use super::{HeaderError, HeaderLength, PREFIX_LENGTH};
use crate::formats::FileHeader;

/// The validated header of a safetensors file.
///
/// Serializes to the JSON in the file, without unknown fields. Tensors are kept in file order, which can differ from
/// the order of their names and of their data.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
///
/// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// assert_eq!(header.tensors().get("w").unwrap().elements(), Some(6));
/// assert_eq!(header.file_size(), 8 + 57 + 24);
/// # Ok::<(), hf_meta_format::formats::safetensors::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsFileHeader(FileHeader);

impl SafetensorsFileHeader {
    /// Parses the JSON that follows the length prefix. Checks that names are unique, that the shape and dtype of each
    /// tensor match its data offsets, and that the data has no gaps or overlaps.
    ///
    /// Unlike the `safetensors` crate, it accepts unknown dtypes (checking only a lower bound of their size), never
    /// overflows on a shape that contains 0, and ignores unknown fields. It rejects duplicate names, duplicate
    /// metadata keys, an array in place of an entry, and an object in place of a dtype.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule, naming the tensor that violates it.
    pub fn from_json(json: &[u8]) -> Result<Self, HeaderError> {
        let ParsedHeader { tensors, metadata } = parse::parse(json)?;
        let header_range = PREFIX_LENGTH..PREFIX_LENGTH.saturating_add(json.len() as u64);
        let header = FileHeader::new(tensors, header_range).with_metadata(metadata);
        Ok(Self(header.begins_with_space(json.first() != Some(&b'{'))))
    }

    /// Parses the header from the first bytes of a file: the 8-byte length prefix, the header, and any amount of
    /// tensor data. Performs the checks of [`from_json`](Self::from_json) and, if `file_size` (in bytes) is given,
    /// checks the size of the file.
    ///
    /// ```
    /// use hf_meta_format::SafetensorsFileHeader;
    ///
    /// let file = b"\x38\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}} ......";
    /// let header = SafetensorsFileHeader::from_file_start(file, Some(file.len() as u64))?;
    /// assert_eq!(header.tensors().get("w").unwrap().shape, [2, 3]);
    /// # Ok::<(), hf_meta_format::formats::HeaderError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`HeaderError::Truncated`] if the bytes end before the header does, or the first violated rule, naming
    /// the tensor that violates it.
    pub fn from_file_start(start: &[u8], file_size: Option<u64>) -> Result<Self, HeaderError> {
        let length = HeaderLength::from_prefix(start, file_size, HeaderLength::DEFAULT_LIMIT)?;
        let Range { start: begin, end } = length.range();
        let [first, last] = [begin, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let truncated = HeaderError::Truncated { expected: end, found: start.len() as u64 };
        let header = Self::from_json(start.get(first..last).ok_or(truncated)?)?;
        file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
        Ok(header)
    }

    /// Returns the length of the header's JSON in bytes, without the 8-byte prefix.
    #[must_use]
    pub fn length(&self) -> u64 {
        let Range { start, end } = self.header_range();
        end - start
    }
}

impl AsRef<FileHeader> for SafetensorsFileHeader {
    fn as_ref(&self) -> &FileHeader {
        &self.0
    }
}

impl Deref for SafetensorsFileHeader {
    type Target = FileHeader;

    fn deref(&self) -> &FileHeader {
        &self.0
    }
}

impl From<FileHeader> for SafetensorsFileHeader {
    fn from(header: FileHeader) -> Self {
        Self(header)
    }
}

impl From<SafetensorsFileHeader> for FileHeader {
    fn from(header: SafetensorsFileHeader) -> Self {
        header.0
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
