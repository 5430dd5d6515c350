//! Quantization methods, declared as their writers store a matrix.
//!
//! A method is a [`Method`] constant: the names in `quant_method`, and its layouts. A [`PackedLayout`](layout::PackedLayout) lists the
//! parts of a module with their shapes, as [terms](term::Term): a side of the matrix times a fraction, exact or rounded
//! up. The count [inverts](invert) the shapes, and the verification [evaluates](evaluate()) them.
//!
//! # Adding a method
//!
//! 1. Write its constant in the file of its family, and add it to [`METHODS`] and to the table below. The name of a part
//!    may have marks: `?` if unquantized models use the name, too, so that the name alone proves nothing, and `*` for the end
//!    of a segment. If no module of a file has its weights, the count is at best uncertain, and `verify` reports them as
//!    missing if the parts that are left have names of one method.
//! 2. If a part depends on a flag of the recipe, add the flag to `Key` and to `NUMBERS` in `check/rules/recipe.rs`.
//! 3. Add a case with a known number of parameters to `tests/oracles/definitions.py`, or to `real.py` if the packer runs
//!    on a CPU, and run the script: it writes the fixture. End the name of the case with the bits, such as `-4bit`, which a
//!    test compares. Without published code, its source is the document that defines the parts. If huggingface.js counts
//!    it differently, the case states the reason as `peers`. If shapes follow from outputs and inputs alone, add a line to
//!    `PACKERS` in `tests/it/count/properties/packed_models.rs`. Cases of single modules, such as those of models that only
//!    use the same names, are in `count/tests/packers.rs` and `flagged.rs`; broken ones are lines of
//!    `check/rules/defects.txt`.
//! 4. `cargo test --workspace --lib count` counts the cases, and prints what the pages lack. A count that is only marked
//!    passes, so look at the command on your fixture as written, with another architecture, and without a configuration.
//!    The filter leaves `check::rules` out, which tests recipes and missing parts: run it once without the filter.
//!
//! | file | families |
//! |---|---|
//! | `words` | weights in words, or several in the bytes of a layout of words: GPTQ, AWQ, Marlin, compressed-tensors, MLX |
//! | `bytes` | one or more weights per byte: INT8, bitsandbytes, modelopt, BitNet, SDNQ |
//! | `floats` | 8-bit and 4-bit floats with scales of rows or blocks |
//! | `groups` | groups of weights, or tiles: EXL, HQQ, Quanto, torchao, SINQ |
//! | `codebooks` | codes that stand for vectors: AQLM, VPTQ, QuIP#, HIGGS |

mod bytes;
mod codebooks;
mod evaluate;
mod floats;
mod groups;
mod invert;
mod layout;
mod names;
mod solve;
mod term;
mod words;

pub(crate) use self::evaluate::{Difference, DifferenceKind, Recipe, evaluate};
pub(super) use self::layout::Method;
pub(super) use self::names::{all_names, methods_of};
pub(crate) use self::names::{packed_by, packed_with};
pub(super) use self::solve::{ConfiguredMethod, Solved, solve};

/// Everything that the declarations need.
mod prelude {
    pub(super) use super::layout::Need::*;
    pub(super) use super::layout::PartShape::*;
    pub(super) use super::layout::Stored::*;
    pub(super) use super::layout::{Flag::*, *};
    pub(super) use super::term::{Side::*, Term, Term::*};
    pub(super) use crate::count::AuxiliaryTensor::*;
    pub(super) use crate::count::UnresolvedReason::{self, AmbiguousScheme, ConflictingComponents};
    pub(super) use crate::count::config::Key;
    pub(super) use crate::count::module::{Names, PLAIN};
    pub(super) use hf_meta_format::formats::{Dtype, TensorInfo};
}

/// All methods. A new one is the last line but one. The compiler reports a constant that is not in this list.
///
/// The methods that the configuration names are tried first, then all others in this order. The order only matters for
/// methods that store weights under the same name with parts of the same names and shapes: then the more common one comes
/// first, because files without a configuration have nothing else to decide by.
pub(super) static METHODS: &[Method] = &[
    words::GPTQ,
    words::AWQ,
    words::NEURAL_COMPRESSOR,
    words::MARLIN,
    words::PACKED,
    floats::SCALED_BYTES,
    floats::BLOCKS,
    words::MLX,
    bytes::BITSANDBYTES,
    floats::COMFY,
    bytes::BYTES,
    bytes::MODELOPT,
    words::QUARK,
    bytes::BITNET,
    codebooks::AQLM,
    groups::EXLLAMA,
    groups::HQQ,
    groups::QUANTO,
    codebooks::VPTQ,
    words::SVDQUANT,
    words::QOQ,
    codebooks::BITMASK,
    codebooks::DFLOAT11,
    words::BITBLAS,
    words::GGUF,
    floats::FP_QUANT,
    bytes::GEMMA,
    codebooks::HIGGS,
    codebooks::SPQR,
    codebooks::QUIP,
    codebooks::QTIP,
    groups::TORCHAO,
    bytes::SDNQ,
    groups::SINQ,
    ENGINE_OPTIONS,
];

/// The values of `quant_method` that select an option of vLLM 0.33 or `SGLang` 0.5.23, and no layout.
const ENGINE_OPTIONS: Method = Method {
    names: &[
        "experts_int8",
        "fp8_per_block",
        "fp8_per_channel",
        "fp8_per_tensor",
        "humming",
        "int8_per_channel_weight_only",
        "nvfp4_online",
        "nvfp4_per_token",
        "online",
    ],
    layouts: &[],
    others: &[],
};

/// Returns whether a method or an option with this lowercase name exists.
pub(super) fn is_known(name: &str) -> bool {
    METHODS.iter().any(|method| method.is_named(Some(name)))
}

/// Returns the flags of recipes on which parts of layouts depend.
#[cfg(test)]
pub(crate) fn flags() -> impl Iterator<Item = crate::count::config::Key> {
    let layouts = METHODS.iter().flat_map(|method| method.layouts);
    let parts = layouts.flat_map(layout::PackedLayout::parts);
    parts.filter_map(|part| match part.stored {
        layout::Stored::If(key) | layout::Stored::Unless(key) => Some(key),
        _ => None,
    })
}
