//! NVFP4, MXFP4 and MXFP6 in bytes. A scale covers 16 or 32 weights, which determines the number of weights in a row
//! of bytes.
//!
//! Parts: `weight` or `weight_packed`, `U8` or `I8 [outputs, inputs · bits / 8]`, with `weight_scale [outputs, groups]`. Written by
//! modelopt, compressed-tensors, Quark and, for experts, DeepSeek. Source: `modelopt/torch/export/quant_utils.py`,
//! `compressed_tensors/compressors/nvfp4` and `mxfp4`, and the block sizes of the OCP Microscaling specification.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    product,
};
use crate::formats::{Dtype, TensorInfo};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["modelopt", "modelopt_fp4", "nvfp4", "mxfp4", "quark", "fp8"],
    parts: &[
        PartName::weights("weight_packed"),
        PartName::weights("*_packed"),
        PartName::weights("*_weight_packed"),
        PartName::common("*_global_scale", AuxiliaryTensor::Scale),
        PartName::common("scale", AuxiliaryTensor::Scale),
        PartName::common("*_scale", AuxiliaryTensor::Scale),
        PartName::common("*_scale_inv", AuxiliaryTensor::Scale),
        PartName::common("*_weight_scale", AuxiliaryTensor::Scale),
        PartName::common("*_weight_scale_2", AuxiliaryTensor::Scale),
        PartName::common("weight_quantizer.svdquant_lora_a", AuxiliaryTensor::LowRank),
        PartName::common("weight_quantizer.svdquant_lora_b", AuxiliaryTensor::LowRank),
        PartName::common("comfy_quant", AuxiliaryTensor::State),
    ],
    has_plain_weight: true,
    solve,
};

const SCALES: [&str; 6] =
    ["weight_scale", "weight_scale_inv", "scale", "_weight_scale", "_scale", "_scale_inv"];

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let plain = module.plain_weight().map(|(part, tensor)| (part.name(), tensor));
    let packed = ["weight_packed", "_weight_packed", "_packed"];
    let packed = packed.iter().find_map(|&name| Some((name, module.get(name)?)));
    let is_bytes = |(_, tensor): &(_, &TensorInfo)| matches!(tensor.dtype, Dtype::U8 | Dtype::I8);
    let Some((name, tensor)) = packed.or(plain).filter(is_bytes) else { return Ok(None) };
    let Some(scales) = module.first(&SCALES) else { return Ok(None) };
    let (Some(weights), Some(scales)) = (Matrix::new(tensor), Matrix::new(scales)) else {
        return Ok(None);
    };
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
