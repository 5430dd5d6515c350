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

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["awq", "awq_marlin", "paroquant"],
    parts: &[
        PartName::weights("qweight"),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::auxiliary("qzeros", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("scaled_zeros", AuxiliaryTensor::ZeroPoint),
        PartName::common("theta", AuxiliaryTensor::Rotation),
        PartName::common("pairs", AuxiliaryTensor::Rotation),
        PartName::common("channel_scales", AuxiliaryTensor::Scale),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (Some(weights), Some(scales)) = (module.matrix("qweight"), module.matrix("scales")) else {
        return Ok(None);
    };
    let zeros = module.matrix("qzeros");
    let count = |columns| product(&[weights.stacked, weights.rows, columns]);
    let nibbles = |values: u64| weights.columns.checked_mul(values);
    let solved = |parameters, bits, evidence| {
        Solved::new(module, "qweight", parameters, Packing::with_bits("awq", bits, evidence))
    };
    match weights.container() {
        Some(16) if nibbles(1).is_some() && weights.rows.checked_mul(4) == Some(scales.columns) => {
            let parameters = product(&[weights.stacked, scales.columns, weights.columns]);
            solved(parameters, 4, "columns of scales × columns of qweight")
        }
        Some(32) if zeros.is_none() && scales.columns.checked_mul(2) == Some(weights.columns) => {
            let parameters = product(&[weights.stacked, weights.rows, 16, scales.columns]);
            solved(parameters, 4, "rows of qweight × 16 × columns of scales")
        }
        Some(32) if zeros.is_some_and(|zeros| zeros.columns == weights.columns) => {
            let values = divide(scales.columns, weights.columns);
            let bits = values.and_then(|values| divide(32, values));
            let bits = bits.ok_or(UnresolvedReason::ConflictingComponents)?;
            solved(count(scales.columns), bits, "rows of qweight × columns of scales")
        }
        Some(32) if weights.rows == scales.rows => {
            let parameters = nibbles(8).and_then(count);
            solved(parameters, 4, "rows of scales × 8 × columns of qweight")
        }
        _ => Err(UnresolvedReason::ConflictingComponents),
    }
}
