//! AWQ: 4-bit weights, packed along the outputs into words of 32 or 16 bits.
//!
//! | version | `qweight` | `scales` | `qzeros` |
//! |---|---|---|---|
//! | `gemm` | `I32 [inputs, outputs / 8]` | `[groups, outputs]` | `[groups, outputs / 8]` |
//! | `gemv` | `I32 [outputs, inputs / 8]` | `[outputs, padded groups]` | `[outputs, …]` |
//! | `gemv_fast`, llm-awq | `I16 [outputs / 4, inputs]` | `[padded groups, outputs]` | the same, as floats |
//! | `marlin` | `I32 [inputs / 16, 2 · outputs]` | `[groups, outputs]` | none |
//!
//! Source: `awq/modules/linear` of AutoAWQ 0.2, and `awq/quantize/qmodule.py` of llm-awq. ParoQuant adds rotations.

use super::prelude::*;

pub(super) const AWQ: Method = Method {
    names: &["awq", "auto_awq", "awq_marlin", "paroquant"],
    weights: &["qweight"],
    auxiliary: &[(Scale, &["scales"]), (ZeroPoint, &["qzeros", "scaled_zeros"])],
    ambiguous: &[(Rotation, &["theta", "pairs"]), (Scale, &["channel_scales"])],
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some([weights, scales]) = module.matrices(["qweight", "scales"]) else { return Ok(None) };
    let zeros = module.matrix("qzeros");
    let solved = |factors: [u64; 3], bits, evidence| {
        let parameters = product(&factors).and_then(|count| count.checked_mul(weights.stacked));
        Solved::new(module, "qweight", parameters, Packing::new("awq", bits, evidence))
    };
    match weights.container() {
        Some(16) if weights.rows.checked_mul(4) == Some(scales.columns) => {
            let evidence = "columns of scales × columns of qweight";
            solved([1, scales.columns, weights.columns], 4, evidence)
        }
        Some(32) if zeros.is_none() && scales.columns.checked_mul(2) == Some(weights.columns) => {
            let evidence = "rows of qweight × 16 × columns of scales";
            solved([weights.rows, 16, scales.columns], 4, evidence)
        }
        Some(32) if zeros.is_some_and(|zeros| zeros.columns == weights.columns) => {
            let values = divide(scales.columns, weights.columns);
            let bits = values.and_then(|values| divide(32, values)).ok_or(ConflictingComponents)?;
            let evidence = "rows of qweight × columns of scales";
            solved([1, weights.rows, scales.columns], bits, evidence)
        }
        Some(32) if weights.rows == scales.rows => {
            let evidence = "rows of scales × 8 × columns of qweight";
            solved([weights.rows, 8, weights.columns], 4, evidence)
        }
        _ => Err(ConflictingComponents),
    }
}
