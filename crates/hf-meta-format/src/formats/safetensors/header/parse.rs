//! Parses the JSON of a header.

use std::collections::BTreeMap;
use std::mem::replace;

use serde::de::IgnoredAny;

use super::metadata::{METADATA, MetadataMap};
use crate::formats::names::LONGEST;
use crate::formats::safetensors::HeaderError;
use crate::formats::safetensors::json::{JsonError, JsonReader};
use crate::formats::safetensors::position::TextPosition;
use crate::formats::table::TensorTableBuilder;
use crate::formats::{TensorInfo, TensorTable, clip};

/// The content of a header.
pub(super) struct ParsedHeader {
    pub(super) tensors: TensorTable,
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

/// Parses the JSON of a header and checks all rules.
pub(super) fn parse(json: &[u8]) -> Result<ParsedHeader, HeaderError> {
    let text = check_text(json)?;
    let mut reader = JsonReader::from_text(text);
    let invalid = |error| HeaderError::InvalidJson { message: describe(json, &error) };
    let mut builder = TensorTableBuilder::for_header(json.len());
    let mut metadata = None;
    let mut tensor = TensorInfo::EMPTY;
    reader.expect(b'{', "expected a header object").map_err(invalid)?;
    let mut is_first = true;
    while reader.next_entry(replace(&mut is_first, false)).map_err(invalid)? {
        let name = reader.key().map_err(invalid)?;
        if name == METADATA {
            if metadata.is_some() {
                return Err(invalid(reader.invalid("`__metadata__` appears twice")));
            }
            metadata = Some(reader.value::<MetadataMap>().map_err(invalid)?.0);
        } else {
            read_tensor(&mut reader, &mut tensor).map_err(|error| HeaderError::InvalidEntry {
                tensor: clip(&name),
                message: describe(json, &error),
            })?;
            builder.push(&name, &tensor);
        }
    }
    reader.skip_space();
    if !reader.rest().is_empty() {
        return Err(invalid(reader.invalid("expected nothing after the header")));
    }
    Ok(ParsedHeader { tensors: builder.finish()?, metadata: metadata.flatten() })
}

/// Returns the header as text. Detects mistakes that a JSON parser would only report as unexpected bytes.
fn check_text(json: &[u8]) -> Result<&str, HeaderError> {
    // According to the format a header starts with `{`, but all readers accept leading whitespace.
    match json.iter().find(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {
        None => return Err(HeaderError::Empty),
        Some(b'{') => {}
        Some(&first) => return Err(HeaderError::NotAnObject { first }),
    }
    if json.len() > LONGEST {
        return Err(HeaderError::TooLarge { length: json.len() as u64, limit: LONGEST as u64 });
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        return Err(HeaderError::NulPadding { at: json.len() - padding });
    }
    std::str::from_utf8(json).map_err(|error| HeaderError::NotUtf8 { at: error.valid_up_to() })
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
    let mut is_first = true;
    while reader.next_entry(replace(&mut is_first, false))? {
        let key = reader.key()?;
        match &*key {
            "dtype" if !replace(&mut has_dtype, true) => {
                let dtype = reader.string("expected a dtype string")?;
                tensor.dtype = (&*dtype.decode()?).into();
            }
            "shape" if !replace(&mut has_shape, true) => read_shape(reader, &mut tensor.shape)?,
            "data_offsets" if !replace(&mut has_offsets, true) => {
                tensor.data_offsets = read_offsets(reader)?;
            }
            "dtype" | "shape" | "data_offsets" => {
                return Err(reader.invalid(format!("`{key}` appears twice")));
            }
            _ => drop(reader.value::<IgnoredAny>()?),
        }
    }
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
    if !reader.literal(r#"{"dtype":""#) {
        return Ok(false);
    }
    let dtype = reader.word();
    // Most tensors have the same dtype as the previous one, and one comparison is cheaper than up to ten.
    if dtype != tensor.dtype.as_str() {
        tensor.dtype = dtype.into();
    }
    if !reader.literal(r#"","shape":"#) {
        return Ok(false);
    }
    read_shape(reader, &mut tensor.shape)?;
    if !reader.literal(r#","data_offsets":"#) {
        return Ok(false);
    }
    tensor.data_offsets = read_offsets(reader)?;
    Ok(reader.literal("}"))
}

/// Reads the lengths of the dimensions.
fn read_shape(reader: &mut JsonReader<'_>, shape: &mut Vec<u64>) -> Result<(), JsonError> {
    shape.clear();
    reader.expect(b'[', "expected a shape, an array of integers")?;
    let mut is_first = true;
    while reader.next_element(replace(&mut is_first, false))? {
        shape.push(reader.number("expected a dimension, a 64-bit unsigned integer")?);
    }
    Ok(())
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

/// Describes an error: expected and found token, line and column.
fn describe(json: &[u8], error: &JsonError) -> String {
    let (at, message) = match error {
        JsonError::Incomplete => (json.len(), "unexpected end".into()),
        JsonError::Invalid(invalid) if invalid.message.starts_with("expected") => {
            (invalid.at, format!("{}, found {}", invalid.message, found_at(json, invalid.at)))
        }
        JsonError::Invalid(invalid) => (invalid.at, clip(&invalid.message)),
    };
    let before = json.get(..at).unwrap_or(json);
    TextPosition::default().after(before).describe(&message)
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
