//! Edits of the metadata in the header of a safetensors file.
//!
//! An edit changes the entry `__metadata__` and nothing else: the entries of the tensors, their order, unknown fields and
//! the spaces between them stay as they are, byte for byte. So the offsets of the data stay valid, and a header that is
//! padded to its old length replaces the old one in place, whatever the size of the file.
//!
//! ```
//! use hf_meta_format::formats::safetensors::{MetadataEdit, edit_header, pad_header};
//!
//! let json = br#"{"__metadata__":{"format":"pt","ss_tag_frequency":"{}"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
//! let edited = edit_header(json, &[MetadataEdit::Delete("ss_*".to_owned())])?;
//! let expected = br#"{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
//! assert_eq!(edited, expected);
//! assert_eq!(pad_header(edited, json.len()).unwrap().len(), json.len());
//! # Ok::<(), hf_meta_format::formats::safetensors::EditError>(())
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

use super::header::METADATA;
use super::json::{JsonError, JsonReader};
use super::{DEFAULT_HEADER_LIMIT, HeaderError, HeaderErrorKind, SafetensorsFileHeader};
use crate::formats::clip;

/// The maximum length of a key or a value that an edit sets, in bytes. Every reader of the file reads the header in full,
/// and an icon of 256 × 256 pixels, the longest value that the SAI Model Spec recommends, has 20 to 100 kB.
pub const MAX_METADATA_VALUE: usize = 1_000_000;

/// The key that states the framework of the tensors. `load_state_dict` of accelerate (`utils/modeling.py`, 1.15.0) and of
/// transformers 4 reject files with metadata but without it.
const FORMAT: &str = "format";

/// The alignment of the data in bytes, as the `safetensors` crate writes it.
const ALIGNMENT: usize = 8;

/// A change of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataEdit {
    /// Sets the value of a key. A new key is appended; an existing one keeps its position.
    Set {
        /// The key, such as `modelspec.title`.
        key: String,
        /// The new value.
        value: String,
    },
    /// Deletes all keys that match a pattern: `*` matches any characters, `?` matches one.
    Delete(String),
    /// Deletes all keys except `format`, which loaders require.
    DeleteAll,
}

impl MetadataEdit {
    /// Returns whether the edit deletes a key.
    ///
    /// ```
    /// use hf_meta_format::formats::safetensors::MetadataEdit;
    ///
    /// assert!(MetadataEdit::Delete("ss_*".to_owned()).deletes("ss_tag_frequency"));
    /// assert!(!MetadataEdit::DeleteAll.deletes("format"));
    /// ```
    pub fn deletes(&self, key: &str) -> bool {
        match self {
            Self::Set { .. } => false,
            Self::Delete(pattern) => matches(pattern, key),
            Self::DeleteAll => key != FORMAT,
        }
    }

    /// Returns the key that the edit deletes, if its pattern matches no other key.
    pub fn exact_key(&self) -> Option<&str> {
        match self {
            Self::Delete(pattern) if !pattern.contains(['*', '?']) => Some(pattern),
            _ => None,
        }
    }
}

/// The error of an edit that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EditError {
    /// The header is invalid, or the edited header exceeds a limit of the format.
    #[error(transparent)]
    InvalidHeader(#[from] HeaderError),
    /// A key or value exceeds [`MAX_METADATA_VALUE`].
    #[error("the entry `{key}` has {bytes} bytes; at most {MAX_METADATA_VALUE} can be set")]
    TooLong {
        /// The key, truncated to 200 characters.
        key: String,
        /// The length of the longer of key and value in bytes.
        bytes: usize,
    },
}

/// Applies edits to the JSON of a header, in order. Returns the edited JSON without padding.
///
/// Entries of the metadata that stay keep their bytes and their order. If no entry is left, `__metadata__` is removed:
/// loaders accept a file without metadata, but reject metadata without `format`.
///
/// ```
/// use hf_meta_format::formats::safetensors::{MetadataEdit, edit_header};
///
/// let title = MetadataEdit::Set { key: "modelspec.title".into(), value: "A \"title\"".into() };
/// assert_eq!(edit_header(b"{}   ", &[title])?, br#"{"__metadata__":{"modelspec.title":"A \"title\""}}"#);
/// # Ok::<(), hf_meta_format::formats::safetensors::EditError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the header is invalid before or after the edit, or if a key or value is too long.
pub fn edit_header(json: &[u8], edits: &[MetadataEdit]) -> Result<Vec<u8>, EditError> {
    SafetensorsFileHeader::from_json(json)?;
    let text = std::str::from_utf8(json.trim_ascii_end()).map_err(|_| changed_while_parsed())?;
    let found = MetadataText::find(text).map_err(|_| changed_while_parsed())?;
    let mut entries = EditedEntries::new(found.entries.clone());
    for edit in edits {
        entries.apply(edit)?;
    }
    let edited = found.replaced(text, &entries.into_texts()).into_bytes();
    check_length(edited.len())?;
    SafetensorsFileHeader::from_json(&edited)?;
    Ok(edited)
}

