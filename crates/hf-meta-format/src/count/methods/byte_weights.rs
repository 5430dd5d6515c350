//! FP8, INT8, and INT4 in bytes: one or two weights per element, with scales. Written by EETQ, FBGEMM, DeepSeek,
//! modelopt, Quark and compressed-tensors.

use super::prelude::*;

pub(super) const BYTES: Method = Method {
    names: &[
        "ascend",
        "auto-round-int8",
        "bfl",
        "blockwise_int8",
        "chatglm",
        "deepseek_v4_fp8",
        "eetq",
        "fbgemm_fp8",
        "int8",
        "modelopt_fp8",
        "modelopt_mxfp8",
        "modelslim",
        "mxfp8",
        "w4afp8",
        "w8a8_fp8",
        "w8a8_int8",
    ],
    weights: &PLAIN,
    // The last two are names of TensorRT-LLM.
    auxiliary: &[(Scale, &["weight_scales", "weights_scaling_factor", "per_channel_scale"])],
    ambiguous: &[(Scale, &["scale", "scale_weight", "*_scale", "*_scale_inv", "*_weight_scale"])],
    solve,
};

const SCALES: [&str; 11] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scales",
    "weight_quantizer._scale",
    "weights_scaling_factor",
    "per_channel_scale",
    "scale",
    "scale_weight",
    "_weight_scale",
    "_scale",
    "_scale_inv",
];

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some((name, weights)) = module.plain_weight() else { return Ok(None) };
    let elements = weights.elements().ok_or(ImplausibleSize)?;
    if weights.dtype.is_narrow_float() {
        let bits = weights.dtype.bits().unwrap_or(8);
        let layout = if bits == 8 { "fp8" } else { "fp4" };
        let packing = Packing::new(layout, bits, "elements of weight");
        return Solved::new(module, name, Some(elements), packing);
    }
    let bits = hints.bits(module.name);
    // Unsigned bytes usually contain several weights.
    let is_byte = weights.dtype == Dtype::I8 || weights.dtype == Dtype::U8 && bits == Some(8);
    let Some(scales) = module.first(&SCALES).filter(|_| is_byte) else { return Ok(None) };
    let is_packed = hints.is_method(&["w4afp8"]) || hints.is_packed_by_metadata(module.name);
    if is_packed || bits == Some(4) && hints.is_method(&PACKED) {
        return solve_packed(module, name, weights, scales);
    }
    if bits == Some(4) && !hints.is_method(&UNPACKED) {
        return Err(AmbiguousScheme);
    }
    if module.has("comfy_quant") && scales.shape.len() == 1 && scales.elements() > Some(1) {
        return solve_convrot(module, hints, name, weights);
    }
    check_scales(weights, scales, bits)?;
    let is_double = |inputs: u64| !hints.is_side(inputs) && hints.is_side(inputs.saturating_mul(2));
    // One scale per row does not show whether a byte holds one or two weights.
    let is_per_row = scales.elements() > Some(1) && bits.is_none();
    if is_per_row && Matrix::new(weights).is_some_and(|weights| is_double(weights.columns)) {
        return Err(AmbiguousScheme);
    }
    Solved::new(module, name, Some(elements), Packing::new("int8", 8, "elements of weight"))
}

/// The methods that pack two weights of 4 bits into a signed byte.
const PACKED: [&str; 3] = ["chatglm", "deepseek_v4_fp8", "fp8"];

/// The methods that store a weight of 4 bits in a signed byte.
const UNPACKED: [&str; 3] = ["compressed-tensors", "int8", "quark"];

/// Solves two weights per signed byte, with `[outputs, groups]` or `[outputs]` scales: the integers of `ChatGLM` and
/// of W4AFP8 in `SGLang`, and the experts of DeepSeek-V4.
fn solve_packed(
    module: &Module<'_>,
    name: &str,
    weights: &TensorInfo,
    scales: &TensorInfo,
) -> Solution {
    let [.., rows, columns] = weights.shape[..] else { return Err(ConflictingComponents) };
    let inputs = columns.checked_mul(2).ok_or(ImplausibleSize)?;
    let fits = match scales.shape[..] {
        [outputs] => outputs == rows,
        [.., outputs, groups] => outputs == rows && divide(inputs, groups).is_some(),
        [] => false,
    };
    if !fits {
        return Err(ConflictingComponents);
    }
    let parameters = weights.elements().and_then(|elements| elements.checked_mul(2));
    let packing = Packing::new("int4", 4, "2 × elements of weight, rows of the scales");
    Solved::new(module, name, parameters, packing)
}

/// Solves bytes with one scale per row. A byte contains one or two weights, which only a dimension of the model
/// distinguishes. `ConvRot` of `ComfyUI` has two.
fn solve_convrot(
    module: &Module<'_>,
    hints: &Hints<'_>,
    name: &str,
    weights: &TensorInfo,
) -> Solution {
    let Some(weights) = Matrix::new(weights) else { return Err(ConflictingComponents) };
    let columns = [1, 2].map(|values| weights.columns.saturating_mul(values));
    let (columns, bits) = match columns.map(|columns| hints.is_dimension(columns)) {
        [true, false] => (columns[0], 8),
        [false, true] => (columns[1], 4),
        _ => return Err(AmbiguousScheme),
    };
    let packing = Packing::new("convrot", bits, "columns of weight, dimensions of the model");
    Solved::new(module, name, product(&[weights.stacked, weights.rows, columns]), packing)
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
