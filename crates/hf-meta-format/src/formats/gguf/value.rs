//! Values of keys.

use super::cursor::{Cursor, Stop};
use super::error::GgufError;
use crate::formats::clip;

/// The maximum length of a stored string, and of a list stored as text, in bytes. Names, licenses and languages are
/// shorter; chat templates are longer.
pub(super) const LONGEST_TEXT: usize = 1_024;

/// The type of a value that is not a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    U64,
    I64,
    F64,
}

/// The type number of lists.
const LIST: u32 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Scalar(ScalarType),
    List,
}

impl ValueType {
    pub(super) const U32: Self = Self::Scalar(ScalarType::U32);

    /// Reads the type of a key's value.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, Stop> {
        use ScalarType::{Bool, F32, F64, I8, I16, I32, I64, Text, U8, U16, U32, U64};
        Ok(Self::Scalar(match cursor.u32()? {
            0 => U8,
            1 => I8,
            2 => U16,
            3 => I16,
            4 => U32,
            5 => I32,
            6 => F32,
            7 => Bool,
            8 => Text,
            LIST => return Ok(Self::List),
            10 => U64,
            11 => I64,
            12 => F64,
            number => return Err(GgufError::UnknownValueType { key: clip(key), number }.into()),
        }))
    }
}

impl ScalarType {
    /// Returns the size of a value in bytes; `None` for strings.
    pub(super) fn size(self) -> Option<u64> {
        Some(match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Text => return None,
        })
    }

    /// Returns the minimum size of a value in bytes.
    pub(super) fn smallest_size(self) -> u64 {
        // A string has at least its length field.
        self.size().unwrap_or(8)
    }

    /// Reads a value as text. Long strings are replaced by their length.
    pub(super) fn read(self, cursor: &mut Cursor<'_>) -> Result<String, Stop> {
        Ok(match self {
            Self::U8 => u8::from_le_bytes(cursor.array()?).to_string(),
            Self::I8 => i8::from_le_bytes(cursor.array()?).to_string(),
            Self::U16 => u16::from_le_bytes(cursor.array()?).to_string(),
            Self::I16 => i16::from_le_bytes(cursor.array()?).to_string(),
            Self::U32 => cursor.u32()?.to_string(),
            Self::I32 => i32::from_le_bytes(cursor.array()?).to_string(),
            Self::F32 => f32::from_le_bytes(cursor.array()?).to_string(),
            Self::Bool => (cursor.array::<1>()? != [0]).to_string(),
            Self::Text => stored_text(cursor.text()?),
            Self::U64 => cursor.u64()?.to_string(),
            Self::I64 => i64::from_le_bytes(cursor.array()?).to_string(),
            Self::F64 => f64::from_le_bytes(cursor.array()?).to_string(),
        })
    }
}

/// Returns the stored form of a string: its length if it is long.
fn stored_text(bytes: &[u8]) -> String {
    if bytes.len() > LONGEST_TEXT {
        return format!("({} bytes)", bytes.len());
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// A list whose elements are being read.
#[derive(Debug)]
pub(super) struct List {
    pub(super) key: String,
    element: ScalarType,
    /// The number of elements.
    pub(super) length: u64,
    /// The number of unread elements.
    pub(super) left: u64,
    /// The size of the elements read so far, in bytes.
    pub(super) bytes: u64,
    /// The elements as text; `None` once they are too long to store.
    text: Option<String>,
}

impl List {
    /// The maximum number of elements of a stored list.
    const MOST_STORED: u64 = 64;

    /// Reads the element type and the length of a list.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, Stop> {
        let ValueType::Scalar(element) = ValueType::read(cursor, key)? else {
            return Err(GgufError::NestedArray { key: clip(key) }.into());
        };
        let length = cursor.u64()?;
        cursor.check(length.saturating_mul(element.smallest_size()))?;
        let text = (length <= Self::MOST_STORED).then(String::new);
        Ok(Self { key: key.to_owned(), element, length, left: length, bytes: 0, text })
    }

    /// Returns the number of bytes to skip, if the elements are not stored and have a fixed size.
    pub(super) fn skippable(&self) -> Option<u64> {
        if self.text.is_some() { None } else { self.element.size()?.checked_mul(self.left) }
    }

    /// Reads elements until the list or the bytes end, or until the rest can be skipped. Leaves `cursor` after the
    /// last complete element.
    pub(super) fn read_elements(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        while self.left > 0 && self.skippable().is_none() {
            let mut ahead = cursor.clone();
            match &mut self.text {
                Some(text) => {
                    let value = self.element.read(&mut ahead)?;
                    *text += if text.is_empty() { "" } else { ", " };
                    *text += &value;
                }
                None => drop(ahead.text()?),
            }
            self.text.take_if(|text| text.len() > LONGEST_TEXT);
            self.bytes += (ahead.read - cursor.read) as u64;
            self.left -= 1;
            *cursor = ahead;
        }
        Ok(())
    }

    /// Returns the list as text: its elements, or their number.
    pub(super) fn into_text(self) -> (String, String) {
        let text = match self.text {
            Some(text) => format!("[{text}]"),
            None if self.element == ScalarType::Text => format!("({} texts)", self.length),
            None => format!("({} numbers)", self.length),
        };
        (self.key, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_stored_as_its_length() {
        let text = vec![b'a'; LONGEST_TEXT];
        assert_eq!(stored_text(&text).len(), LONGEST_TEXT);
        assert_eq!(
            stored_text(&[&text[..], b"a"].concat()),
            format!("({} bytes)", LONGEST_TEXT + 1)
        );
    }
}
