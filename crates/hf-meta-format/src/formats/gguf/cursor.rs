//! Reads numbers and strings from the unparsed bytes.

use crate::formats::HeaderError;

/// The reason an item cannot be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// More bytes are needed, at least up to this offset in the file.
    Missing(u64),
    /// The item is invalid.
    Invalid(HeaderError),
}

impl<E: Into<HeaderError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Invalid(error.into())
    }
}

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
            return Err(HeaderError::TooLarge { length: end, limit: self.limit });
        }
        match self.file_size {
            Some(file_size) if end > file_size => {
                Err(HeaderError::ExceedsFile { length: end, file_size })
            }
            _ => Ok(()),
        }
    }
}

/// Reads numbers and strings.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The number of bytes read so far.
    pub(super) read: usize,
    /// The file offset of the first byte.
    start: u64,
    bounds: Bounds,
    is_big_endian: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], start: u64, bounds: Bounds, is_big_endian: bool) -> Self {
        Self { bytes, read: 0, start, bounds, is_big_endian }
    }

    /// Returns the file offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.start + self.read as u64
    }

    /// Returns all bytes, including those already read.
    pub(super) fn all(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that the header may extend by `length` bytes, and returns the new end.
    pub(super) fn check(&self, length: u64) -> Result<u64, HeaderError> {
        let end = self.position().saturating_add(length);
        self.bounds.check(end).map(|()| end)
    }

    pub(super) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Stop> {
        let end = usize::try_from(length).ok().and_then(|length| self.read.checked_add(length));
        if let Some((end, bytes)) = end.and_then(|end| Some((end, self.bytes.get(self.read..end)?)))
        {
            self.read = end;
            return Ok(bytes);
        }
        Err(Stop::Missing(self.check(length)?))
    }

    /// Reads a length-prefixed string.
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
