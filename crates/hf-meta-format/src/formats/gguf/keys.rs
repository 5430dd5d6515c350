//! The keys of a header and their values, and the vocabulary among them.

use std::collections::BTreeMap;

use super::values::{Cursor, CursorStop, List, ValueType, invalid_key, read_name};
use crate::formats::{HeaderError, HeaderErrorKind, clip};

/// The key of the data alignment.
const ALIGNMENT: &str = "general.alignment";

/// The default data alignment in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The keys read so far, with their values as text.
#[derive(Debug)]
pub(super) struct Keys {
    /// The number of unread keys.
    pub(super) remaining: u64,
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
    const MAX_KEYS: u64 = 10_000;

    /// The maximum length of a key in bytes, according to the specification.
    const MAX_KEY_LENGTH: u64 = 65_535;

    /// The minimum size of a key and its value in bytes: length, one letter, type and value.
    pub(super) const MIN_SIZE: u64 = 8 + 1 + 4 + 1;

    pub(super) fn new(keys: u64) -> Result<Self, HeaderError> {
        if keys > Self::MAX_KEYS {
            let limit = Self::MAX_KEYS;
            let message = format!("the header has {keys} keys, which exceeds the limit of {limit}");
            return Err(HeaderError::new(HeaderErrorKind::Other, message));
        }
        let alignment = DEFAULT_ALIGNMENT;
        Ok(Self { remaining: keys, metadata: BTreeMap::new(), alignment, list: None, total: keys })
    }

    /// Reads a key and its value. For a list, reads its type and length only.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), CursorStop> {
        let key = read_name(cursor, "key", self.total - self.remaining, Self::MAX_KEY_LENGTH)?;
        if self.metadata.contains_key(key) {
            return Err(invalid_key(key, "appears twice").into());
        }
        let value_type = ValueType::read(cursor, key)?;
        if value_type == ValueType::List {
            self.list = Some(List::read(cursor, key)?);
        }
        let value = value_type.read_text(cursor)?;
        if key == ALIGNMENT {
            self.alignment = alignment(value_type, &value)?;
        }
        self.metadata.insert(key.to_owned(), value);
        self.remaining -= 1;
        Ok(())
    }

    /// Stores the completed list.
    pub(super) fn finish_list(&mut self) {
        self.metadata.extend(self.list.take().map(List::into_text));
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
pub(super) struct Vocabulary {
    pub(super) tokens: u64,
    token_bytes: u64,
}

impl Vocabulary {
    /// Returns the vocabulary if the list is one. The list may be incomplete.
    pub(super) fn from_list(list: &List) -> Option<Self> {
        (list.key == TOKENS).then(|| Self { tokens: list.length, token_bytes: list.mean_size() })
    }

    /// Estimates the size of the unread lists after the vocabulary: either types and 4-byte scores, or types and
    /// merges, which join two tokens.
    pub(super) fn later_lists(self, keys: &Keys) -> u64 {
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
