//! Reads numbers, strings and lists.

use std::fmt::Display;

use crate::formats::buffer::{FileParts, Stop};
use crate::formats::{HeaderError, HeaderErrorKind, clip};

/// Reads numbers and strings of a file.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pub(super) file: &'a FileParts,
    /// The offset of the next byte.
    pub(super) at: u64,
    pub(super) is_big_endian: bool,
}

impl<'a> Cursor<'a> {
    /// Checks that the header may extend by `length` bytes, and returns the new end.
    pub(super) fn check(&self, length: u64) -> Result<u64, HeaderError> {
        let end = self.at.saturating_add(length);
        if end > self.file.limit {
            return Err(HeaderError::too_large(end, self.file.limit));
        }
        match self.file.size {
            Some(file_size) if end > file_size => Err(HeaderError::exceeds_file(end, file_size)),
            _ => Ok(end),
        }
    }

    pub(super) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Stop> {
        let end = self.check(length)?;
        let bytes = self.file.get(self.at..end)?;
        self.at = end;
        Ok(bytes)
    }

    /// Reads a length-prefixed string.
    fn string(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.number(8)?;
        self.bytes(length)
    }

    /// Reads an unsigned number of `size` bytes.
    pub(super) fn number(&mut self, size: u64) -> Result<u64, Stop> {
        let bytes = self.bytes(size)?.iter();
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Ok(if self.is_big_endian { bytes.fold(0, append) } else { bytes.rev().fold(0, append) })
    }

    /// Reads the name of a key or a tensor. `at` is its index, and `limit` the maximum length in bytes.
    pub(super) fn name(&mut self, what: &str, at: u64, limit: u64) -> Result<&'a str, Stop> {
        let length = self.number(8)?;
        if length == 0 || length > limit {
            let message =
                format!("the name of {what} {at} has {length} bytes; it must have 1 to {limit}");
            return Err(HeaderError::new(HeaderErrorKind::Other, message).into());
        }
        std::str::from_utf8(self.bytes(length)?).map_err(|_| {
            let message = format!("the name of {what} {at} is not valid UTF-8");
            HeaderError::new(HeaderErrorKind::NotUtf8, message).into()
        })
    }
}

/// Returns the error for a key that violates a rule.
pub(super) fn invalid_key(key: &str, rule: impl Display) -> HeaderError {
    HeaderError::new(HeaderErrorKind::Other, format!("key `{}` {rule}", clip(key)))
}

/// The maximum length of a stored string, in bytes. Names, licenses and languages are shorter; chat templates are longer.
const MAX_STORED_TEXT: usize = 1_024;

/// The maximum number of elements of a stored list, and their length as text. A list may have a number for each of the
/// 162 layers of the largest models.
const MAX_STORED_ELEMENTS: u64 = 256;
const MAX_LIST_TEXT: usize = 2_048;

/// The type of a value. Integers have a size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Uint(u64),
    Int(u64),
    F32,
    F64,
    Bool,
    String,
    List,
}

impl ValueType {
    /// Reads the type of a key's value.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, Stop> {
        Ok(match cursor.number(4)? {
            integer @ (0 | 2 | 4) => Self::Uint(1 << (integer / 2)),
            integer @ (1 | 3 | 5) => Self::Int(1 << (integer / 2)),
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::List,
            10 => Self::Uint(8),
            11 => Self::Int(8),
            12 => Self::F64,
            other => {
                let rule = format!("has a value of unknown type {other}");
                return Err(invalid_key(key, rule).into());
            }
        })
    }

    /// Returns the size of a value in bytes; `None` for strings and lists.
    fn size(self) -> Option<u64> {
        match self {
            Self::Uint(size) | Self::Int(size) => Some(size),
            Self::F32 => Some(4),
            Self::F64 => Some(8),
            Self::Bool => Some(1),
            Self::String | Self::List => None,
        }
    }

    /// Reads a value as text. Long strings are replaced by their length, and lists are empty.
    pub(super) fn read_text(self, cursor: &mut Cursor<'_>) -> Result<String, Stop> {
        let number = self.size().map_or(Ok(0), |size| cursor.number(size))?;
        Ok(match self {
            Self::Uint(_) => number.to_string(),
            Self::Int(size) => {
                let unused = 64 - 8 * size;
                ((number << unused).cast_signed() >> unused).to_string()
            }
            #[expect(clippy::cast_possible_truncation, reason = "the number has four bytes")]
            Self::F32 => f32::from_bits(number as u32).to_string(),
            Self::F64 => f64::from_bits(number).to_string(),
            Self::Bool => (number != 0).to_string(),
            Self::String => match cursor.string()? {
                long if long.len() > MAX_STORED_TEXT => format!("({} bytes)", long.len()),
                text => String::from_utf8_lossy(text).into_owned(),
            },
            Self::List => String::new(),
        })
    }
}

/// The elements of a list that have been read so far.
#[derive(Debug, Default)]
pub(super) struct List {
    /// The number of elements.
    pub(super) length: u64,
    /// The number of elements that have been read.
    read: u64,
    /// The size of these elements in bytes.
    bytes: u64,
}

impl List {
    /// Reads a list. Returns its elements as text, or their number if they are long.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<String, Stop> {
        let element = ValueType::read(cursor, key)?;
        if element == ValueType::List {
            return Err(invalid_key(key, "has an array of arrays").into());
        }
        let length = cursor.number(8)?;
        // A string has at least its length field.
        let end = cursor.check(length.saturating_mul(element.size().unwrap_or(8)))?;
        *self = Self { length, ..Self::default() };
        let mut text = (length <= MAX_STORED_ELEMENTS).then(String::new);
        let start = cursor.at;
        if text.is_none() && element != ValueType::String {
            cursor.at = end;
            self.read = length;
        }
        while self.read < length {
            match &mut text {
                Some(text) => {
                    *text += if text.is_empty() { "" } else { ", " };
                    *text += &element.read_text(cursor)?;
                }
                None => drop(cursor.string()?),
            }
            text.take_if(|text| text.len() > MAX_LIST_TEXT);
            self.read += 1;
            self.bytes = cursor.at - start;
        }
        Ok(match text {
            Some(text) => format!("[{text}]"),
            None if element == ValueType::String => format!("({length} texts)"),
            None => format!("({length} numbers)"),
        })
    }

    /// Returns the mean size of the elements in bytes, rounded up. Unread strings are assumed to be short.
    pub(super) fn mean_size(&self) -> u64 {
        self.bytes.checked_div(self.read).map_or(16, |mean| mean + 1)
    }

    /// Estimates the size of the unread elements in bytes.
    pub(super) fn rest(&self) -> u64 {
        (self.length - self.read).saturating_mul(self.mean_size())
    }
}
