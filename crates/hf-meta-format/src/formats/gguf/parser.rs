//! Parses a header that may arrive in chunks: its keys, the vocabulary among them, and its tensors.

use std::collections::BTreeMap;
use std::ops::Range;

use super::model::{IMPORTANCE_MATRIX, describe, is_importance, other_content};
use super::tensors::TensorEntries;
use super::values::{Bounds, Cursor, List, ValueType, invalid_key, read_name};
use crate::formats::buffer::{HeaderBuffer, Stop};
use crate::formats::{
    DetectedFormat, FileHeader, HeaderError, HeaderErrorKind, HeaderParser, Step, clip,
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
    next: Next,
    keys: Keys,
    tensors: TensorEntries,
    vocabulary: Option<Vocabulary>,
}

/// The item to read next.
#[derive(Debug)]
enum Next {
    Key,
    /// An element of a list, which is the value of the last key.
    Element(List),
    Tensor,
}

impl GgufParser {
    pub(super) fn new(first_range: u64, max_header_bytes: u64) -> Self {
        Self { first_range, max_header_bytes, buffer: HeaderBuffer::default(), content: None }
    }

    /// Parses until bytes are missing or the header is complete.
    fn parse(&mut self, bounds: Bounds) -> Result<(), Stop> {
        while self.content.as_ref().is_none_or(|content| !content.is_complete()) {
            let (bytes, start) = (self.buffer.rest(), self.buffer.position());
            let is_big_endian = self.content.as_ref().is_some_and(|content| content.is_big_endian);
            let mut cursor = Cursor { bytes, consumed: 0, start, bounds, is_big_endian };
            match &mut self.content {
                Some(content) => content.read_item(&mut cursor)?,
                None => self.content = Some(Content::start(&mut cursor)?),
            }
            let read = cursor.consumed;
            self.buffer.skip(read);
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
            Err(Stop::Invalid(error)) => Err(error),
            Err(Stop::Missing(Range { end, .. })) if self.buffer.is_at_end(file_size) => {
                Err(HeaderError::truncated(end, self.buffer.arrived()))
            }
            Err(Stop::Missing(Range { end, .. })) => Ok(Step::Read(self.next_range(end, bounds))),
        }
    }
}

impl Content {
    /// Reads the magic bytes, the version and the numbers of tensors and keys.
    fn start(cursor: &mut Cursor<'_>) -> Result<Self, Stop> {
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
        let mut content = Self { is_big_endian, next: Next::Key, keys, tensors, vocabulary: None };
        content.next = content.after_key();
        Ok(content)
    }

    fn is_complete(&self) -> bool {
        matches!(self.next, Next::Tensor) && self.tensors.remaining == 0
    }

    /// Reads the next list elements, key or tensor. Changes nothing if bytes are missing.
    fn read_item(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match &mut self.next {
            Next::Key => {
                let list = self.keys.read(cursor)?;
                self.next = list.map_or_else(|| self.after_key(), Next::Element);
            }
            Next::Element(list) => {
                list.read_element(cursor)?;
                if list.remaining == 0 {
                    self.vocabulary = Vocabulary::from_list(list).or(self.vocabulary);
                    self.keys.metadata.extend([list.to_text()]);
                    self.next = self.after_key();
                }
            }
            Next::Tensor => self.tensors.read(cursor)?,
        }
        Ok(())
    }

    /// Returns the item after a key and its value.
    fn after_key(&mut self) -> Next {
        if self.keys.remaining > 0 {
            return Next::Key;
        }
        self.tensors = TensorEntries::new(self.tensors.total, self.keys.alignment);
        Next::Tensor
    }

