//! FP8 and INT8: one weight per element, with scales. Written by EETQ, FBGEMM, DeepSeek, modelopt, Quark and
//! compressed-tensors.

use super::prelude::*;

pub(super) const BYTES: Method = Method {
    names: &["eetq", "fbgemm_fp8", "int8", "modelopt_fp8", "w4afp8"],
    weights: &PLAIN,
    auxiliary: &[(Scale, &["weight_scales"])],
    ambiguous: &[
        (Scale, &["scale", "scale_weight", "*_scale", "*_scale_inv", "*_weight_scale"]),
        (State, &["comfy_quant"]),
    ],
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
    let Some((name, weights)) = module.plain_weight() else { return Ok(None) };
    let is_float = weights.dtype.is_float8();
    let scales = module.first(&SCALES).filter(|_| weights.dtype == Dtype::I8);
    // DeepSeek-V4 packs two FP4 weights into a signed byte. Elsewhere a signed byte with 4 bits is one weight.
    let is_packed = || hints.is_method(&["fp8"]) && hints.bits(module.name) == Some(4);
    match scales {
        Some(scales) if !is_packed() => check_scales(weights, scales, hints.bits(module.name))?,
        _ if is_float => {}
        _ => return Ok(None),
    }
    let elements = weights.elements().ok_or(ImplausibleSize)?;
    let packing = Packing::new(if is_float { "fp8" } else { "int8" }, 8, "elements of weight");
    Solved::new(module, name, Some(elements), packing)
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
        return if fits { Ok(()) } else { Err(ConflictingComponents) };
    };
    if groups.rows > weights.rows || groups.columns > weights.columns {
        return Err(ConflictingComponents);
    }
    // Groups of n bytes could hold n or 2 · n weights. Two-dimensional blocks leave no such choice.
    let has_groups = groups.rows == weights.rows && groups.columns > 1;
    if has_groups && !matches!(bits, Some(4 | 8)) {
        return Err(AmbiguousScheme);
    }
    Ok(())
}
