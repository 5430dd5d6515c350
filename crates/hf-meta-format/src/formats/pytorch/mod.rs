//! Checkpoints written by `torch.save`: a header parser that executes nothing.
//!
//! A checkpoint is a Python pickle of nested dictionaries, followed by the bytes of the storages that its tensors
//! use. Since torch 1.6 both are entries of an uncompressed ZIP archive. [`PyTorch`] reads the start of the file, the
//! central directory at its end, and the pickle. Older files are a sequence of pickles, which is read from the start.
//!
//! Loading a pickle calls any function that it names. This reader interprets the opcodes without calling anything:
//! it knows the functions of torch that describe tensors, and keeps every other call as an opaque object. The
//! functions and classes that a pickle names are its imports; [`is_allowed_import`] returns whether
//! `torch.load(weights_only=True)` accepts one.
//!
//! Tensors may share a storage. The table contains each stored element once: a tensor whose elements all belong to
//! others, such as a tied embedding, is not in the table. An expanded tensor has its stored shape in the table, with
//! a length of 1 in each expanded dimension. [`PickleSummary::views`] lists both kinds. The data offsets in the table
//! count the tensors one after another, because a storage may have unused elements. [`TensorPlaces`] has the positions
//! in the file of those whose elements are a range.
//!
//! Source of the rules: `torch/serialization.py`, `torch/_utils.py` and `torch/_weights_only_unpickler.py` of torch
//! 2.15, and `Lib/pickle.py` of `CPython` 3.14.

mod archive;
mod call;
mod entries;
mod parser;
mod pickle;
mod places;
mod tensor;
mod tensors;
mod values;

use self::parser::FIRST_RANGE;
pub(super) use self::parser::parse;
pub use self::places::{StoragePlace, TensorPlaces};
pub use self::values::{is_allowed_import, is_data_import};
use super::buffer::PartsParser;
pub use super::header::{PickleSummary, TensorView};
use super::safetensors::split_variant;
use super::{Format, HeaderParser, RepoPath, WeightFileName};

/// The format of `torch.save`.
#[derive(Clone, Copy, Debug)]
pub struct PyTorch;

/// The extensions of checkpoints, the most common one first. Early examples of PyTorch named pickles `.pth.tar`.
const EXTENSIONS: [&str; 6] = [".bin", ".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar"];

/// Patterns of names, without extension, of files that share these extensions and contain the state of a training run
/// of transformers, accelerate or `DeepSpeed`, or a vocabulary, as in llama2.c and in translation models.
const STATES: &str = "training_args* optimizer* scheduler* lr_scheduler* scaler* sampler* rng_state* random_states* \
    dl_state_dict* *_optim_states tokenizer vocab*";

/// Patterns of the names of weights in other formats with these extensions: Optimum writes `openvino_model.bin` next to
/// `openvino_model.xml`, whisper.cpp `ggml-base.bin`, llama.cpp before GGUF `model.ggmlv3.q4_0.bin`, and packages of
/// Core ML contain `weights/weight.bin`.
const OTHER_WEIGHTS: [(&str, &str); 4] = [
    ("openvino_*", "OpenVINO (.bin)"),
    ("ggml* *.ggml* *-ggml*", "GGML (.bin)"),
    ("*.ncnn", "ncnn (.bin)"),
    ("weight", "Core ML (.bin)"),
];

/// The content of a file that is not a checkpoint of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) enum OtherFile {
    /// The state of a training run, or a vocabulary.
    State,
    /// Weights in another format.
    Weights(&'static str),
}

impl OtherFile {
    /// Returns the content according to a file name without extension; `None` if it may be a checkpoint.
    pub(in crate::formats) fn from_stem(stem: &str) -> Option<Self> {
        let matches = |pattern: &str| {
            let inner = pattern.trim_matches('*');
            match (pattern.starts_with('*'), pattern.ends_with('*')) {
                (true, true) => stem.contains(inner),
                (true, false) => stem.ends_with(inner),
                (false, true) => stem.starts_with(inner),
                (false, false) => stem == inner,
            }
        };
        let matches = |patterns: &str| patterns.split_whitespace().any(matches);
        let weights = OTHER_WEIGHTS.iter().find(|(patterns, _)| matches(patterns));
        let weights = weights.map(|(_, format)| Self::Weights(format));
        if matches(STATES) { Some(Self::State) } else { weights }
    }
}

impl Format for PyTorch {
    fn name(&self) -> &'static str {
        "pytorch"
    }

    fn title(&self) -> &'static str {
        "PyTorch"
    }

    fn extension(&self) -> &'static str {
        EXTENSIONS[0]
    }

    fn match_extension(&self, path: &str) -> Option<&'static str> {
        EXTENSIONS.into_iter().find(|end| path.ends_with(end))
    }

    fn parser(&self, _: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        PartsParser::boxed(FIRST_RANGE, max_header_bytes, parse)
    }

    /// Removes the prefix of `pytorch_model`, the name of the file that `transformers` calls `model` in safetensors.
    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        let is_other = OtherFile::from_stem(stem).is_some();
        let name = stem.strip_prefix("pytorch_").filter(|name| name.starts_with("model"));
        (!is_other).then(|| split_variant(name.unwrap_or(stem)))
    }
}

#[cfg(test)]
mod tests;