    /// Estimates the bytes from the parser's position to the end of the header. Overestimates if in doubt, because
    /// extra bytes take less time than another request.
    fn rest(&self) -> u64 {
        let Self { keys, tensors, .. } = self;
        let list = if let Next::Element(list) = &self.next { Some(list) } else { None };
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
fn wrong_format(cursor: &Cursor<'_>, found: [u8; 4]) -> Stop {
    let start = cursor.bytes;
    match DetectedFormat::recognize(start) {
        Some(detected) => HeaderError::wrong_format(detected).into(),
        None if start.len() < DETECTION_BYTES && DetectedFormat::is_possible(start) => {
            Stop::Missing(0..DETECTION_BYTES as u64)
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

/// The key of the data alignment.
const ALIGNMENT: &str = "general.alignment";

/// The default data alignment in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The keys read so far, with their values as text.
#[derive(Debug)]
struct Keys {
    /// The number of unread keys.
    remaining: u64,
    metadata: BTreeMap<String, String>,
    alignment: u64,
    /// The number of keys.
    total: u64,
}

impl Keys {
    /// The maximum number of keys. Known models have fewer than a hundred, and each key takes several times its
    /// length in memory.
    const MAX_KEYS: u64 = 10_000;

    /// The maximum length of a key in bytes, according to the specification.
    const MAX_KEY_LENGTH: u64 = 65_535;

    /// The minimum size of a key and its value in bytes: length, one letter, type and value.
    const MIN_SIZE: u64 = 8 + 1 + 4 + 1;

    fn new(keys: u64) -> Result<Self, HeaderError> {
        if keys > Self::MAX_KEYS {
            let limit = Self::MAX_KEYS;
            let message = format!("the header has {keys} keys, which exceeds the limit of {limit}");
            return Err(HeaderError::new(HeaderErrorKind::Other, message));
        }
        let alignment = DEFAULT_ALIGNMENT;
        Ok(Self { remaining: keys, metadata: BTreeMap::new(), alignment, total: keys })
    }

    /// Reads a key and its value. Returns a list, of which it reads the type and the length only.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<List>, Stop> {
        let key = read_name(cursor, "key", self.total - self.remaining, Self::MAX_KEY_LENGTH)?;
        if self.metadata.contains_key(key) {
            return Err(invalid_key(key, "appears twice").into());
        }
        let value_type = ValueType::read(cursor, key)?;
        let is_list = value_type == ValueType::List;
        let list = is_list.then(|| List::read(cursor, key)).transpose()?;
        let value = value_type.read_text(cursor)?;
        if key == ALIGNMENT {
            self.alignment = alignment(value_type, &value)?;
        }
        self.metadata.insert(key.to_owned(), value);
        self.remaining -= 1;
        Ok(list)
    }
}

/// Returns the alignment from the value of its key.
fn alignment(value_type: ValueType, value: &str) -> Result<u64, HeaderError> {
    let alignment = value.parse::<u32>().ok().filter(|alignment| alignment.is_power_of_two());
    let alignment = alignment.filter(|_| value_type == ValueType::U32);
    alignment.map(u64::from).ok_or_else(|| {
        let value = clip(value);
        let message = format!("`{ALIGNMENT}` is `{value}`; it must be a 32-bit power of two");
        HeaderError::new(HeaderErrorKind::Other, message)
    })
}

/// The key that states the kind of tokenizer.
const TOKENIZER: &str = "tokenizer.ggml.model";

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// Ten times the number of merges per token: 22 for Llama 3, 10 for Qwen and GPT-2.
const MERGES_PER_10_TOKENS: u64 = 22;

/// The number of tokens, and their mean size in bytes.
#[derive(Clone, Copy, Debug)]
struct Vocabulary {
    tokens: u64,
    token_bytes: u64,
}

impl Vocabulary {
    /// Returns the vocabulary if the list is one. The list may be incomplete.
    fn from_list(list: &List) -> Option<Self> {
        (list.key == TOKENS).then(|| Self { tokens: list.length, token_bytes: list.mean_size() })
    }

    /// Estimates the size of the unread lists after the vocabulary: either types and 4-byte scores, or types and
    /// merges, which join two tokens.
    fn later_lists(self, keys: &Keys) -> u64 {
        let is_bpe = keys.metadata.get(TOKENIZER).is_some_and(|tokenizer| tokenizer == "gpt2");
        let merge = self.token_bytes * MERGES_PER_10_TOKENS / 10;
        let [types, scores, merges] = ["token_type", "scores", "merges"]
            .map(|list| !keys.metadata.contains_key(&format!("tokenizer.ggml.{list}")))
            .map(u64::from);
        let per_token = 4 * types + if is_bpe { merge * merges } else { 4 * scores };
        self.tokens.saturating_mul(per_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_lists_are_not_estimated() {
        let vocabulary = Vocabulary { tokens: 1_000, token_bytes: 20 };
        let rest = |tokenizer: &str, lists: &[&str]| {
            let mut keys = Keys::new(10).unwrap();
            keys.metadata.insert(TOKENIZER.to_owned(), tokenizer.to_owned());
            let names = lists.iter().map(|list| format!("tokenizer.ggml.{list}"));
            keys.metadata.extend(names.map(|name| (name, String::new())));
            vocabulary.later_lists(&keys)
        };
        assert_eq!(rest("gpt2", &[]), 1_000 * (4 + 44));
        assert_eq!(rest("gpt2", &["merges"]), 4_000);
        assert_eq!(rest("gpt2", &["token_type", "merges"]), 0);
        assert_eq!(rest("llama", &[]), 8_000);
        assert_eq!(rest("llama", &["scores"]), 4_000);
    }
}
