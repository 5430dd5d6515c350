//! The keys of a header and their values.

use std::collections::BTreeMap;

use super::cursor::{Cursor, Stop};
use super::error::GgufError;
use super::value::{List, ValueType};
use crate::formats::clip;

/// The key of the data alignment.
const ALIGNMENT: &str = "general.alignment";

/// The default data alignment in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The keys read so far, with their values as text.
#[derive(Debug)]
pub(super) struct Keys {
    /// The number of unread keys.
    pub(super) left: u64,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) alignment: u64,
    /// The list that is being read.
    pub(super) list: Option<List>,
    /// The number of keys.
    total: u64,
}

impl Keys {
    /// The maximum number of keys. Known models have fewer than a hundred, and each key takes several times its
    /// length in memory.
    const MOST: u64 = 10_000;

    /// The maximum length of a key in bytes, according to the specification.
    const LONGEST: u64 = 65_535;

    /// The minimum size of a key and its value in bytes: length, one letter, type and value.
    pub(super) const SMALLEST_SIZE: u64 = 8 + 1 + 4 + 1;

    pub(super) fn new(keys: u64) -> Result<Self, GgufError> {
        if keys > Self::MOST {
            return Err(GgufError::TooManyKeys { keys, limit: Self::MOST });
        }
        let alignment = DEFAULT_ALIGNMENT;
        Ok(Self { left: keys, metadata: BTreeMap::new(), alignment, list: None, total: keys })
    }

    /// Reads a key and its value. For a list, reads its type and length only.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let key = read_name(cursor, "key", self.total - self.left, Self::LONGEST)?;
        if self.metadata.contains_key(key) {
            return Err(GgufError::DuplicateKey { key: clip(key) }.into());
        }
        let value_type = ValueType::read(cursor, key)?;
        let value = match value_type {
            ValueType::List => {
                self.list = Some(List::read(cursor, key)?);
                String::new()
            }
            ValueType::Scalar(scalar) => scalar.read(cursor)?,
        };
        if key == ALIGNMENT {
            self.alignment = alignment(value_type, &value)?;
        }
        self.metadata.insert(key.to_owned(), value);
        self.left -= 1;
        Ok(())
    }

    /// Stores the completed list.
    pub(super) fn finish_list(&mut self) {
        self.metadata.extend(self.list.take().map(List::into_text));
    }
}

/// Returns the alignment from the value of its key.
fn alignment(value_type: ValueType, value: &str) -> Result<u64, GgufError> {
    let alignment = value.parse::<u32>().ok().filter(|alignment| alignment.is_power_of_two());
    let alignment = alignment.filter(|_| value_type == ValueType::U32);
    alignment.map(u64::from).ok_or_else(|| GgufError::InvalidAlignment { value: clip(value) })
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
        return Err(GgufError::InvalidNameLength { what, at, length, limit }.into());
    }
    let name = std::str::from_utf8(cursor.text()?);
    name.map_err(|_| GgufError::NotUtf8 { what, at }.into())
}
