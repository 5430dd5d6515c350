//! GGUF blocks in `qweight U8 [outputs, bytes per row]`. The configuration names the block type. Source:
//! `gptqmodel/nn_modules/qlinear/gguf.py`.

use super::{
    Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved, UnresolvedReason, product,
};
use crate::formats::{BlockSize, Dtype};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["gguf"],
    parts: &[PartName::weights("qweight")],
    has_plain_weight: false,
    solve,
};

/// The minimum number of weights in a block of a quantized type.
const SMALLEST_BLOCK: u64 = 32;

/// Returns the block size of a GGUF type, such as `q4_0` or `q4_k_m`.
pub(in crate::count) fn block_of_type(name: &str) -> Option<BlockSize> {
    let name = name.to_uppercase();
    let name = ["_S", "_M", "_L"].iter().find_map(|size| name.strip_suffix(size)).unwrap_or(&name);
    Dtype::from(name).block().filter(|block| block.elements >= SMALLEST_BLOCK)
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
    let block = block.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let parameters =
        product(&[rows.stacked, rows.rows, rows.columns / block.bytes, block.elements]);
    let packing =
        Packing::without_bits("gguf blocks", "bytes of qweight by the block of the configuration");
    Solved::new(module, "qweight", parameters, packing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suffix of a mix, as in `q4_k_m`, does not change the block.
    #[test]
    fn a_type_has_a_block() {
        let cases = [
            ("q4_0", Some((32, 18))),
            ("Q5_1", Some((32, 24))),
            ("iq4_nl", Some((32, 18))),
            ("q4_k_m", Some((256, 144))),
            ("q3_k_l", Some((256, 110))),
            ("q6_k", Some((256, 210))),
            ("4", None),
            ("f16", None),
            ("f4", None),
        ];
        for (name, expected) in cases {
            let found = block_of_type(name).map(|block| (block.elements, block.bytes));
            assert_eq!(found, expected, "{name}");
        }
    }
}
