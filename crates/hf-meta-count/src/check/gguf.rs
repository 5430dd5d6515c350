//! Checks of GGUF headers: the conditions under which `llama.cpp` does not load a model.
//!
//! The rules come from `llama-model-loader.cpp`, `llama-model.cpp` and `llama-vocab.cpp`. The tensors are compared with
//! the keys as those of other models with `config.json`.

use serde_json::value::RawValue;

use crate::architectures::architecture::keys_of;
use crate::results::text::{counted, thousands};
use crate::results::{Finding, bounded};
use hf_meta_format::base::json_object::{object, string};
use hf_meta_format::formats::gguf::{Gguf, is_file_type};
use hf_meta_format::formats::weight_sets::{NumberedName, shard_number};
use hf_meta_format::formats::{Dtype, FileHeader, Format, Headers, RepoPath, all_tensors, clip};

const TOKENS: &str = "tokenizer.ggml.tokens";

/// The lists with one entry per token.
const TOKEN_LISTS: [&str; 2] = ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"];

/// The types of weights that a model may have had before it was quantized, whatever the type of the file.
const NATIVE_TYPES: [Dtype; 6] =
    [Dtype::MXFP4, Dtype::NVFP4, Dtype::TQ1_0, Dtype::TQ2_0, Dtype::Q1_0, Dtype::Q2_0];

/// Checks the headers of a model. `path` is the path of its file, or the path pattern of its parts. `is_complete` is
/// true if all parts were read.
pub(super) fn check_gguf(path: &RepoPath, headers: &Headers, is_complete: bool) -> Vec<Finding> {
    let parts = headers.iter().filter_map(|(name, header)| check_part(path, name, header));
    let mut findings = bounded(parts);
    if is_complete && let Some(header) = model_header(headers) {
        let checked = GgufModel { file: clip(path.as_str()), header, headers };
        checked.check(&mut findings);
        findings.extend(checked.check_file_type(path));
    }
    findings
}

/// Returns the header with the description of a model; `None` for other contents.
fn model_header(headers: &Headers) -> Option<&FileHeader> {
    let is_model = |header: &&FileHeader| {
        let kind = header.model.as_ref().map(|model| model.kind.as_deref().unwrap_or("model"));
        kind == Some("model")
    };
    headers.iter().map(|(_, header)| header).find(is_model)
}

/// Returns the keys of a GGUF model as a configuration in JSON: those of its architecture, and of the tokenizer. Returns
/// `None` if a list of numbers is only known by its length, so that formulas would take the key for missing.
pub(super) fn gguf_config(headers: &Headers) -> Option<Vec<u8>> {
    let header = model_header(headers)?;
    let (metadata, model) = (header.metadata()?, header.model.as_deref()?);
    let architecture = model.architecture.as_deref()?;
    let is_cut = |(key, value): (&String, &String)| {
        key.starts_with(architecture) && value.ends_with(" numbers)")
    };
    if metadata.iter().any(is_cut) {
        return None;
    }
    let entries = metadata.iter().filter_map(|(key, value)| {
        let of_model = key.strip_prefix(architecture).and_then(|key| key.strip_prefix('.'));
        let key = of_model.or_else(|| key.starts_with("tokenizer.").then_some(key))?;
        // Numbers, Booleans and lists of them are stored as JSON.
        Some((key, serde_json::from_str::<&RawValue>(value).ok()?.get()))
    });
    let kind = string(&format!("gguf:{architecture}"));
    let tokens = model.vocabulary.map(|tokens| tokens.to_string());
    let tokens = tokens.iter().map(|tokens| (TOKENS, &**tokens));
    let others = [("model_type", &*kind), ("tie_word_embeddings", "false")];
    Some(object(entries.chain(others).chain(tokens)))
}

/// Compares the number of a part with the number in its name, which `llama.cpp` uses to find it.
fn check_part(path: &RepoPath, name: &RepoPath, header: &FileHeader) -> Option<Finding> {
    const KEY: &str = "split.no";

    let (number, _) = shard_number(name).filter(|(_, total)| *total > 1)?;
    let file = clip(path.sibling(&name.file_name()).as_str());
    let Some(declared) = header.metadata()?.get(KEY) else {
        return Some(Finding::MissingKey { file, key: KEY.to_owned() });
    };
    let is_wrong = declared.parse() != Ok(u64::from(number).wrapping_sub(1));
    is_wrong.then(|| Finding::MetadataMismatch {
        file,
        key: KEY.to_owned(),
        declared: clip(declared),
        found: format!("its name states part {number} (the first part is 0)"),
    })
}

/// A complete model in one file or several.
struct GgufModel<'a> {
    /// The path, for messages.
    file: String,
    /// The header with the description of the model.
    header: &'a FileHeader,
    headers: &'a Headers,
}

