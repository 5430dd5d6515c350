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
