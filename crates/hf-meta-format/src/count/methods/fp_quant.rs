//! FP-Quant and Four Over Six: two FP4 weights per byte. A scale covers 16 or 32 weights.
//!
//! FP-Quant has `qweight U8 [outputs, inputs / 2]` and `scales`, or for accuracy tests the dequantized weights in
//! `dqweight`. Four Over Six has `quantized_weight_values` and flat `quantized_weight_scale_factors`. Source:
//! `fp_quant/module/linear.py` 0.3.2, `fouroversix/model/modules/linear.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["fp_quant", "fouroversix"],
    parts: &[
        PartName::weights("qweight"),
        PartName::weights("dqweight"),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::common("act_global_scale", AuxiliaryTensor::Scale),
        PartName::common("forward_hadamard_matrix", AuxiliaryTensor::Rotation),
        PartName::common("backward_hadamard_matrix", AuxiliaryTensor::Rotation),
        PartName::weights("quantized_weight_values"),
        PartName::auxiliary("quantized_weight_scale_factors", AuxiliaryTensor::Scale),
        PartName::auxiliary("quantized_weight_amax", AuxiliaryTensor::Scale),
        PartName::auxiliary("quantized_weight_metadata", AuxiliaryTensor::State),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let packing = Packing::new("fp4", 4, "2 × bytes, groups of 16 or 32 in the scales");
    let (weights, scales) = if module.has("quantized_weight_values") {
        ("quantized_weight_values", "quantized_weight_scale_factors")
    } else if module.has("qweight") {
        ("qweight", "scales")
    } else {
        let weights = module.get("dqweight").and_then(TensorInfo::elements);
        let packing = Packing::without_bits("unpacked", "elements of dqweight");
        return Solved::new(module, "dqweight", weights, packing);
    };
    let (Some(packed), Some(scales)) = (module.matrix(weights), module.get(scales)) else {
        return Ok(None);
    };
    if packed.container() != Some(8) {
        return Ok(None);
    }
    let parameters = product(&[packed.rows, packed.columns, 2]);
    let groups = scales.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    let fits = |group: u64| parameters == groups.checked_mul(group);
    if !fits(16) && !fits(32) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    Solved::new(module, weights, parameters, packing)
}
