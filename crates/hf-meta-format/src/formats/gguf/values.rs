//! Reads numbers, strings and lists from the unparsed bytes.

use std::fmt::Display;

use crate::formats::buffer::Stop;
use crate::formats::{HeaderError, HeaderErrorKind, clip};

/// Limits for offsets in the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The maximum length of the header, in bytes.
    pub(super) limit: u64,
    /// The size of the file in bytes, if it is known.
    pub(super) file_size: Option<u64>,
}

impl Bounds {
    /// Checks that the header may extend to an offset.
    pub(super) fn check(self, end: u64) -> Result<(), HeaderError> {
        if end > self.limit {
            return Err(HeaderError::too_large(end, self.limit));
        }
        match self.file_size {
            Some(file_size) if end > file_size => Err(HeaderError::exceeds_file(end, file_size)),
            _ => Ok(()),
        }
    }
}

/// Reads numbers and strings.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    /// The number of bytes read so far.
    pub(super) consumed: u64,
    /// The file offset of the first byte.
    pub(super) start: u64,
    pub(super) bounds: Bounds,
    pub(super) is_big_endian: bool,
}

impl<'a> Cursor<'a> {
    /// Checks that the header may extend by `length` bytes, and returns the new end.
    pub(super) fn check(&self, length: u64) -> Result<u64, HeaderError> {
        let end = self.start.saturating_add(self.consumed).saturating_add(length);
        self.bounds.check(end).map(|()| end)
    }

    /// Moves past bytes, even if they have not arrived.
    fn skip(&mut self, length: u64) -> Result<(), HeaderError> {
        self.check(length)?;
        self.consumed = self.consumed.saturating_add(length);
        Ok(())
    }

    pub(super) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Stop> {
        let end = self.consumed.saturating_add(length);
        let [first, last] =
            [self.consumed, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        if let Some(bytes) = self.bytes.get(first..last) {
            self.consumed = end;
            return Ok(bytes);
        }
        Err(Stop::Missing(self.start + self.consumed..self.check(length)?))
    }

    /// Reads a length-prefixed string.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.u64()?;
        self.bytes(length)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the bytes of a number, least significant first.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut number = [0; N];
        number.copy_from_slice(self.bytes(N as u64)?);
        if self.is_big_endian {
            number.reverse();
        }
        Ok(number)
    }
}

/// Reads the name of a key or a tensor. `at` is its index, and `limit` the maximum length in bytes.
pub(super) fn read_name<'a>(
    cursor: &mut Cursor<'a>,
    what: &'static str,
    at: u64,
    limit: u64,
) -> Result<&'a str, Stop> {
    let mut ahead = cursor.clone();
    let length = ahead.u64()?;
    if length == 0 || length > limit {
        let message =
            format!("the name of {what} {at} has {length} bytes; it must have 1 to {limit}");
        return Err(HeaderError::new(HeaderErrorKind::Other, message).into());
    }
    let name = std::str::from_utf8(cursor.string()?);
    name.map_err(|_| {
        let message = format!("the name of {what} {at} is not valid UTF-8");
        HeaderError::new(HeaderErrorKind::NotUtf8, message).into()
    })
}

/// Returns the error for a key that violates a rule.
pub(super) fn invalid_key(key: &str, rule: impl Display) -> HeaderError {
    HeaderError::new(HeaderErrorKind::Other, format!("key `{}` {rule}", clip(key)))
}

