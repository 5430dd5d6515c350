//! Parses a header that may arrive in chunks.

use std::ops::Range;

use super::keys::{Keys, Vocabulary};
use super::tensors::TensorEntries;
use super::values::{Bounds, Cursor, CursorStop};
use super::{IMPORTANCE_MATRIX, describe, is_importance, other_content};
use crate::formats::buffer::HeaderBuffer;
use crate::formats::{
    DetectedFormat, FileHeader, HeaderError, HeaderErrorKind, HeaderParser, Step,
};

/// The size of a tensor entry in bytes, rounded up. Names have about 25 bytes.
const BYTES_PER_TENSOR: u64 = 80;

/// The maximum expected size of all other keys in bytes, including a chat template.
const OTHER_KEYS_BYTES: u64 = 32 << 10;

/// A parser for one header. Drops bytes as soon as they are parsed.
#[derive(Debug)]
pub(super) struct GgufParser {
    first_range: u64,
    max_header_bytes: u64,
    buffer: HeaderBuffer,
    content: Option<Content>,
}

/// The content of a header after the fixed fields.
#[derive(Debug)]
struct Content {
    is_big_endian: bool,
    keys: Keys,
    tensors: TensorEntries,
    vocabulary: Option<Vocabulary>,
}

impl GgufParser {
    pub(super) fn new(first_range: u64, max_header_bytes: u64) -> Self {
        Self { first_range, max_header_bytes, buffer: HeaderBuffer::default(), content: None }
    }

    /// Parses until bytes are missing or the header is complete.
    fn parse(&mut self, bounds: Bounds) -> Result<(), CursorStop> {
        let Self { buffer, content, .. } = self;
        let content = if let Some(content) = content {
            content
        } else {
            let mut cursor = Cursor::new(buffer.rest(), 0, bounds, false);
            let started = Content::start(&mut cursor)?;
            let read = cursor.consumed as u64;
            buffer.skip(read);
            content.insert(started)
        };
        while !content.is_complete() {
            let (start, is_big_endian) = (buffer.position(), content.is_big_endian);
            let mut cursor = Cursor::new(buffer.rest(), start, bounds, is_big_endian);
            let mut read = 0;
            let parsed = content.read_items(&mut cursor, &mut read);
            buffer.skip(read);
            parsed?;
            content.skip_numbers(buffer, bounds)?;
        }
        Ok(())
    }

    /// Returns the next range: at least up to `end`, and up to the estimated end of the header.
    fn next_range(&self, end: u64, bounds: Bounds) -> Range<u64> {
        let rest = self.content.as_ref().map_or(0, Content::rest);
        let expected = self.buffer.position().saturating_add(rest).max(end);
        let expected = expected.max(self.first_range);
        let limit = bounds.file_size.map_or(bounds.limit, |size| size.min(bounds.limit));
        self.buffer.end()..expected.min(limit.max(end))
    }

    fn finish(&mut self, file_size: Option<u64>) -> Result<FileHeader, HeaderError> {
        let end = self.buffer.position();
        let Some(Content { keys, tensors, vocabulary, .. }) = self.content.take() else {
            return Err(HeaderError::new(HeaderErrorKind::Empty, "the header is empty"));
        };
        if let Some(content) = other_content(&keys.metadata) {
            return Err(not_a_model(content));
        }
        let has_data = tensors.total > 0;
        let data_start =
            if has_data { end.checked_next_multiple_of(keys.alignment) } else { Some(end) };
        let data_start = data_start.unwrap_or(u64::MAX);
        let data_size = file_size.map(|size| size.saturating_sub(data_start));
        let model = describe(&keys.metadata, vocabulary.map(|found| found.tokens));
        let header = FileHeader::new(tensors.finish(data_size)?, 0..data_start);
        // Some importance matrices lack `general.type`.
        if header.tensors().iter().next().is_some_and(|(name, _)| is_importance(name)) {
            return Err(not_a_model(IMPORTANCE_MATRIX));
        }
        // Programs ignore bytes after the data, which is often padded.
        let file_size = file_size.map_or(header.file_size(), |size| size.max(header.file_size()));
        let header = header.with_file_size(file_size).with_metadata(Some(keys.metadata));
        Ok(header.with_model(model).with_unpacked_shapes())
    }
}

impl HeaderParser for GgufParser {
    fn first_range(&self) -> Range<u64> {
        0..self.first_range
    }

    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError> {
        self.buffer.append(start, bytes);
        let bounds = Bounds { limit: self.max_header_bytes, file_size };
        match self.parse(bounds) {
            Ok(()) => {
                let header = self.finish(file_size)?;
                file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
                Ok(Step::Done(header))
            }
            Err(CursorStop::Invalid(error)) => Err(error),
            Err(CursorStop::Missing(end)) if self.buffer.is_at_end(file_size) => {
                Err(HeaderError::truncated(end, self.buffer.arrived()))
            }
            Err(CursorStop::Missing(end)) => Ok(Step::Read(self.next_range(end, bounds))),
        }
    }
}

