//! Parses a header: its keys, the vocabulary among them, its tensors, and the description of the model in the keys.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tensors::{TensorEntries, file_type};
use super::values::{Cursor, List, ValueType, invalid_key};
use crate::formats::buffer::{FileParts, Stop};
use crate::formats::{
    DetectedFormat, FileHeader, HeaderError, HeaderErrorKind, ModelDescription, clip,
};

/// The size of a tensor entry in bytes, rounded up. Names have about 25 bytes.
const BYTES_PER_TENSOR: u64 = 80;

/// The maximum expected size of all other keys in bytes, including a chat template.
const OTHER_KEYS_BYTES: u64 = 32 << 10;

/// The maximum number of keys. Known models have fewer than a hundred, and each key takes several times its length in
/// memory.
const MAX_KEYS: u64 = 10_000;

/// The maximum length of a key in bytes, according to the specification.
const MAX_KEY_LENGTH: u64 = 65_535;

/// The minimum size of a key and its value in bytes: length, one letter, type and value.
const MIN_KEY_SIZE: u64 = 8 + 1 + 4 + 1;

/// The key of the data alignment.
const ALIGNMENT: &str = "general.alignment";

/// The default data alignment in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The key that states the kind of tokenizer.
const TOKENIZER: &str = "tokenizer.ggml.model";

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// Ten times the number of merges per token: 22 for Llama 3, 10 for Qwen and GPT-2.
const MERGES_PER_10_TOKENS: u64 = 22;

/// Parses a header, or returns the range to read next.
pub(in crate::formats) fn parse(file: &FileParts) -> Result<FileHeader, Stop> {
    let mut cursor = Cursor { file, at: 0, is_big_endian: false };
    let mut content = Content::default();
    let tensors = content.read(&mut cursor);
    let tensors =
        tensors.map_err(|stop| stop.map_missing(|missing| content.next_range(missing, &cursor)))?;
    let mut header = content.finish(tensors, cursor.at, file.size)?;
    header.is_big_endian = cursor.is_big_endian;
    Ok(header)
}

/// The content of a header that has been read so far.
#[derive(Debug, Default)]
struct Content {
    /// The keys, with their values as text.
    metadata: BTreeMap<String, String>,
    vocabulary: Option<List>,
    /// The last list that is not the vocabulary.
    list: List,
    /// The number of unread keys.
    keys: u64,
    /// The number of unread tensors.
    tensors: u64,
}

impl Content {
    /// Reads all keys and tensors.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<TensorEntries, Stop> {
        (self.tensors, self.keys) = read_counts(cursor)?;
        let mut alignment = DEFAULT_ALIGNMENT;
        for at in 0..self.keys {
            let key = cursor.name("key", at, MAX_KEY_LENGTH)?;
            if self.metadata.contains_key(key) {
                return Err(invalid_key(key, "appears twice").into());
            }
            let value_type = ValueType::read(cursor, key)?;
            let value = match value_type {
                ValueType::List if key == TOKENS => {
                    self.vocabulary.insert(List::default()).read(cursor, key)?
                }
                ValueType::List => self.list.read(cursor, key)?,
                _ => value_type.read_text(cursor)?,
            };
            if key == ALIGNMENT {
                alignment = parse_alignment(value_type, &value)?;
            }
            self.metadata.insert(key.to_owned(), value);
            self.keys -= 1;
        }
        let mut entries = TensorEntries::new(alignment);
        for at in 0..self.tensors {
            entries.read(cursor, at)?;
            self.tensors -= 1;
        }
        Ok(entries)
    }

    /// Returns the next range: at least the missing one, and up to the estimated end of the header.
    fn next_range(&self, missing: Range<u64>, cursor: &Cursor<'_>) -> Range<u64> {
        let Range { start, end } = missing;
        // Grows in proportion, so that the number of starts is logarithmic.
        let least = end.saturating_add(cursor.file.length() / 8);
        let expected = cursor.at.saturating_add(self.rest()).max(least);
        let limit = cursor.file.limit.min(cursor.file.size.unwrap_or(u64::MAX));
        start..expected.min(limit.max(end))
    }

    /// Estimates the bytes from the cursor to the end of the header. Overestimates if in doubt, because extra bytes
    /// take less time than another request.
    fn rest(&self) -> u64 {
        let lists = [self.vocabulary.as_ref(), Some(&self.list)].into_iter().flatten();
        let rest_of_lists = lists.map(List::rest).fold(0, u64::saturating_add);
        let rest_of_keys =
            if self.keys == 0 { 0 } else { OTHER_KEYS_BYTES.saturating_add(self.later_lists()) };
        let rest = rest_of_keys.saturating_add(rest_of_lists);
        let rest = rest.saturating_add(self.tensors.saturating_mul(BYTES_PER_TENSOR));
        rest.saturating_add(rest / 16)
    }

    /// Estimates the size of the unread lists after the vocabulary: either types and 4-byte scores, or types and
    /// merges, which join two tokens.
    fn later_lists(&self) -> u64 {
        let Some(vocabulary) = &self.vocabulary else { return 0 };
        let is_bpe = self.metadata.get(TOKENIZER).is_some_and(|tokenizer| tokenizer == "gpt2");
        let merge = vocabulary.mean_size() * MERGES_PER_10_TOKENS / 10;
        let [types, scores, merges] = ["token_type", "scores", "merges"]
            .map(|list| !self.metadata.contains_key(&format!("tokenizer.ggml.{list}")))
            .map(u64::from);
        let per_token = 4 * types + if is_bpe { merge * merges } else { 4 * scores };
        vocabulary.length.saturating_mul(per_token)
    }

    /// Returns the header of a file in which the tensor entries end at byte `end`.
    fn finish(
        self,
        tensors: TensorEntries,
        end: u64,
        file_size: Option<u64>,
    ) -> Result<FileHeader, HeaderError> {
        if let Some(content) = other_content(&self.metadata) {
            return Err(not_a_model(content));
        }
        let data_start = tensors.data_start(end);
        let data_size = file_size.map(|size| size.saturating_sub(data_start));
        let model = describe(&self.metadata, self.vocabulary.map(|list| list.length));
        let header = FileHeader::new(tensors.finish(data_size)?, 0..data_start);
        // Some importance matrices lack `general.type`.
        if header.tensors().names().next().is_some_and(is_importance) {
            return Err(not_a_model(IMPORTANCE_MATRIX));
        }
        // Programs ignore bytes after the data, which is often padded.
        let file_size = file_size.map_or(header.file_size(), |size| size.max(header.file_size()));
        let mut header = header.with_file_size(file_size).with_metadata(Some(self.metadata));
        (header.model, header.is_self_describing) = (model.map(Box::new), true);
        Ok(header)
    }
}