/// Pads the JSON of a header with spaces to a length in bytes. Returns `None` if the JSON is longer.
///
/// ```
/// use hf_meta_format::formats::safetensors::pad_header;
///
/// assert_eq!(pad_header(b"{}".to_vec(), 4).unwrap(), b"{}  ");
/// assert_eq!(pad_header(b"{}".to_vec(), 1), None);
/// ```
pub fn pad_header(mut json: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    (json.len() <= length).then(|| {
        json.resize(length, b' ');
        json
    })
}

/// Pads the JSON of a header with at least `reserve` spaces, to a multiple of eight bytes. The spaces leave room for
/// edits in place.
///
/// ```
/// use hf_meta_format::formats::safetensors::padded_header;
///
/// assert_eq!(padded_header(b"{}".to_vec(), 0)?, b"{}      ");
/// assert_eq!(padded_header(b"{}".to_vec(), 7)?.len(), 16);
/// # Ok::<(), hf_meta_format::formats::safetensors::EditError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the header would exceed the length that readers accept.
pub fn padded_header(json: Vec<u8>, reserve: usize) -> Result<Vec<u8>, EditError> {
    let length = json.len().saturating_add(reserve);
    // Checked before the memory is allocated.
    check_length(length)?;
    let length = length.next_multiple_of(ALIGNMENT);
    check_length(length)?;
    Ok(pad_header(json, length).unwrap_or_default())
}

fn check_length(length: usize) -> Result<(), HeaderError> {
    let length = length as u64;
    if length > DEFAULT_HEADER_LIMIT {
        return Err(HeaderError::too_large(length, DEFAULT_HEADER_LIMIT));
    }
    Ok(())
}

/// Returns the error for a valid header that is not valid when read again, which does not occur.
#[cold]
fn changed_while_parsed() -> EditError {
    HeaderError::new(HeaderErrorKind::InvalidJson, "the header is malformed").into()
}

/// An entry of the metadata.
#[derive(Clone, Debug)]
struct MetadataEntry<'a> {
    /// The JSON of the key, the colon and the value.
    text: Cow<'a, str>,
    key: Cow<'a, str>,
    value: Cow<'a, str>,
}

/// The metadata in the text of a header.
#[derive(Debug)]
struct MetadataText<'a> {
    /// The range of key and value; `None` without metadata.
    entry: Option<Range<usize>>,
    /// The start of the value.
    value_start: usize,
    /// The offset after the opening brace of the header.
    header_start: usize,
    entries: Vec<MetadataEntry<'a>>,
}

impl<'a> MetadataText<'a> {
    /// Finds the metadata in a valid header.
    fn find(text: &'a str) -> Result<Self, JsonError> {
        let mut reader = JsonReader::new(text);
        reader.expect(b'{', "expected a header object")?;
        let (header_start, mut is_first) = (reader.at, true);
        let mut found = Self { entry: None, value_start: 0, header_start, entries: Vec::new() };
        while found.entry.is_none() && reader.next_item(is_first, b'}')? {
            is_first = false;
            reader.skip_space();
            let start = reader.at;
            let is_metadata = reader.key()? == METADATA;
            reader.skip_space();
            let value_start = reader.at;
            if is_metadata && reader.peek()? == b'{' {
                found.entries = read_entries(&mut reader, text)?;
            } else {
                reader.value()?;
            }
            if is_metadata {
                (found.entry, found.value_start) = (Some(start..reader.at), value_start);
            }
        }
        Ok(found)
    }

