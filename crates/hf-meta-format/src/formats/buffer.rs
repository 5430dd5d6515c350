//! The parts of a file that have arrived, and a parser that starts over when more of them arrive.

use std::ops::Range;

use super::{FileHeader, HeaderError, HeaderParser, Step};

/// The reason why a header cannot be parsed any further.
#[derive(Debug)]
pub(super) enum Stop {
    /// These bytes of the file are needed.
    Missing(Range<u64>),
    Invalid(HeaderError),
}

impl Stop {
    /// Changes the missing range.
    pub(super) fn map_missing(self, change: impl FnOnce(Range<u64>) -> Range<u64>) -> Self {
        match self {
            Self::Missing(range) => Self::Missing(change(range)),
            Self::Invalid(_) => self,
        }
    }
}

impl From<HeaderError> for Stop {
    fn from(error: HeaderError) -> Self {
        Self::Invalid(error)
    }
}

/// The number of bytes that tell formats apart, which is also the length of the prefix of a safetensors file.
pub(super) const DETECTION_BYTES: u64 = 8;

/// The parts of a file that have been read. There are at most a few, such as its start, its end and the pickle.
#[derive(Debug, Default)]
pub(super) struct FileParts {
    parts: Vec<(u64, Vec<u8>)>,
    /// The size of the file in bytes, if it is known.
    pub(super) size: Option<u64>,
    /// The maximum length of the header in bytes.
    pub(super) limit: u64,
    /// True if the last read returned no bytes.
    has_ended: bool,
}

impl FileParts {
    /// Adds bytes that were read at an offset.
    fn add(&mut self, start: u64, mut bytes: Vec<u8>) {
        self.has_ended = bytes.is_empty();
        let is_extended =
            |(at, part): &&mut (u64, Vec<u8>)| (*at..=*at + part.len() as u64).contains(&start);
        match self.parts.iter_mut().find(is_extended) {
            Some((at, part)) => {
                let known = usize::try_from(start - *at).unwrap_or(usize::MAX);
                if known + bytes.len() <= part.len() {
                    return;
                }
                // The longer one grows in place, because a copy of it would take its memory twice.
                if bytes.len() > known {
                    bytes.splice(..0, part[..known].iter().copied());
                    *part = bytes;
                } else {
                    part.truncate(known);
                    part.append(&mut bytes);
                }
            }
            None => self.parts.push((start, bytes)),
        }
    }

    /// Returns the number of bytes that have been read.
    pub(super) fn length(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.len() as u64).sum()
    }

    /// Returns a range of the file.
    ///
    /// # Errors
    ///
    /// Returns the missing end of the range, or an error if the file ends before it.
    pub(super) fn get(&self, range: Range<u64>) -> Result<&[u8], Stop> {
        let parts = self.parts.iter().filter(|(at, _)| *at <= range.start);
        let found = parts.max_by_key(|(at, part)| *at + part.len() as u64);
        let (at, part) = found.map_or((0, &[][..]), |(at, part)| (*at, part));
        let end = at + part.len() as u64;
        let index = |offset: u64| usize::try_from(offset - at).unwrap_or(usize::MAX);
        match (range.start..range.end).is_empty() {
            true => Ok(&[]),
            false if range.end <= end => Ok(&part[index(range.start)..index(range.end)]),
            false => Err(self.missing(range.start.max(end)..range.end)),
        }
    }

    /// Returns the reason to stop at a range that has not been read.
    pub(super) fn missing(&self, range: Range<u64>) -> Stop {
        let size = self.size.filter(|size| range.end > *size);
        if size.is_none() && !self.has_ended {
            return Stop::Missing(range);
        }
        HeaderError::truncated(range.end, size.unwrap_or(self.length())).into()
    }

    /// Checks that a header of `length` bytes is not longer than the limit.
    pub(super) fn check_limit(&self, length: u64) -> Result<(), HeaderError> {
        if length > self.limit {
            return Err(HeaderError::too_large(length, self.limit));
        }
        Ok(())
    }

    /// Returns the bytes from the start of the file to the first missing one.
    pub(super) fn start(&self) -> &[u8] {
        self.parts.iter().find(|(at, _)| *at == 0).map_or(&[], |(_, part)| part)
    }

    /// Returns the bytes that tell formats apart, or all bytes of a shorter file.
    pub(super) fn detection_bytes(&self) -> Result<&[u8], Stop> {
        match self.get(0..DETECTION_BYTES) {
            Err(Stop::Invalid(_)) => Ok(self.start()),
            found => found,
        }
    }
}

/// A function that parses the header, or returns the range to read next.
type ParseParts = fn(&FileParts) -> Result<FileHeader, Stop>;

/// A parser that keeps all parts of a file, and starts over once a missing part has arrived: another start takes less
/// time than the request.
pub(super) struct PartsParser {
    file: FileParts,
    /// The number of bytes to read first.
    first_range: u64,
    parse: ParseParts,
}

impl PartsParser {
    /// Creates a parser that first reads `first_range` bytes, and at most `limit` bytes of a header.
    pub(super) fn boxed(first_range: u64, limit: u64, parse: ParseParts) -> Box<dyn HeaderParser> {
        let file = FileParts { limit, ..FileParts::default() };
        Box::new(Self { file, first_range, parse })
    }
}

impl HeaderParser for PartsParser {
    fn first_range(&self) -> Range<u64> {
        0..self.first_range
    }

    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError> {
        self.file.size = file_size;
        self.file.add(start, bytes);
        match (self.parse)(&self.file) {
            Ok(header) => {
                file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
                Ok(Step::Done(header))
            }
            Err(Stop::Invalid(error)) => Err(error),
            Err(Stop::Missing(range)) => Ok(Step::Read(range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bytes_are_ignored() {
        let mut file = FileParts::default();
        file.add(0, b"abcd".to_vec());
        file.add(2, b"cdef".to_vec());
        file.add(1, b"bc".to_vec());
        assert_eq!((file.start(), file.length()), (&b"abcdef"[..], 6));
    }

    #[test]
    fn parts_may_be_distant() {
        let mut file = FileParts::default();
        file.add(0, b"abcd".to_vec());
        file.add(10, b"klm".to_vec());
        assert_eq!(file.get(11..13).unwrap(), b"lm");
        let missing = |range| match file.get(range) {
            Err(Stop::Missing(range)) => range,
            found => panic!("{found:?}"),
        };
        assert_eq!([missing(2..6), missing(6..8), missing(12..15)], [4..6, 6..8, 13..15]);
    }

    #[test]
    fn a_range_after_the_end_is_an_error() {
        let mut file = FileParts { size: Some(6), ..FileParts::default() };
        file.add(0, b"abcd".to_vec());
        let error = |file: &FileParts, end| match file.get(2..end) {
            Err(Stop::Invalid(error)) => error,
            found => panic!("{found:?}"),
        };
        assert_eq!(error(&file, 7), HeaderError::truncated(7, 6));
        file.add(4, Vec::new());
        assert_eq!(error(&file, 6), HeaderError::truncated(6, 4));
    }
}
