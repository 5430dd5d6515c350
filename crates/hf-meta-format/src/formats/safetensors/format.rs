//! The implementation of [`Format`] for safetensors.

use std::ops::Range;

use super::file_names::split_variant;
use super::{EXTENSION, HeaderLength, PREFIX_LENGTH, SafetensorsFileHeader};
use crate::formats::{Format, HeaderError, HeaderParser, RepoPath, Step, WeightFileName};

/// The safetensors format: eight bytes with the header length, the header as JSON, and the tensor data.
#[derive(Clone, Copy, Debug)]
pub struct Safetensors;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn extension(&self) -> &'static str {
        EXTENSION
    }

    fn parser(&self, _path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        Box::new(SafetensorsParser { max_header_bytes, ..SafetensorsParser::default() })
    }

    fn split_name(&self, stem: &str) -> WeightFileName {
        split_variant(stem)
    }
}

/// A parser for one header. Buffers the start of the file.
#[derive(Debug, Default)]
struct SafetensorsParser {
    max_header_bytes: u64,
    /// At most the first eight bytes of the file.
    prefix: Vec<u8>,
    /// The bytes after the prefix. They are stored separately, so that a header that was read in one range is parsed
    /// in place: a copy would take the memory twice.
    json: Vec<u8>,
}

impl HeaderParser for SafetensorsParser {
    fn first_range(&self) -> Range<u64> {
        0..PREFIX_LENGTH
    }

    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError> {
        let is_empty = bytes.is_empty() && start == self.known();
        self.append(start, bytes);
        let known = self.known();
        let is_at_end = is_empty || file_size.is_some_and(|size| size <= known);
        if known < PREFIX_LENGTH && !is_at_end {
            return Ok(Step::Read(known..PREFIX_LENGTH));
        }
        let length = HeaderLength::from_prefix(&self.prefix, file_size, self.max_header_bytes)?;
        let Range { start, end } = length.range();
        let json = usize::try_from(end - start).ok().and_then(|length| self.json.get(..length));
        let Some(json) = json else {
            return if is_at_end {
                Err(HeaderError::Truncated { expected: end, found: known })
            } else {
                Ok(Step::Read(known..end))
            };
        };
        let header = SafetensorsFileHeader::from_json(json)?;
        file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
        Ok(Step::Done(header.into()))
    }
}

impl SafetensorsParser {
    /// Returns the number of known bytes at the start of the file.
    fn known(&self) -> u64 {
        (self.prefix.len() as u64).saturating_add(self.json.len() as u64)
    }

    /// Adds bytes that were read at an offset. Known bytes are ignored.
    fn append(&mut self, start: u64, mut bytes: Vec<u8>) {
        let Some(skipped) = self.known().checked_sub(start) else { return };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(bytes.len());
        #[expect(clippy::cast_possible_truncation, reason = "the length of the prefix is 8")]
        let missing = PREFIX_LENGTH as usize - self.prefix.len();
        let for_prefix = skipped..bytes.len().min(skipped.saturating_add(missing));
        self.prefix.extend_from_slice(&bytes[for_prefix.clone()]);
        if for_prefix.end == 0 && self.json.is_empty() {
            self.json = bytes;
        } else {
            self.json.extend(bytes.drain(for_prefix.end..));
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the files of these tests are short")]
#[expect(clippy::single_range_in_vec_init, reason = "the lists hold ranges")]
mod tests {
    use super::*;
    use crate::formats::FileHeader;

    fn file() -> Vec<u8> {
        let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        [&(json.len() as u64).to_le_bytes()[..], json, b"ab"].concat()
    }

    /// Reads the header of a file truncated at `end`: `first` bytes at first, then at most `most` at a time. Returns
    /// the requested ranges and the result.
    fn read(
        file: &[u8],
        size: Option<u64>,
        first: usize,
        most: usize,
    ) -> (Vec<Range<u64>>, Result<FileHeader, HeaderError>) {
        let mut parser = Safetensors.parser(&"x".parse().unwrap(), 1_000);
        let (mut start, mut end) = (0, first);
        let mut ranges = Vec::new();
        loop {
            let bytes = file[start.min(file.len())..end.min(file.len())].to_vec();
            match parser.advance(start as u64, bytes, size) {
                Ok(Step::Read(range)) => {
                    (start, end) = (range.start as usize, range.end as usize);
                    end = end.min(start.saturating_add(most));
                    ranges.push(range);
                }
                Ok(Step::Done(header)) => return (ranges, Ok(header)),
                Err(error) => return (ranges, Err(error)),
            }
        }
    }

    #[test]
    fn only_missing_bytes_are_requested() {
        let file = file();
        let end = file.len() as u64 - 2;
        let whole: FileHeader = SafetensorsFileHeader::from_file_start(&file, None).unwrap().into();
        for size in [None, Some(file.len() as u64)] {
            let cases = [
                (8, vec![8..end]),
                (20, vec![20..end]),
                (3, vec![3..8, 8..end]),
                (60, vec![60..end]),
                (1_000, vec![]),
            ];
            for (first, expected) in cases {
                let (ranges, header) = read(&file, size, first, usize::MAX);
                assert_eq!((ranges, header), (expected, Ok(whole.clone())), "{first} bytes first");
            }
            for most in 1..9 {
                assert_eq!(read(&file, size, most, most).1, Ok(whole.clone()), "{most} at a time");
            }
        }
    }

    #[test]
    fn known_and_distant_bytes_are_ignored() {
        let file = file();
        let mut parser = Safetensors.parser(&"x".parse().unwrap(), 1_000);
        let mut advance = |start: usize, end: usize| {
            parser.advance(start as u64, file[start..end].to_vec(), None).unwrap()
        };
        assert!(matches!(advance(9, 20), Step::Read(range) if range == (0..8)));
        assert!(matches!(advance(0, 8), Step::Read(range) if range == (8..61)));
        assert!(matches!(advance(4, 10), Step::Read(range) if range == (10..61)));
        assert!(matches!(advance(0, 10), Step::Read(range) if range == (10..61)));
        assert!(matches!(advance(5, 63), Step::Done(_)));
    }

    #[test]
    fn a_file_that_ends_too_early_is_refused() {
        let file = file();
        let error = |cut: usize, size| read(&file[..cut], size, 8, usize::MAX).1.unwrap_err();
        let truncated = |found| HeaderError::Truncated { expected: 61, found };
        assert_eq!(error(0, None), HeaderError::FileTooShort { file_size: 0 });
        assert_eq!(error(7, None), HeaderError::FileTooShort { file_size: 7 });
        assert_eq!(error(7, Some(7)), HeaderError::FileTooShort { file_size: 7 });
        assert_eq!(error(60, None), truncated(60));
        // The file was truncated while it was being read.
        assert_eq!(error(60, Some(63)), truncated(60));
        assert_eq!(error(4, Some(63)), HeaderError::Truncated { expected: 8, found: 4 });
        assert_eq!(error(60, Some(60)), HeaderError::ExceedsFile { length: 53, file_size: 60 });
        assert_eq!(
            error(62, Some(62)),
            HeaderError::FileSizeMismatch { tensor: Some("w".to_owned()), expected: 63, found: 62 }
        );
        let start = |end: usize| SafetensorsFileHeader::from_file_start(&file[..end], Some(63));
        assert_eq!(start(60), Err(truncated(60)));
        assert_eq!(start(4), Err(HeaderError::Truncated { expected: 8, found: 4 }));
        assert!(start(61).is_ok());
    }
}
