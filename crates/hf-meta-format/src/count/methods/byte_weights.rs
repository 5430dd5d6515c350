//! FP8 and INT8: one weight per element, with scales. Written by EETQ, FBGEMM, DeepSeek, modelopt, Quark and
//! compressed-tensors.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};
use crate::formats::{Dtype, TensorInfo};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["eetq", "fbgemm_fp8", "int8", "modelopt_fp8", "w4afp8"],
    parts: &[
        PartName::auxiliary("weight_scales", AuxiliaryTensor::Scale),
        PartName::common("scale", AuxiliaryTensor::Scale),
        PartName::common("scale_weight", AuxiliaryTensor::Scale),
        PartName::common("*_scale", AuxiliaryTensor::Scale),
        PartName::common("*_scale_inv", AuxiliaryTensor::Scale),
        PartName::common("*_weight_scale", AuxiliaryTensor::Scale),
        PartName::common("comfy_quant", AuxiliaryTensor::State),
    ],
    has_plain_weight: true,
    solve,
};

const SCALES: [&str; 8] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scales",
    "scale",
    "scale_weight",
    "_weight_scale",
    "_scale",
    "_scale_inv",
];

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some((part, weights)) = module.plain_weight() else { return Ok(None) };
    let scales = module.first(&SCALES);
    let is_float = weights.dtype.is_float8();
    // DeepSeek-V4 packs two FP4 weights into a signed byte. Elsewhere a signed byte with 4 bits is one weight.
    let is_packed = hints.names(&["fp8"]) && hints.bits(module.name) == Some(4);
    let is_byte = weights.dtype == Dtype::I8 && scales.is_some() && !is_packed;
    if is_byte && let Some(scales) = scales {
        check_scales(weights, scales, hints.bits(module.name))?;
    }
    if !is_float && !is_byte {
        return Ok(None);
    }
    let elements = weights.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    let packing = Packing::new(if is_float { "fp8" } else { "int8" }, 8, "elements of weight");
    Solved::new(module, part.name(), Some(elements), packing)
}

/// Checks that the scales fit one weight per signed byte, not two.
fn check_scales(
    weights: &TensorInfo,
    scales: &TensorInfo,
    bits: Option<u64>,
) -> Result<(), UnresolvedReason> {
    let Some(weights) = Matrix::new(weights) else { return Ok(()) };
    let Some(groups) = Matrix::new(scales) else {
        let elements = scales.elements().unwrap_or_default();
        let fits = scales.is_scalar() || [1, weights.rows, weights.columns].contains(&elements);
        return if fits { Ok(()) } else { Err(UnresolvedReason::ConflictingComponents) };
    };
    if groups.rows > weights.rows || groups.columns > weights.columns {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    // Groups of n bytes could hold n or 2 · n weights. Two-dimensional blocks leave no such choice.
    let has_groups = groups.rows == weights.rows && groups.columns > 1;
    if has_groups && !matches!(bits, Some(4 | 8)) {
        return Err(UnresolvedReason::AmbiguousScheme);
    }
    Ok(())
}
