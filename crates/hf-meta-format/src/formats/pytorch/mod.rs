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
//! count the tensors one after another, because a storage may have unused elements.
//!
//! Source of the rules: `torch/serialization.py`, `torch/_utils.py` and `torch/_weights_only_unpickler.py` of torch
//! 2.15, and `Lib/pickle.py` of `CPython` 3.14.

mod archive;
mod parser;
mod pickle;
mod tensors;
mod values;

use self::parser::PyTorchParser;
use self::values::ELEMENT_TYPES;
pub use super::header::{PickleSummary, TensorView};
use super::safetensors::split_variant;
use super::{Format, HeaderError, HeaderErrorKind, HeaderParser, RepoPath, WeightFileName};

/// The format of `torch.save`.
#[derive(Clone, Copy, Debug)]
pub struct PyTorch;

/// The extensions of checkpoints, the most common one first.
const EXTENSIONS: [&str; 4] = [".bin", ".pt", ".pth", ".ckpt"];

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
            let (inner, is_open) =
                pattern.strip_suffix('*').map_or((pattern, false), |inner| (inner, true));
            match (inner.strip_prefix('*'), is_open) {
                (Some(inner), true) => stem.contains(inner),
                (Some(inner), false) => stem.ends_with(inner),
                (None, true) => stem.starts_with(inner),
                (None, false) => stem == inner,
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
        Box::new(PyTorchParser::new(max_header_bytes))
    }

    /// Removes the prefix of `pytorch_model`, the name of the file that `transformers` calls `model` in safetensors.
    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        let is_other = OtherFile::from_stem(stem).is_some();
        let name = stem.strip_prefix("pytorch_").filter(|name| name.starts_with("model"));
        (!is_other).then(|| split_variant(name.unwrap_or(stem)))
    }
}

/// Returns the error for a checkpoint that may be valid, but takes more memory or steps than the reader has.
fn too_large() -> HeaderError {
    let limits =
        "the checkpoint is larger than this reader's limits, which are enough for 100,000 tensors";
    HeaderError::new(HeaderErrorKind::TooLarge, limits)
}

/// The accepted names of each module, without element types. Source: `_get_allowed_globals` in
/// `torch/_weights_only_unpickler.py` of torch 2.15.
const ALLOWED: [(&str, &str); 9] = [
    ("collections", "Counter OrderedDict"),
    ("_codecs", "encode"),
    ("builtins", "bytearray complex set"),
    // The name of `builtins` in Python 2, which torch maps to it.
    ("__builtin__", "bytearray complex set"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.serialization", "_get_layout"),
    ("torch.storage", "TypedStorage UntypedStorage"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    (
        "torch._utils",
        "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy \
         _rebuild_meta_tensor_no_storage _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor \
         _rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_wrapper_subclass",
    ),
];

/// The accepted names of the module `torch`, without the element types that have a size here.
const ALLOWED_OF_TORCH: &str = "Size Tensor device per_channel_affine per_channel_affine_float_qparams \
    per_channel_symmetric per_tensor_affine per_tensor_symmetric bcomplex32 bits16 bits1x8 bits2x4 bits4x2 bits8 int1 \
    int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 quint2x4 quint4x2 QUInt2x4Storage \
    QUInt4x2Storage float4_e2m1fn_x2";

/// Returns whether `torch.load(weights_only=True)` accepts an import, written as `module.name`. It rejects a file
/// with any other import, because an import can execute any code.
///
/// ```
/// use hf_meta_format::formats::pytorch::is_allowed_import;
///
/// assert!(is_allowed_import("torch._utils._rebuild_tensor_v2"));
/// assert!(!is_allowed_import("posix.system"));
/// ```
#[must_use]
pub fn is_allowed_import(import: &str) -> bool {
    let Some((module, name)) = import.rsplit_once('.') else { return false };
    let has = |names: &str| names.split_whitespace().any(|allowed| allowed == name);
    let is_listed = ALLOWED.iter().any(|(allowed, names)| *allowed == module && has(names));
    let is_of_torch = module == "torch" && has(ALLOWED_OF_TORCH);
    is_listed || is_of_torch || is_element_type(module, name)
}

/// Returns whether a name is a dtype, or the class of the storages or tensors of one.
fn is_element_type(module: &str, name: &str) -> bool {
    let class = ["Storage", "Tensor"].iter().find_map(|end| name.strip_suffix(end));
    match (module, class) {
        ("torch", None) => ELEMENT_TYPES.iter().any(|(_, known, ..)| *known == name),
        ("torch" | "torch.cuda" | "torch.sparse" | "torch.cuda.sparse", Some(class)) => {
            ELEMENT_TYPES.iter().any(|(known, ..)| *known == class && !class.is_empty())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
