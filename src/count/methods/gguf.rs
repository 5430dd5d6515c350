//! GGUF blocks in `qweight U8 [outputs, bytes of a row]`. The configuration names the type of the blocks.
//! Source: `gptqmodel/nn_modules/qlinear/gguf.py`; block sizes from `ggml-quants.h`.

use super::{
    Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved, UnresolvedReason, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["gguf"],
    parts: &[PartName::weights("qweight")],
    has_plain_weight: false,
    solve,
};

/// The smallest block of a GGUF type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::count) struct GgufBlock {
    /// The number of weights in a block.
    weights: u64,
    /// The number of bytes of a block.
    bytes: u64,
}

impl GgufBlock {
    /// Returns the block of a type, such as `q4_0` or `q4_k_m`. Sizes from `ggml-quants.h`.
    pub(in crate::count) fn from_type(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let name =
            ["_s", "_m", "_l"].iter().find_map(|size| name.strip_suffix(size)).unwrap_or(&name);
        let (weights, bytes) = match name {
            "q4_0" | "iq4_nl" => (32, 18),
            "q4_1" => (32, 20),
            "q5_0" => (32, 22),
            "q5_1" => (32, 24),
            "q8_0" => (32, 34),
            "q2_k" => (256, 84),
            "q3_k" => (256, 110),
            "q4_k" => (256, 144),
            "q5_k" => (256, 176),
            "q6_k" => (256, 210),
            "iq4_xs" => (256, 136),
            _ => return None,
        };
        Some(Self { weights, bytes })
    }
}

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(rows) = module.matrix("qweight").filter(|rows| rows.container() == Some(8)) else {
        return Ok(None);
    };
    if module.has("scales") || !hints.names(METHOD.names) {
        return Ok(None);
    }
    let block = hints.choose(module.name, |scheme| {
        scheme.block.filter(|block| rows.columns.is_multiple_of(block.bytes))
    })?;
    let block = block.ok_or(UnresolvedReason::SeveralSchemes)?;
    let parameters = product(&[rows.stacked, rows.rows, rows.columns / block.bytes, block.weights]);
    let packing =
        Packing::without_bits("gguf blocks", "bytes of qweight by the block of the configuration");
    Solved::new(module, "qweight", parameters, packing)
}
