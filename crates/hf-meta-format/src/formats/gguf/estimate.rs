//! Estimates the rest of a header, to size the next range request.

use super::keys::Keys;
use super::tensors::TensorEntries;
use super::value::List;

/// The key that states the kind of tokenizer.
const TOKENIZER: &str = "tokenizer.ggml.model";

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// The size of a tensor entry in bytes, rounded up. Names have about 25 bytes.
const TENSOR: u64 = 80;

/// The maximum expected size of all other keys in bytes, including a chat template.
const OTHER_KEYS: u64 = 32 << 10;

/// Ten times the number of merges per token: 22 for Llama 3, 10 for Qwen and GPT-2.
const MERGES: u64 = 22;

/// The number of tokens, and their mean size in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vocabulary {
    pub(super) tokens: u64,
    token_bytes: u64,
}

impl Vocabulary {
    /// Returns the vocabulary if the list is one. The list may be incomplete.
    pub(super) fn from_list(list: &List) -> Option<Self> {
        (list.key == TOKENS).then(|| Self { tokens: list.length, token_bytes: mean(list) })
    }

    /// Estimates the size of the unread lists after the vocabulary: either types and 4-byte scores, or types and
    /// merges, which join two tokens.
    fn later_lists(self, keys: &Keys) -> u64 {
        let is_bpe = keys.metadata.get(TOKENIZER).is_some_and(|tokenizer| tokenizer == "gpt2");
        let merge = self.token_bytes * MERGES / 10;
        let [types, scores, merges] = ["token_type", "scores", "merges"]
            .map(|list| !keys.metadata.contains_key(&format!("tokenizer.ggml.{list}")))
            .map(u64::from);
        let per_token = 4 * types + if is_bpe { merge * merges } else { 4 * scores };
        self.tokens.saturating_mul(per_token)
    }
}

/// Estimates the bytes from the parser's position to the end of the header. Overestimates if in doubt, because extra
/// bytes take less time than another request.
pub(super) fn rest(keys: &Keys, tensors: &TensorEntries, vocabulary: Option<Vocabulary>) -> u64 {
    let list = keys.list.as_ref();
    let vocabulary = list.and_then(Vocabulary::from_list).or(vocabulary);
    let rest_of_keys = if keys.left == 0 {
        0
    } else {
        vocabulary.map_or(0, |found| found.later_lists(keys)).saturating_add(OTHER_KEYS)
    };
    let rest_of_list = list.map_or(0, |list| list.left.saturating_mul(mean(list)));
    let rest = rest_of_keys.saturating_add(rest_of_list);
    let rest = rest.saturating_add(tensors.left.saturating_mul(TENSOR));
    rest.saturating_add(rest / 16)
}

/// Returns the mean size of a list's elements in bytes, rounded up. Unread strings are assumed to be short.
fn mean(list: &List) -> u64 {
    list.bytes.checked_div(list.length - list.left).map_or(16, |mean| mean + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_were_read_are_not_expected() {
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