    /// Returns the text of the header with other entries in its metadata.
    fn replaced(&self, text: &str, entries: &[Cow<'_, str>]) -> String {
        let is_same = entries.len() == self.entries.len()
            && entries.iter().zip(&self.entries).all(|(new, old)| **new == *old.text);
        if is_same {
            return text.to_owned();
        }
        let value = format!("{{{}}}", entries.join(","));
        let Some(Range { start, end }) = self.entry.clone() else {
            let (before, after) = text.split_at(self.header_start);
            let comma = if after.trim_ascii_start().starts_with('}') { "" } else { "," };
            return format!("{before}\"{METADATA}\":{value}{comma}{after}");
        };
        if !entries.is_empty() {
            return format!("{}{value}{}", &text[..self.value_start], &text[end..]);
        }
        // The comma after the entry goes with it, or the one before it if it is the last one.
        let (before, after) = (&text[..start], &text[end..]);
        if let Some(after) = after.trim_ascii_start().strip_prefix(',') {
            return format!("{before}{after}");
        }
        let before = before.trim_ascii_end();
        format!("{}{after}", before.strip_suffix(',').unwrap_or(before))
    }
}

/// Reads the entries of the metadata at its opening brace.
fn read_entries<'a>(
    reader: &mut JsonReader<'a>,
    text: &'a str,
) -> Result<Vec<MetadataEntry<'a>>, JsonError> {
    let mut entries = Vec::new();
    reader.expect(b'{', "expected an object")?;
    reader.items(b'}', |reader| {
        reader.skip_space();
        let start = reader.at;
        let key = reader.key()?;
        let value = reader.string("expected a string")?;
        entries.push(MetadataEntry { text: Cow::Borrowed(&text[start..reader.at]), key, value });
        Ok(())
    })?;
    Ok(entries)
}

/// The entries of the metadata while they are edited.
#[derive(Debug)]
struct EditedEntries<'a> {
    /// Deleted entries are `None`.
    entries: Vec<Option<MetadataEntry<'a>>>,
    /// The position of each key. A header can have 100,000 keys, and an edit can set as many.
    positions: HashMap<String, usize>,
}

impl<'a> EditedEntries<'a> {
    fn new(entries: Vec<MetadataEntry<'a>>) -> Self {
        let keys = entries.iter().enumerate();
        let positions = keys.map(|(at, entry)| (entry.key.clone().into_owned(), at)).collect();
        Self { entries: entries.into_iter().map(Some).collect(), positions }
    }

    fn apply(&mut self, edit: &MetadataEdit) -> Result<(), EditError> {
        match edit {
            MetadataEdit::Set { key, value } => self.set(key, value),
            MetadataEdit::Delete(_) | MetadataEdit::DeleteAll => {
                match edit.exact_key() {
                    // An edit can list 100,000 keys, and comparing each with every entry takes minutes.
                    Some(key) => self.delete_key(key),
                    None => self.delete_matches(|key| edit.deletes(key)),
                }
                Ok(())
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), EditError> {
        let bytes = key.len().max(value.len());
        if bytes > MAX_METADATA_VALUE {
            return Err(EditError::TooLong { key: clip(key), bytes });
        }
        let new = || {
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let text = format!("{}:{}", quoted(key), quoted(value));
            let [key, value] = [key, value].map(|text| Cow::Owned(text.to_owned()));
            MetadataEntry { text: Cow::Owned(text), key, value }
        };
        let Some(entry) = self.positions.get(key).and_then(|at| self.entries.get_mut(*at)) else {
            self.positions.insert(key.to_owned(), self.entries.len());
            self.entries.push(Some(new()));
            return Ok(());
        };
        // An entry with the same value keeps its bytes.
        if entry.as_ref().is_none_or(|entry| entry.value != value) {
            *entry = Some(new());
        }
        Ok(())
    }

    fn delete_key(&mut self, key: &str) {
        let position = self.positions.remove(key);
        if let Some(entry) = position.and_then(|at| self.entries.get_mut(at)) {
            *entry = None;
        }
    }

    fn delete_matches(&mut self, is_deleted: impl Fn(&str) -> bool) {
        for slot in &mut self.entries {
            if let Some(entry) = slot.take_if(|entry| is_deleted(&entry.key)) {
                self.positions.remove(&*entry.key);
            }
        }
    }

    /// Returns the JSON of each entry.
    fn into_texts(self) -> Vec<Cow<'a, str>> {
        self.entries.into_iter().flatten().map(|entry| entry.text).collect()
    }
}

/// Returns whether a text matches a pattern. The time is at most the product of their lengths: only the last `*` before a
/// difference is extended.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    // The position after the last `*`, and the end of the text that it matches.
    let mut star = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next + 1, at));
                next += 1;
            }
            // `?` matches one character, whose other bytes follow.
            Some(b'?') => {
                at += 1;
                next += 1;
                while text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    at += 1;
                }
            }
            Some(byte) if *byte == text[at] => {
                at += 1;
                next += 1;
            }
            _ => match &mut star {
                Some((after, end)) => {
                    *end += 1;
                    (next, at) = (*after, *end);
                }
                None => return false,
            },
        }
    }
    pattern.get(next..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests;