impl Content {
    /// Reads the magic bytes, the version and the numbers of tensors and keys.
    fn start(cursor: &mut Cursor<'_>) -> Result<Self, CursorStop> {
        let magic = cursor.array()?;
        if magic != *b"GGUF" {
            return Err(wrong_format(cursor, magic));
        }
        let version = cursor.u32()?;
        // The format does not mark its byte order, but versions are small numbers.
        let is_big_endian = version.trailing_zeros() >= 16;
        let version = if is_big_endian { version.swap_bytes() } else { version };
        if !matches!(version, 2 | 3) {
            let message = format!("unsupported GGUF version {version}; only 2 and 3 are supported");
            return Err(HeaderError::new(HeaderErrorKind::Unsupported, message).into());
        }
        let [tensors, keys] = [cursor.u64()?, cursor.u64()?];
        let [tensors, keys] =
            [tensors, keys].map(|n| if is_big_endian { n.swap_bytes() } else { n });
        let smallest = tensors.saturating_mul(TensorEntries::MIN_SIZE);
        cursor.check(smallest.saturating_add(keys.saturating_mul(Keys::MIN_SIZE)))?;
        let keys = Keys::new(keys)?;
        let tensors = TensorEntries::new(tensors, keys.alignment);
        Ok(Self { is_big_endian, keys, tensors, vocabulary: None })
    }

    fn is_complete(&self) -> bool {
        self.keys.remaining == 0 && self.keys.list.is_none() && self.tensors.remaining == 0
    }

    /// Reads items until bytes are missing or numbers can be skipped. `read` counts the bytes of complete items.
    fn read_items(&mut self, cursor: &mut Cursor<'_>, read: &mut u64) -> Result<(), CursorStop> {
        while !self.is_complete() && self.skippable().is_none() {
            let item = self.read_item(cursor);
            *read = cursor.consumed as u64;
            item?;
        }
        Ok(())
    }

    /// Reads the next list elements, key or tensor. `cursor` does not move if bytes are missing.
    fn read_item(&mut self, cursor: &mut Cursor<'_>) -> Result<(), CursorStop> {
        if let Some(list) = &mut self.keys.list {
            list.read_elements(cursor)?;
            if list.remaining == 0 {
                self.end_list();
            }
            return Ok(());
        }
        let mut ahead = cursor.clone();
        if self.keys.remaining > 0 {
            self.keys.read(&mut ahead)?;
            if self.keys.remaining == 0 {
                self.tensors.set_alignment(self.keys.alignment);
            }
        } else {
            self.tensors.read(&mut ahead)?;
        }
        *cursor = ahead;
        Ok(())
    }

    /// Returns the size of the numbers that can be skipped, in bytes.
    fn skippable(&self) -> Option<u64> {
        self.keys.list.as_ref()?.skippable()
    }

    /// Skips the rest of a list of numbers.
    fn skip_numbers(
        &mut self,
        buffer: &mut HeaderBuffer,
        bounds: Bounds,
    ) -> Result<(), HeaderError> {
        if let Some(bytes) = self.skippable() {
            bounds.check(buffer.position().saturating_add(bytes))?;
            buffer.skip(bytes);
            self.end_list();
        }
        Ok(())
    }

    fn end_list(&mut self) {
        let found = self.keys.list.as_ref().and_then(Vocabulary::from_list);
        self.vocabulary = found.or(self.vocabulary);
        self.keys.finish_list();
    }

    /// Estimates the bytes from the parser's position to the end of the header. Overestimates if in doubt, because
    /// extra bytes take less time than another request.
    fn rest(&self) -> u64 {
        let Self { keys, tensors, .. } = self;
        let list = keys.list.as_ref();
        let vocabulary = list.and_then(Vocabulary::from_list).or(self.vocabulary);
        let rest_of_keys = match keys.remaining {
            0 => 0,
            _ => OTHER_KEYS_BYTES
                .saturating_add(vocabulary.map_or(0, |found| found.later_lists(keys))),
        };
        let rest_of_list = list.map_or(0, |list| list.remaining.saturating_mul(list.mean_size()));
        let rest = rest_of_keys.saturating_add(rest_of_list);
        let rest = rest.saturating_add(tensors.remaining.saturating_mul(BYTES_PER_TENSOR));
        rest.saturating_add(rest / 16)
    }
}

/// Returns the error for a file in another format, from its first bytes.
fn wrong_format(cursor: &Cursor<'_>, found: [u8; 4]) -> CursorStop {
    let start = cursor.all();
    match DetectedFormat::recognize(start) {
        Some(detected) => HeaderError::wrong_format(detected).into(),
        None if start.len() < DETECTION_BYTES && DetectedFormat::is_possible(start) => {
            CursorStop::Missing(DETECTION_BYTES as u64)
        }
        None => {
            let message = format!("the file starts with the bytes {found:02x?} instead of `GGUF`");
            HeaderError::new(HeaderErrorKind::Other, message).into()
        }
    }
}

fn not_a_model(content: &str) -> HeaderError {
    let message = format!("the file contains {content}, not a model");
    HeaderError::new(HeaderErrorKind::NotAModel, message)
}

/// The number of bytes used to detect other formats.
const DETECTION_BYTES: usize = 8;
