//! Parses names of GGUF files, which contain the quantization by convention.

use crate::formats::{WeightFileName, WeightsKind};

/// Splits a name without extension, such as `Llama-3.2-1B-UD-Q4_K_XL`, into model and quantization.
pub(super) fn split(stem: &str) -> WeightFileName {
    let kind = kind(stem);
    let Some((start, end)) = quantization(stem) else {
        return WeightFileName { kind, ..WeightFileName::new(stem) };
    };
    let model = stem[..start].trim_end_matches(['-', '.', '_']);
    // `x-Q4_K_M-v1` and `x-Q4_K_M-v2` are two models. An importance matrix does not make another one.
    let rest = if IMATRIX_SUFFIXES.contains(&&stem[end..]) { "" } else { &stem[end..] };
    let variant = stem[start..end].to_ascii_uppercase();
    let model = format!("{model}{rest}");
    WeightFileName { model, variant, is_quantized: true, kind, ..WeightFileName::default() }
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
mod tests {
    use super::*;

    #[test]
    fn names_state_model_and_quantization() {
        let cases = [
            ("Llama-3.2-1B-Instruct-Q4_K_M", "Llama-3.2-1B-Instruct", "Q4_K_M"),
            ("llama-2-7b.Q4_0", "llama-2-7b", "Q4_0"),
            ("Phi-3-mini-4k-instruct-q4", "Phi-3-mini-4k-instruct", "Q4"),
            ("DeepSeek-R1-IQ4_KSS", "DeepSeek-R1", "IQ4_KSS"),
            ("DeepSeek-R1-IQ2_K_R4", "DeepSeek-R1", "IQ2_K_R4"),
            ("gemma-3-4b-it-q4_0", "gemma-3-4b-it", "Q4_0"),
            ("Qwen3-30B-A3B-UD-Q4_K_XL", "Qwen3-30B-A3B", "UD-Q4_K_XL"),
            ("Model.i1-IQ2_XXS", "Model", "I1-IQ2_XXS"),
            ("ggml-model-f16", "ggml-model", "F16"),
            ("x-Q4_K_M-imat", "x", "Q4_K_M"),
            ("Model-Q4_K_M-v1", "Model-v1", "Q4_K_M"),
            ("gpt-oss-20b-mxfp4", "gpt-oss-20b", "MXFP4"),
            ("x-Q4_0_4_8", "x", "Q4_0_4_8"),
            ("q4_k_m", "", "Q4_K_M"),
            ("BitNet-TQ1_0", "BitNet", "TQ1_0"),
            ("Q8", "", "Q8"),
            ("Q4_0-of-Q8_0", "Q4_0-of", "Q8_0"),
        ];
        for (stem, model, variant) in cases {
            let parts = split(stem);
            assert_eq!((&*parts.model, &*parts.variant), (model, variant), "{stem}");
            assert!(parts.is_quantized && parts.kind == WeightsKind::Model, "{stem}");
        }
        for stem in ["model", "Qwen-7B", "Q", "q_4", "Q9_0", "Q4_k_z", "F8", "", "a.b-c"] {
            assert_eq!(split(stem), WeightFileName::new(stem));
        }
    }

    #[test]
    fn non_model_files_are_recognized() {
        let cases = [
            ("mmproj-model-f16", WeightsKind::Projector),
            ("gemma-3-4b-it-mmproj-BF16", WeightsKind::Projector),
            ("imatrix_unsloth", WeightsKind::ImportanceMatrix),
            ("Llama-3.imatrix", WeightsKind::ImportanceMatrix),
            ("my-LoRA-f16", WeightsKind::Adapter),
            ("adapter", WeightsKind::Adapter),
            ("explora-7b-Q4_0", WeightsKind::Model),
        ];
        for (stem, kind) in cases {
            assert_eq!(split(stem).kind, kind, "{stem}");
        }
    }
}
