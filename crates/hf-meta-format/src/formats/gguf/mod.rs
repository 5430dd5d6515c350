//! The GGUF format of `llama.cpp` and other GGML-based programs: a header parser.
//!
//! A header contains the numbers of tensors and keys, the keys with their values, and one entry per tensor. It has no
//! length prefix, so [`Gguf`] requests a first range, and estimates the rest from the arrays in it.
//! Versions 2 and 3 are supported, in both byte orders.
//!
//! The rules are those of the [format] and of `llama.cpp`, with one exception: a tensor type that is not known is
//! kept by its number, and the tensor's size is derived from the offset of the next one.
//!
//! Shapes are in safetensors order, with the slowest-varying dimension first. GGUF files use the opposite order.
//!
//! Long strings and arrays, such as chat templates and vocabularies, are not kept. Their metadata value is their
//! length.
//!
//! [format]: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

mod parser;
mod tensors;
mod values;

pub(super) use self::parser::parse;
#[doc(hidden)]
pub use self::tensors::is_file_type;
use super::buffer::PartsParser;
use super::{Format, HeaderParser, NumberedName, RepoPath, WeightFileName, WeightsKind};

/// The GGUF format.
#[derive(Clone, Copy, Debug)]
pub struct Gguf;

/// The length of the first range of a file, in bytes. Headers with the smallest vocabularies in use, 32,000 tokens,
/// have about 0.7 MB. The next larger vocabularies give headers of 2 to 12 MB, and a range of that size would delay
/// all other files: at 100 Mbit/s, 1 MB takes as long as the two round trips of a second range at 40 ms.
const FIRST_RANGE: u64 = 1 << 20;

/// The length of the first range for all but the first file of a split model, in bytes. Only the first file contains
/// the vocabulary.
const LATER_FIRST_RANGE: u64 = 64 << 10;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn title(&self) -> &'static str {
        "GGUF"
    }

    fn extension(&self) -> &'static str {
        ".gguf"
    }

    fn parser(&self, path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        let number = |name: NumberedName<'_>| name.number.parse::<u64>().ok();
        let is_later = NumberedName::split(path.as_str()).filter_map(number).any(|file| file > 1);
        let first_range = if is_later { LATER_FIRST_RANGE } else { FIRST_RANGE };
        PartsParser::boxed(first_range, max_header_bytes, parse)
    }

    /// Splits a name, such as `Llama-3.2-1B-UD-Q4_K_XL`, into model and quantization.
    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        let mut name = WeightFileName { kind: kind(stem), ..WeightFileName::new(stem) };
        if let Some((start, end)) = quantization(stem) {
            let model = stem[..start].trim_end_matches(['-', '.', '_']);
            // `x-Q4_K_M-v1` and `x-Q4_K_M-v2` are two models. An importance matrix does not make another one.
            let rest = if IMATRIX_SUFFIXES.contains(&&stem[end..]) { "" } else { &stem[end..] };
            name.model = format!("{model}{rest}");
            name.variant = stem[start..end].to_ascii_uppercase();
            name.is_quantized = true;
        }
        Some(name)
    }
}

/// Returns the kind of weights from the words in a file name.
fn kind(stem: &str) -> WeightsKind {
    let name = stem.to_ascii_lowercase();
    let mut words = name.split(['-', '.', '_']);
    if name.contains("mmproj") {
        WeightsKind::Projector
    } else if name.contains("imatrix") {
        WeightsKind::ImportanceMatrix
    } else if words.any(|word| matches!(word, "lora" | "adapter")) {
        WeightsKind::Adapter
    } else {
        WeightsKind::Model
    }
}

/// Prefixes that belong to a quantization: a recipe of Unsloth, and the use of an importance matrix.
const QUANTIZATION_PREFIXES: [&str; 2] = ["UD", "I1"];

/// The ends of names of quantizations that were made with an importance matrix.
const IMATRIX_SUFFIXES: [&str; 2] = ["-imat", "-imatrix"];

/// Returns the byte range of the last quantization in a name, including its prefix.
fn quantization(stem: &str) -> Option<(usize, usize)> {
    let is_border = |c: char| matches!(c, '-' | '.');
    let (mut start, mut found, mut mark) = (0, None, None);
    for word in stem.split(is_border) {
        let end = start + word.len();
        if is_quantization(&word.to_ascii_uppercase()) {
            found = Some((mark.unwrap_or(start), end));
        }
        let is_mark = QUANTIZATION_PREFIXES.iter().any(|mark| mark.eq_ignore_ascii_case(word));
        mark = is_mark.then_some(start);
        start = end + 1;
    }
    found
}

/// Returns whether an upper-case word is a quantization, such as `Q4_K_M`, `IQ2_XXS`, `TQ1_0` or `BF16`.
fn is_quantization(word: &str) -> bool {
    if matches!(word, "F16" | "FP16" | "F32" | "FP32" | "BF16" | "MXFP4" | "MXFP4_MOE" | "NVFP4") {
        return true;
    }
    let digits = ["IQ", "TQ", "Q"].iter().find_map(|prefix| word.strip_prefix(prefix));
    let Some((bits, rest)) = digits.and_then(|rest| rest.split_at_checked(1)) else { return false };
    let is_known = |part: &str| {
        // `KS` to `R8` are types of ik_llama.cpp.
        matches!(part, "K" | "NL" | "S" | "M" | "L" | "XS" | "XXS" | "XL" | "XXL" | "P")
            || matches!(part, "KS" | "KSS" | "KL" | "KT" | "R4" | "R8")
            || part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    bits.bytes().all(|bits| matches!(bits, b'1'..=b'8'))
        && (rest.is_empty()
            || rest.strip_prefix('_').is_some_and(|rest| rest.split('_').all(is_known)))
}

#[cfg(test)]
mod tests;