/// The maximum length of a stored string, and of a list stored as text, in bytes. Names, licenses and languages are
/// shorter; chat templates are longer.
pub(super) const MAX_STORED_TEXT: usize = 1_024;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    List,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// All types, by their number in the file.
    const ALL: [Self; 13] = {
        use ValueType::{Bool, F32, F64, I8, I16, I32, I64, List, String, U8, U16, U32, U64};
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, List, U64, I64, F64]
    };

    /// Reads the type of a key's value.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, Stop> {
        let number = cursor.u32()?;
        let found = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number));
        let unknown = || invalid_key(key, format!("has a value of unknown type {number}"));
        found.copied().ok_or_else(|| unknown().into())
    }

    /// Returns the size of a value in bytes; `None` for strings and lists.
    pub(super) fn size(self) -> Option<u64> {
        Some(match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::String | Self::List => return None,
        })
    }

    /// Returns the minimum size of a value in bytes.
    pub(super) fn min_size(self) -> u64 {
        // A string has at least its length field.
        self.size().unwrap_or(8)
    }

    /// Reads a value as text. Long strings are replaced by their length, and lists are empty.
    pub(super) fn read_text(self, cursor: &mut Cursor<'_>) -> Result<String, Stop> {
        Ok(match self {
            Self::U8 => u8::from_le_bytes(cursor.array()?).to_string(),
            Self::I8 => i8::from_le_bytes(cursor.array()?).to_string(),
            Self::U16 => u16::from_le_bytes(cursor.array()?).to_string(),
            Self::I16 => i16::from_le_bytes(cursor.array()?).to_string(),
            Self::U32 => cursor.u32()?.to_string(),
            Self::I32 => i32::from_le_bytes(cursor.array()?).to_string(),
            Self::F32 => f32::from_le_bytes(cursor.array()?).to_string(),
            Self::Bool => (cursor.array::<1>()? != [0]).to_string(),
            Self::String => stored_text(cursor.string()?),
            Self::List => String::new(),
            Self::U64 => cursor.u64()?.to_string(),
            Self::I64 => i64::from_le_bytes(cursor.array()?).to_string(),
            Self::F64 => f64::from_le_bytes(cursor.array()?).to_string(),
        })
    }
}

/// Returns the stored form of a string: its length if it is long.
fn stored_text(bytes: &[u8]) -> String {
    if bytes.len() > MAX_STORED_TEXT {
        return format!("({} bytes)", bytes.len());
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// A list whose elements are being read.
#[derive(Debug)]
pub(super) struct List {
    pub(super) key: String,
    element: ValueType,
    /// The number of elements.
    pub(super) length: u64,
    /// The number of unread elements.
    pub(super) remaining: u64,
    /// The size of the elements read so far, in bytes.
    bytes: u64,
    /// The elements as text; `None` once they are too long to store.
    text: Option<String>,
}

impl List {
    /// The maximum number of elements of a stored list.
    const MAX_STORED_ELEMENTS: u64 = 64;

    /// Reads the element type and the length of a list.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, Stop> {
        let element = ValueType::read(cursor, key)?;
        if element == ValueType::List {
            return Err(invalid_key(key, "has an array of arrays").into());
        }
        let length = cursor.u64()?;
        cursor.check(length.saturating_mul(element.min_size()))?;
        let text = (length <= Self::MAX_STORED_ELEMENTS).then(String::new);
        Ok(Self { key: key.to_owned(), element, length, remaining: length, bytes: 0, text })
    }

    /// Reads an element. Skips all numbers of a list that is not stored.
    pub(super) fn read_element(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match (&mut self.text, self.element.size()) {
            _ if self.remaining == 0 => return Ok(()),
            (None, Some(size)) => {
                cursor.skip(size.saturating_mul(self.remaining))?;
                self.remaining = 1;
            }
            (None, None) => drop(cursor.string()?),
            (Some(text), _) => {
                let value = self.element.read_text(cursor)?;
                *text += if text.is_empty() { "" } else { ", " };
                *text += &value;
            }
        }
        self.text.take_if(|text| text.len() > MAX_STORED_TEXT);
        self.bytes = self.bytes.saturating_add(cursor.consumed);
        self.remaining -= 1;
        Ok(())
    }

    /// Returns the mean size of the elements in bytes, rounded up. Unread strings are assumed to be short.
    pub(super) fn mean_size(&self) -> u64 {
        self.bytes.checked_div(self.length - self.remaining).map_or(16, |mean| mean + 1)
    }

    /// Returns the key, and the list as text: its elements, or their number.
    pub(super) fn to_text(&self) -> (String, String) {
        let text = match &self.text {
            Some(text) => format!("[{text}]"),
            None if self.element == ValueType::String => format!("({} texts)", self.length),
            None => format!("({} numbers)", self.length),
        };
        (self.key.clone(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_stored_as_its_length() {
        let text = vec![b'a'; MAX_STORED_TEXT];
        assert_eq!(stored_text(&text).len(), MAX_STORED_TEXT);
        assert_eq!(
            stored_text(&[&text[..], b"a"].concat()),
            format!("({} bytes)", MAX_STORED_TEXT + 1)
        );
    }
}