/// Reads the magic bytes, the version and the numbers of tensors and keys.
fn read_counts(cursor: &mut Cursor<'_>) -> Result<(u64, u64), Stop> {
    let start = cursor.file.detection_bytes()?;
    let magic = cursor.bytes(4)?;
    if magic != b"GGUF" {
        return Err(wrong_format(start, magic).into());
    }
    let mut version = cursor.number(4)?;
    // The format does not mark its byte order, but versions are small numbers.
    if version.trailing_zeros() >= 16 {
        cursor.is_big_endian = true;
        cursor.at -= 4;
        version = cursor.number(4)?;
    }
    if !matches!(version, 2 | 3) {
        let message = format!("unsupported GGUF version {version}; only 2 and 3 are supported");
        return Err(HeaderError::new(HeaderErrorKind::Unsupported, message).into());
    }
    let [tensors, keys] = [cursor.number(8)?, cursor.number(8)?];
    let smallest = tensors.saturating_mul(TensorEntries::MIN_SIZE);
    cursor.check(smallest.saturating_add(keys.saturating_mul(MIN_KEY_SIZE)))?;
    if keys > MAX_KEYS {
        let message = format!("the header has {keys} keys, which exceeds the limit of {MAX_KEYS}");
        return Err(HeaderError::new(HeaderErrorKind::Other, message).into());
    }
    Ok((tensors, keys))
}

/// Returns the error for a file in another format, from its first bytes.
fn wrong_format(start: &[u8], magic: &[u8]) -> HeaderError {
    if let Some(detected) = DetectedFormat::recognize(start) {
        return HeaderError::wrong_format(detected);
    }
    let message = format!("the file starts with the bytes {magic:02x?} instead of `GGUF`");
    HeaderError::new(HeaderErrorKind::Other, message)
}

fn not_a_model(content: &str) -> HeaderError {
    let message = format!("the file contains {content}, not a model");
    HeaderError::new(HeaderErrorKind::NotAModel, message)
}

/// Returns the alignment from the value of its key.
fn parse_alignment(value_type: ValueType, value: &str) -> Result<u64, HeaderError> {
    match value.parse::<u64>() {
        Ok(alignment) if value_type == ValueType::Uint(4) && alignment.is_power_of_two() => {
            Ok(alignment)
        }
        _ => {
            let value = clip(value);
            let message = format!("`{ALIGNMENT}` is `{value}`; it must be a 32-bit power of two");
            Err(HeaderError::new(HeaderErrorKind::Other, message))
        }
    }
}

/// The content of a file of activation statistics.
const IMPORTANCE_MATRIX: &str = "an importance matrix";

/// Returns whether a tensor has the name of activation statistics. Source: `tools/imatrix/imatrix.cpp` of `llama.cpp`.
fn is_importance(tensor: &str) -> bool {
    [".in_sum2", ".counts"].iter().any(|end| tensor.ends_with(end))
}

/// Returns the content of a file that is not a model: the importance matrices and control vectors that `llama-imatrix`
/// and `llama-cvector-generator` of `llama.cpp` write.
fn other_content(metadata: &BTreeMap<String, String>) -> Option<&'static str> {
    let is = |key: &str, value: &str| metadata.get(key).is_some_and(|found| found == value);
    let contents = [
        ("general.type", "imatrix", IMPORTANCE_MATRIX),
        ("general.architecture", "controlvector", "a control vector"),
    ];
    contents.iter().find(|(key, value, _)| is(key, value)).map(|(.., content)| *content)
}

/// Returns the description of a model; `None` if the keys contain none, as in all but the first file of a split
/// model. `vocabulary` is the length of the token list.
pub(super) fn describe(
    metadata: &BTreeMap<String, String>,
    vocabulary: Option<u64>,
) -> Option<ModelDescription> {
    let text = |key: &str| metadata.get(key).cloned();
    let number = |key: &str| metadata.get(key)?.parse::<u64>().ok();
    let architecture = text("general.architecture")?;
    let of_model = |key: &str| number(&format!("{architecture}.{key}"));
    Some(ModelDescription {
        kind: text("general.type"),
        file_type: number("general.file_type").and_then(file_type).map(str::to_owned),
        context_length: of_model("context_length"),
        layers: of_model("block_count"),
        draft_layers: of_model("nextn_predict_layers").filter(|layers| *layers > 0),
        experts: of_model("expert_count").filter(|experts| *experts > 0),
        experts_per_token: of_model("expert_used_count").filter(|experts| *experts > 0),
        tokenizer: text("tokenizer.ggml.model"),
        vocabulary,
        files: number("split.count").filter(|files| *files > 1),
        tensors: number("split.tensors.count"),
        architecture: Some(architecture),
    })
}
