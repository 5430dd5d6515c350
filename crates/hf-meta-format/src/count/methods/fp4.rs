//! Floats of 4 and 6 bits in bytes. A scale covers 16 or 32 weights, which determines the number of weights.

use super::prelude::*;

/// NVFP4, MXFP4 and MXFP6 in rows of bytes.
///
/// Components: `weight` or `weight_packed`, `U8` or `I8 [outputs, inputs · bits / 8]`, with
/// `weight_scale [outputs, groups]`. Written by modelopt, compressed-tensors, Quark and, for experts, DeepSeek. Source:
/// `modelopt/torch/export/quant_utils.py`, `compressed_tensors/compressors/nvfp4` and `mxfp4`, and the block sizes of
/// the OCP Microscaling specification.
pub(super) const SCALED_BYTES: Method = Method {
    names: &[
        "bfl",
        "deepseek_v4_fp8",
        "fp8",
        "minimax_m3_nvfp4",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "mxfp4",
        "mxfp_w4a8",
        "nvfp4",
        "petit_nvfp4",
        "quark",
        "quark_mxfp4",
    ],
    weights: &["", "weight", "weight_packed", "*_packed", "*_weight_packed"],
    auxiliary: &[],
    ambiguous: &[
        (Scale, &["scale", "*_scale", "*_scale_inv", "*_global_scale"]),
        (Scale, &["*_weight_scale", "*_weight_scale_2"]),
        (LowRank, &["weight_quantizer.svdquant_lora_a", "weight_quantizer.svdquant_lora_b"]),
    ],
    solve: solve_scaled_bytes,
};

const SCALES: [&str; 6] =
    ["weight_scale", "weight_scale_inv", "scale", "_weight_scale", "_scale", "_scale_inv"];

fn solve_scaled_bytes(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let packed = ["weight_packed", "_weight_packed", "_packed"];
    let packed = packed.iter().find_map(|&name| Some((name, module.get(name)?)));
    let is_bytes = |(_, tensor): &(_, &TensorInfo)| matches!(tensor.dtype, Dtype::U8 | Dtype::I8);
    let weights = packed.or_else(|| module.plain_weight()).filter(is_bytes);
    let Some((name, weights)) = weights else { return Ok(None) };
    let scales = module.first(&SCALES).and_then(Matrix::new);
    let (Some(weights), Some(scales)) = (Matrix::new(weights), scales) else { return Ok(None) };
    if weights.stacked != scales.stacked {
        return Ok(None);
    }
    // Experts stacked in one tensor may be packed along the rows.
    let (packed, groups) = match (weights.rows == scales.rows, weights.columns == scales.columns) {
        (true, _) => (weights.columns, scales.columns),
        (_, true) => (weights.rows, scales.rows),
        _ => return Ok(None),
    };
    let Some((packing, group)) = packing(packed, groups, scales.dtype) else { return Ok(None) };
    let parameters = product(&[scales.stacked, scales.rows, scales.columns, group]);
    Solved::new(module, name, parameters, packing)
}

/// Returns the packing, and the number of weights that share a scale.
///
/// MX formats have one exponent byte per 32 weights as the scale, and NVFP4 has one 8-bit float per 16 weights.
pub(super) fn packing(bytes: u64, groups: u64, scales: &Dtype) -> Option<(Packing, u64)> {
    let is = |bits: u64, group: u64| bytes.checked_mul(8) == groups.checked_mul(group * bits);
    let is_exponent = *scales == Dtype::U8 || scales.is_exponent();
    let by_32 = "32 × elements of the scales";
    let (layout, bits, group, evidence) = match scales {
        Dtype::F8_E4M3 if is(4, 16) => ("nvfp4", 4, 16, "16 × elements of the scales"),
        Dtype::F8_E4M3 if is(4, 32) => ("fp4", 4, 32, by_32),
        _ if is_exponent && is(4, 32) => ("mxfp4", 4, 32, by_32),
        _ if is_exponent && is(6, 32) => ("mxfp6", 6, 32, by_32),
        _ => return None,
    };
    Some((Packing::new(layout, bits, evidence), group))
}

/// MXFP4 of gpt-oss: `…_blocks U8 [experts, outputs, groups, 16]` and `…_scales U8 [experts, outputs, groups]`. Files
/// by `OpenAI` use the segments `blocks` and `scales`. Source: `gpt_oss/torch/weights.py`,
/// `transformers/integrations/mxfp4.py`.
pub(super) const BLOCKS: Method = Method {
    names: &["mxfp4", "gpt_oss_mxfp4"],
    weights: &["*_blocks", "blocks"],
    auxiliary: &[(Scale, &["scales", "*_scales"])],
    ambiguous: &[],
    solve: solve_blocks,
};

fn solve_blocks(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (weights, scales) =
        if module.has("blocks") { ("blocks", "scales") } else { ("_blocks", "_scales") };
    let Some(blocks) = module.get(weights) else { return Ok(None) };
    let scales = module.get(scales).ok_or(MissingComponents)?;
    let scales = scales.elements().ok_or(ImplausibleSize)?;
    if blocks.elements() != scales.checked_mul(16) {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("mxfp4", 4, "32 × elements of the scales");
    Solved::new(module, weights, scales.checked_mul(32), packing)
}

/// FP-Quant and Four Over Six: two FP4 weights per byte. A scale covers 16 or 32 weights.
///
/// FP-Quant has `qweight U8 [outputs, inputs / 2]` and `scales`, or for accuracy tests the dequantized weights in
/// `dqweight`. Four Over Six has `quantized_weight_values` and flat `quantized_weight_scale_factors`. Source:
/// `fp_quant/module/linear.py` 0.3.2, `fouroversix/model/modules/linear.py`.
pub(super) const FP_QUANT: Method = Method {
    names: &["fp_quant", "fouroversix"],
    weights: &["qweight", "dqweight", "quantized_weight_values"],
    auxiliary: &[
        (Scale, &["scales", "quantized_weight_scale_factors", "quantized_weight_amax"]),
        (State, &["quantized_weight_metadata"]),
    ],
    ambiguous: &[
        (Scale, &["act_global_scale"]),
        (Rotation, &["forward_hadamard_matrix", "backward_hadamard_matrix"]),
    ],
    solve: solve_fp_quant,
};

fn solve_fp_quant(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (weights, scales) = if module.has("quantized_weight_values") {
        ("quantized_weight_values", "quantized_weight_scale_factors")
    } else if module.has("qweight") {
        ("qweight", "scales")
    } else {
        let packing = Packing::without_bits("unpacked", "elements of dqweight");
        return Solved::new(module, "dqweight", module.elements("dqweight"), packing);
    };
    let (Some(packed), Some(scales)) = (module.matrix(weights), module.get(scales)) else {
        return Ok(None);
    };
    if packed.container() != Some(8) {
        return Ok(None);
    }
    let parameters = product(&[packed.rows, packed.columns, 2]);
    let groups = scales.elements().ok_or(ImplausibleSize)?;
    let fits = |group: u64| parameters == groups.checked_mul(group);
    if !fits(16) && !fits(32) {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("fp4", 4, "2 × bytes, groups of 16 or 32 in the scales");
    Solved::new(module, weights, parameters, packing)
}
