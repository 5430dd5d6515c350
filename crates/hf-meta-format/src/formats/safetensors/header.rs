//! The header of a safetensors file.

use std::collections::BTreeMap;
use std::mem::replace;
use std::ops::{Deref, Range};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::json::{JsonError, JsonReader};
use super::{DEFAULT_HEADER_LIMIT, HeaderError, HeaderErrorKind, PREFIX_LENGTH, header_range};
use crate::formats::names::MAX_TOTAL_BYTES;
use crate::formats::{FileHeader, TensorInfo, TensorTable, TensorTableBuilder, clip};

/// The key of the metadata, on the same level as the tensors.
pub(super) const METADATA: &str = "__metadata__";

type Metadata = Option<BTreeMap<String, String>>;

/// The maximum number of entries in the metadata. A map with 100 MB of short entries would take gigabytes of memory.
const MAX_METADATA: usize = 100_000;

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
pub struct SafetensorsFileHeader(#[doc(hidden)] pub FileHeader);

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
        let text = check_text(json)?;
        let parsed = parse(text).map_err(|error| {
            let message = "the header is malformed";
            as_header_error(json, error, HeaderErrorKind::InvalidJson, message)
        });
        let (tensors, metadata) = parsed?;
        let header_range = PREFIX_LENGTH..PREFIX_LENGTH.saturating_add(json.len() as u64);
        let mut header = FileHeader::new(tensors, header_range).with_metadata(metadata);
        header.has_leading_space = !text.starts_with('{');
        Ok(Self(header))
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
    /// Returns [`HeaderErrorKind::Truncated`] if the bytes end before the header does, or the first violated rule, naming
    /// the tensor that violates it.
    pub fn from_file_start(start: &[u8], file_size: Option<u64>) -> Result<Self, HeaderError> {
        let Range { start: begin, end } = header_range(start, file_size, DEFAULT_HEADER_LIMIT)?;
        let [first, last] = [begin, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let truncated = || HeaderError::truncated(end, start.len() as u64);
        let header = Self::from_json(start.get(first..last).ok_or_else(truncated)?)?;
        file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
        Ok(header)
    }

    /// Returns the length of the header's JSON in bytes, without the 8-byte prefix.
    pub fn length(&self) -> u64 {
        let Range { start, end } = self.header_range();
        end - start
    }
}

impl Deref for SafetensorsFileHeader {
    type Target = FileHeader;

    fn deref(&self) -> &FileHeader {
        &self.0
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

/// Returns the header as text. Detects mistakes that a JSON parser would only report as unexpected bytes.
fn check_text(json: &[u8]) -> Result<&str, HeaderError> {
    // According to the format a header starts with `{`, but all readers accept leading whitespace.
    match json.iter().find(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {
        None => return Err(HeaderError::new(HeaderErrorKind::Empty, "the header is empty")),
        Some(b'{') => {}
        Some(first) => {
            let message = format!("the header starts with byte 0x{first:02x} instead of `{{`");
            return Err(HeaderError::new(HeaderErrorKind::NotAnObject, message));
        }
    }
    if json.len() > MAX_TOTAL_BYTES {
        return Err(HeaderError::too_large(json.len() as u64, MAX_TOTAL_BYTES as u64));
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        let at = json.len() - padding;
        let message = format!(
            "the header is padded with NUL bytes from byte {at}; it must be padded with spaces"
        );
        return Err(HeaderError::new(HeaderErrorKind::NulPadding, message));
    }
    std::str::from_utf8(json).map_err(|error| {
        let message = format!("the header is not valid UTF-8 at byte {}", error.valid_up_to());
        HeaderError::new(HeaderErrorKind::NotUtf8, message)
    })
}

/// Parses the tensors and the metadata.
fn parse(text: &str) -> Result<(TensorTable, Metadata), JsonError> {
    let mut reader = JsonReader::new(text);
    let mut builder = TensorTableBuilder::for_header(text.len());
    let (mut metadata, mut tensor) = (None, TensorInfo::EMPTY);
    reader.expect(b'{', "expected a header object")?;
    reader.items(b'}', |reader| {
        let name = reader.key()?;
        if name == METADATA {
            if metadata.is_some() {
                return Err(reader.invalid("`__metadata__` appears twice"));
            }
            let text = |reader: &mut JsonReader<'_>| {
                Ok(Some(reader.string("expected a string")?.into_owned()))
            };
            // A published model contains `null` (vllm #50827).
            metadata = Some(reader.metadata(METADATA, MAX_METADATA, text)?);
            return Ok(());
        }
        read_tensor(reader, &mut tensor).map_err(|error| {
            let message = format!("the entry of tensor `{}` is malformed", clip(&name));
            let error =
                as_header_error(text.as_bytes(), error, HeaderErrorKind::InvalidEntry, &message);
            error.with_tensor(&name)
        })?;
        builder.push(&name, &tensor);
        Ok(())
    })?;
    reader.skip_space();
    if !reader.rest().is_empty() {
        return Err(reader.invalid("expected nothing after the header"));
    }
    Ok((builder.finish()?, metadata.flatten()))
}

/// Reads a tensor entry into `tensor`, and reuses the memory of its shape.
fn read_tensor(reader: &mut JsonReader<'_>, tensor: &mut TensorInfo) -> Result<(), JsonError> {
    let start = reader.at;
    if read_compact_tensor(reader, tensor)? {
        return Ok(());
    }
    reader.at = start;
    reader.expect(b'{', "expected an object with `dtype`, `shape` and `data_offsets`")?;
    let (mut has_dtype, mut has_shape, mut has_offsets) = (false, false, false);
    reader.items(b'}', |reader| {
        let key = reader.key()?;
        match &*key {
            "dtype" if !replace(&mut has_dtype, true) => {
                tensor.dtype = (&*reader.string("expected a dtype string")?).into();
            }
            "shape" if !replace(&mut has_shape, true) => read_shape(reader, &mut tensor.shape)?,
            "data_offsets" if !replace(&mut has_offsets, true) => {
                tensor.data_offsets = read_offsets(reader)?;
            }
            "dtype" | "shape" | "data_offsets" => {
                return Err(reader.invalid(format!("`{key}` appears twice")));
            }
            _ => drop(reader.value()?),
        }
        Ok(())
    })?;
    let fields = [(has_dtype, "dtype"), (has_shape, "shape"), (has_offsets, "data_offsets")];
    match fields.iter().find(|(is_there, _)| !is_there) {
        Some((_, missing)) => Err(reader.invalid(format!("missing field `{missing}`"))),
        None => Ok(()),
    }
}

/// Reads a tensor in the form that the `safetensors` crate writes: without spaces, and with fields in this order.
/// Nearly all files use it, and comparing whole literals takes a third of the time of reading keys. Returns `false`
/// for any other form.
fn read_compact_tensor(
    reader: &mut JsonReader<'_>,
    tensor: &mut TensorInfo,
) -> Result<bool, JsonError> {
    if !reader.eat(r#"{"dtype":""#) {
        return Ok(false);
    }
    let dtype = reader.word();
    // Most tensors have the same dtype as the previous one, and one comparison is cheaper than up to ten.
    if dtype != tensor.dtype.as_str() {
        tensor.dtype = dtype.into();
    }
    if !reader.eat(r#"","shape":"#) {
        return Ok(false);
    }
    read_shape(reader, &mut tensor.shape)?;
    if !reader.eat(r#","data_offsets":"#) {
        return Ok(false);
    }
    tensor.data_offsets = read_offsets(reader)?;
    Ok(reader.eat("}"))
}

/// Reads the lengths of the dimensions.
fn read_shape(reader: &mut JsonReader<'_>, shape: &mut Vec<u64>) -> Result<(), JsonError> {
    shape.clear();
    reader.expect(b'[', "expected a shape, an array of integers")?;
    reader.items(b']', |reader| {
        shape.push(reader.number("expected a dimension, a 64-bit unsigned integer")?);
        Ok(())
    })
}

/// Reads the start and end offsets of a tensor's data.
fn read_offsets(reader: &mut JsonReader<'_>) -> Result<(u64, u64), JsonError> {
    let expected = "expected an offset, a 64-bit unsigned integer";
    reader.expect(b'[', "expected `data_offsets`, an array of two integers")?;
    let begin = reader.number(expected)?;
    reader.expect(b',', "expected `,` and a second offset")?;
    let end = reader.number(expected)?;
    reader.expect(b']', "expected `]` after two offsets")?;
    Ok((begin, end))
}

/// Returns the error for malformed JSON: the expected and the found token, and the offset.
fn as_header_error(
    json: &[u8],
    error: JsonError,
    kind: HeaderErrorKind,
    what: &str,
) -> HeaderError {
    let (at, reason) = match error {
        JsonError::Rule(error) => return *error,
        JsonError::Incomplete => (json.len(), "unexpected end".into()),
        JsonError::Invalid(invalid) if invalid.message.starts_with("expected") => {
            (invalid.at, format!("{}, found {}", invalid.message, found_at(json, invalid.at)))
        }
        JsonError::Invalid(invalid) => (invalid.at, clip(&invalid.message)),
    };
    HeaderError::new(kind, format!("{what}: {reason} at byte {at}"))
}

/// Describes the value at an offset.
fn found_at(json: &[u8], at: usize) -> String {
    let rest = json.get(at..).unwrap_or_default();
    let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
    let length = rest.iter().take(30).position(is_end).unwrap_or(rest.len().min(30)).max(1);
    match rest.first() {
        None => "the end".to_owned(),
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        Some(b'"') => "a string".to_owned(),
        Some(_) => {
            format!("`{}`", String::from_utf8_lossy(rest.get(..length).unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests;