impl<'a> GgufModel<'a> {
    fn key(&self, key: &str) -> Option<&'a str> {
        self.header.metadata()?.get(key).map(String::as_str)
    }

    fn missing_key(&self, key: &str) -> Finding {
        Finding::MissingKey { file: self.file.clone(), key: clip(key) }
    }

    /// Checks the keys that `llama.cpp` needs for the blocks of a model.
    fn check(&self, findings: &mut Vec<Finding>) {
        let Some(architecture) = self.key("general.architecture") else { return };
        let known = format!("gguf:{architecture}");
        let mut required = keys_of(&known).peekable();
        let has_blocks = all_tensors(self.headers).any(|(name, _)| name.starts_with("blk."));
        if !has_blocks || required.peek().is_none() {
            return;
        }
        let keys = required.map(|key| format!("{architecture}.{key}"));
        let missing = keys.filter(|key| self.key(key).is_none());
        findings.extend(missing.map(|key| self.missing_key(&key)));
        self.check_heads(architecture, findings);
        self.check_vocabulary(findings);
    }

    /// Checks the number of heads. Without the key, llama.cpp reads 0 (`llama_model::load_hparams`), so that queries of all
    /// architectures but one would have another shape.
    fn check_heads(&self, architecture: &str, findings: &mut Vec<Finding>) {
        /// Its queries have the width of the embeddings: `load_arch_tensors` in `models/qwen.cpp` of llama.cpp 0.6.0.
        const WITHOUT_HEADS: &str = "qwen";

        if architecture == WITHOUT_HEADS {
            return;
        }
        let key = format!("{architecture}.attention.head_count");
        let is_query =
            |name: &str| name.ends_with(".attn_q.weight") || name.ends_with(".attn_qkv.weight");
        let mut names = all_tensors(self.headers).map(|(name, _)| name);
        if self.key(&key).is_none() && names.any(is_query) {
            findings.push(self.missing_key(&key));
        }
    }

    /// Checks the tokenizer, whose lists have one entry per token.
    fn check_vocabulary(&self, findings: &mut Vec<Finding>) {
        const MODEL: &str = "tokenizer.ggml.model";
        const MERGES: &str = "tokenizer.ggml.merges";

        let Some(tokenizer) = self.key(MODEL) else {
            return findings.push(self.missing_key(MODEL));
        };
        if matches!(tokenizer, "none" | "no_vocab") {
            return;
        }
        let Some(tokens) = self.header.model.as_deref().and_then(|model| model.vocabulary) else {
            return findings.push(self.missing_key(TOKENS));
        };
        if tokenizer == "gpt2" && self.key(MERGES).is_none() {
            findings.push(self.missing_key(MERGES));
        }
        for key in TOKEN_LISTS {
            let length = self.key(key).and_then(list_length).filter(|length| *length != tokens);
            findings.extend(length.map(|length| Finding::MetadataMismatch {
                file: self.file.clone(),
                key: key.to_owned(),
                declared: counted(length, "value"),
                found: format!("`{TOKENS}` has {}", thousands(tokens)),
            }));
        }
    }

    /// Compares the type of the file, as the header and the name state it, with the size of its matrices.
    fn check_file_type(&self, path: &RepoPath) -> Option<Finding> {
        let name = quantization_in_name(path);
        if name.starts_with("UD-") {
            // Unsloth chooses types per tensor.
            return None;
        }
        let declared = self.header.model.as_deref()?.file_type.as_deref();
        let declared = declared.filter(|name| is_file_type(name));
        let named = Some(name.trim_start_matches("I1-")).filter(|name| is_file_type(name));
        let mismatch = |declared: &str, found| {
            let (file, declared) = (self.file.clone(), declared.to_owned());
            Some(Finding::FileTypeMismatch { file, declared, found })
        };
        if let (Some(declared), Some(named)) = (declared, named)
            && declared != named
        {
            return mismatch(declared, format!("its name states {named}"));
        }
        let declared = declared.or(named)?;
        let matrices = all_tensors(self.headers).filter(|(_, tensor)| tensor.shape.len() > 1);
        let (mut elements, mut bytes, mut is_divisible) = (0_u64, 0_u64, false);
        for (_, tensor) in matrices {
            if tensor.dtype.block().is_none() || NATIVE_TYPES.contains(&tensor.dtype) {
                return None;
            }
            elements = elements.checked_add(tensor.elements()?)?;
            bytes = bytes.checked_add(tensor.byte_length())?;
            // Rows of other lengths cannot be stored in the blocks of some types.
            is_divisible |= tensor.shape.last().is_some_and(|row| row.is_multiple_of(256));
        }
        let hundredths = bytes.checked_mul(800)?.checked_div(elements)?;
        let least = least_bits(declared)?;
        let is_quantized = least < 1_600;
        if hundredths >= least && !(is_quantized && is_divisible && hundredths >= 1_600) {
            return None;
        }
        let bits = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        mismatch(declared, format!("its matrices have {bits} bits per weight"))
    }
}

/// Returns the length of a list of numbers from its text; see [`List`](hf_meta_format::formats::gguf).
fn list_length(text: &str) -> Option<u64> {
    if let Some(length) = text.strip_prefix('(').and_then(|text| text.strip_suffix(" numbers)")) {
        return length.parse().ok();
    }
    let elements = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(elements.split(", ").filter(|element| !element.is_empty()).count() as u64)
}

/// Returns the quantization that a file name states, in upper case; empty if it states none.
fn quantization_in_name(path: &RepoPath) -> String {
    let name = path.file_name();
    let name = name.as_str().strip_suffix(Gguf.extension()).unwrap_or_default();
    let numbered = NumberedName::split(&name.replace("*-of-", "0-of-"))
        .last()
        .map(|parts| parts.stem.trim_end_matches('-').to_owned());
    let parts = Gguf.split_name(numbered.as_deref().unwrap_or(name));
    let variant = parts.unwrap_or_default().variant;
    variant.strip_prefix("FP").map_or(variant.clone(), |bits| format!("F{bits}"))
}

/// Returns the least number of bits per weight in a file of a type, in hundredths: the bits of its smallest blocks.
/// Returns `None` for types that say nothing about it.
fn least_bits(file_type: &str) -> Option<u64> {
    let digits = |name: &str| name.chars().next()?.to_digit(10).map(u64::from);
    match file_type {
        "F32" => Some(3_200),
        "F16" | "BF16" => Some(1_600),
        // The recipes of these types store some tensors with fewer bits.
        name if name.starts_with("IQ") => Some(digits(&name[2..])? * 100 - 50),
        name if name.starts_with('Q') => Some(digits(&name[1..])? * 100),
        _ => None,
    }
}
