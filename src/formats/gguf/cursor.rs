//! A reader of numbers and texts at the start of the bytes that are not parsed yet.

use crate::formats::HeaderError;

/// The reason why an item cannot be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// Bytes are missing, at least up to this offset in the file.
    Missing(u64),
    /// The item is not valid.
    Invalid(HeaderError),
}

impl<E: Into<HeaderError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Invalid(error.into())
    }
}

/// The limits of offsets in the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The largest accepted length of the header, in bytes.
    pub(super) limit: u64,
    /// The size of the file in bytes, if it is known.
    pub(super) file_size: Option<u64>,
}

impl Bounds {
    /// Checks that the header can go on up to an offset.
    pub(super) fn check(self, end: u64) -> Result<(), HeaderError> {
        if end > self.limit {
            return Err(HeaderError::OverLimit { length: end, limit: self.limit });
        }
        match self.file_size {
            Some(file_size) if end > file_size => {
                Err(HeaderError::PastEndOfFile { length: end, file_size })
            }
            _ => Ok(()),
        }
    }
}

/// A reader of numbers and texts.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The number of bytes that were read.
    pub(super) read: usize,
    /// The offset of the first byte in the file.
    start: u64,
    bounds: Bounds,
    is_big_endian: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], start: u64, bounds: Bounds, is_big_endian: bool) -> Self {
        Self { bytes, read: 0, start, bounds, is_big_endian }
    }

    /// Returns the offset of the next byte in the file.
    pub(super) fn position(&self) -> u64 {
        self.start + self.read as u64
    }

    /// Returns the bytes from the start on, read or not.
    pub(super) fn all(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that the header can go on for a number of bytes.
    pub(super) fn check(&self, length: u64) -> Result<u64, HeaderError> {
        let end = self.position().saturating_add(length);
        self.bounds.check(end).map(|()| end)
    }

    /// Reads bytes.
    pub(super) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Stop> {
        let end = usize::try_from(length).ok().and_then(|length| self.read.checked_add(length));
        if let Some((end, bytes)) = end.and_then(|end| Some((end, self.bytes.get(self.read..end)?)))
        {
            self.read = end;
            return Ok(bytes);
        }
        Err(Stop::Missing(self.check(length)?))
    }

    /// Reads the bytes of a text, which its length precedes.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.u64()?;
        self.bytes(length)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the bytes of a number, the lowest first.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut number = [0; N];
        number.copy_from_slice(self.bytes(N as u64)?);
        if self.is_big_endian {
            number.reverse();
        }
        Ok(number)
    }
}
