//! Integers in `weight`, next to one tensor with scales. modelopt and Quark show the packing in the shapes; for BitNet,
//! Gemma and SDNQ, only the configuration distinguishes packed bytes from others.

use super::prelude::*;

/// modelopt W4A16 and W4A8 (AWQ): two rows of weights per row of bytes, in `weight U8 [outputs / 2, inputs]` with
/// `weight_scale [outputs, groups]`. Compressed states, which are not exported, have two weights per byte and
/// `weight_quantizer._scale`. `ModelSlim` of Ascend has signed bytes and `weight_offset`.
///
/// Source: `modelopt/torch/export/quant_utils.py` and `modelopt/torch/quantization/qtensor` 0.47, and
/// `modelslim/schemes` of `SGLang` 0.5.23.
pub(super) const MODELOPT: Method = Method {
    names: &["modelopt"],
    weights: &PLAIN,
    auxiliary: &[(Scale, &["weights_scaling_factor"])],
    ambiguous: &[],
    solve: solve_modelopt,
};

fn solve_modelopt(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let compressed = module.first(&["weight_quantizer._scale", "weight_quantizer.0._scale"]);
    let compressed = compressed.and_then(TensorInfo::elements);
    if let (Some((name, weights)), Some(groups)) = (&weights, compressed)
        && *weights.dtype == Dtype::U8
    {
        let parameters = product(&[weights.stacked, weights.rows, weights.columns, 2]);
        if parameters.and_then(|parameters| divide(parameters, groups)).is_none() {
            return Err(ConflictingComponents);
        }
        let packing = Packing::new("modelopt", 4, "2 × elements of weight, groups of the scales");
        return Solved::new(module, name, parameters, packing);
    }
    let scales = module.first(&["weight_scale", "weights_scaling_factor"]).and_then(Matrix::new);
    let (Some((name, weights)), Some(scales)) = (weights, scales) else { return Ok(None) };
    // A single scale for each of twice as many rows could also belong to another format.
    let is_ascend = *weights.dtype == Dtype::I8 && module.has("weight_offset");
    let is_certain = is_ascend || scales.columns > 1 || hints.is_method(MODELOPT.names);
    let is_half = is_certain && weights.rows.checked_mul(2) == Some(scales.rows);
    let is_byte = is_ascend || *weights.dtype == Dtype::U8;
    if !is_byte || !is_half || !weights.columns.is_multiple_of(scales.columns) {
        return Ok(None);
    }
    let parameters = product(&[weights.stacked, scales.rows, weights.columns]);
    let packing = Packing::new("modelopt", 4, "rows of weight_scale × columns of weight");
    Solved::new(module, name, parameters, packing)
}

/// Quark INT4 and INT8 in words: `weight I32 [inputs, outputs / 8]` with `weight_scale [groups, outputs]`, or
/// `[outputs, inputs / 8]` with one scale per output or per tensor. Source: `quark/torch/export/nn/modules/qparamslinear.py` 0.13.
pub(super) const QUARK: Method = Method {
    names: &["quark", "quark_int4fp8_moe"],
    weights: &PLAIN,
    auxiliary: &[],
    ambiguous: &[],
    solve: solve_quark,
};

fn solve_quark(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let (Some((name, weights)), Some(scale)) = (weights, module.get("weight_scale")) else {
        return Ok(None);
    };
    if let Some(scales) = Matrix::new(scale).filter(|_| weights.container() == Some(8)) {
        return solve_quark_bytes(module, hints, name, &weights, &scales);
    }
    if weights.container() != Some(32) {
        return Ok(None);
    }
    let (bits, columns, evidence) = match &scale.shape[..] {
        [_, outputs] => {
            let values = divide(*outputs, weights.columns);
            let bits = values.and_then(|values| divide(32, values)).ok_or(ConflictingComponents)?;
            (bits, Some(*outputs), "rows of weight × columns of weight_scale")
        }
        [] | [_] if scale.elements().is_some_and(|scales| [1, weights.rows].contains(&scales)) => {
            let fitting = |bits: &u64| 32 % bits == 0;
            let bits = hints.require(module.name, |scheme| scheme.bits.filter(fitting))?;
            let columns = weights.columns.checked_mul(32 / bits);
            (bits, columns, "columns of weight by the bits of the configuration")
        }
        _ => return Err(ConflictingComponents),
    };
    let parameters = columns.and_then(|columns| product(&[weights.stacked, weights.rows, columns]));
    Solved::new(module, name, parameters, Packing::new("quark", bits, evidence))
}

/// Solves 3-bit weights, whose rows are packed into bytes without gaps, with `weight_scale [groups, outputs]`.
fn solve_quark_bytes(
    module: &Module<'_>,
    hints: &Hints<'_>,
    name: &str,
    weights: &Matrix<'_>,
    scales: &Matrix<'_>,
) -> Solution {
    let is_alike = (weights.stacked, weights.rows) == (scales.stacked, scales.columns);
    if !is_alike || !hints.is_method(QUARK.names) {
        return Ok(None);
    }
    let (bits, inputs) = hints.require(module.name, |scheme| {
        let (bits, inputs) = (scheme.bits?, scales.rows.checked_mul(scheme.group_size?)?);
        (inputs.checked_mul(bits) == weights.columns.checked_mul(8)).then_some((bits, inputs))
    })?;
    let evidence = "rows of weight_scale × group size of the configuration";
    let parameters = product(&[weights.stacked, weights.rows, inputs]);
    Solved::new(module, name, parameters, Packing::new("quark", bits, evidence))
}

/// BitNet: four ternary weights per byte, in `weight U8 [outputs / 4, inputs]` with one `weight_scale`. Source:
/// `transformers/integrations/bitnet.py`.
pub(super) const BITNET: Method = Method {
    names: &["bitnet"],
    weights: &PLAIN,
    auxiliary: &[],
    ambiguous: &[],
    solve: solve_bitnet,
};

fn solve_bitnet(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix().filter(|(_, weights)| *weights.dtype == Dtype::U8);
    let Some((name, weights)) = weights.filter(|_| hints.is_method(BITNET.names)) else {
        return Ok(None);
    };
    let scale = module.get("weight_scale").ok_or(MissingComponents)?;
    if scale.elements() != Some(1) {
        return Err(ConflictingComponents);
    }
    let parameters = product(&[4, weights.stacked, weights.rows, weights.columns]);
    Solved::new(module, name, parameters, Packing::new("bitnet", 2, "4 × elements of weight"))
}

/// Gemma with 2, 4 and 8 bits: `weight U8 [outputs, inputs · bits / 8]` with one `weight_scale` per output; embeddings
/// in `embedding_quantized`. Source: `transformers/integrations/gemma_quant.py` 5.23.
pub(super) const GEMMA: Method = Method {
    names: &["gemma"],
    weights: &["", "weight", "embedding_quantized"],
    auxiliary: &[(Scale, &["embedding_scale"])],
    ambiguous: &[],
    solve: solve_gemma,
};

fn solve_gemma(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let embedding = module.get("embedding_quantized").map(|tensor| ("embedding_quantized", tensor));
    let Some((name, tensor)) = embedding.or_else(|| module.plain_weight()) else { return Ok(None) };
    let Some(weights) = Matrix::new(tensor).filter(|weights| weights.container() == Some(8)) else {
        return Ok(None);
    };
    if !hints.is_method(GEMMA.names) {
        return Ok(None);
    }
    let scales = module.first(&["weight_scale", "embedding_scale"]).ok_or(MissingComponents)?;
    if scales.shape.first() != Some(&weights.rows) {
        return Err(ConflictingComponents);
    }
    let is_signed = *weights.dtype == Dtype::I8;
    let bits =
        hints.choose(module.name, |scheme| scheme.bits.filter(|bits| [2, 4, 8].contains(bits)))?;
    let bits = if is_signed { 8 } else { bits.ok_or(AmbiguousScheme)? };
    let parameters = product(&[weights.rows, weights.columns, 8 / bits]);
    let evidence = "elements of weight by the bits of the configuration";
    Solved::new(module, name, parameters, Packing::new("gemma", bits, evidence))
}

/// SDNQ: `weight` contains the bits of all weights consecutively, in bytes grouped by bit width, such as
/// `U8 [outputs · inputs / 8, 3]`. Source: `sdnq` 0.2.8, `packed_int.py`.
pub(super) const SDNQ: Method = Method {
    names: &["sdnq", "sdnq_training"],
    weights: &PLAIN,
    auxiliary: &[],
    ambiguous: &[
        (Scale, &["scale", "scale_2", "zero_point_scale"]),
        (ZeroPoint, &["scale_zero_point", "zero_point", "zero_point_2"]),
        (LowRank, &["svd_up", "svd_down"]),
    ],
    solve: solve_sdnq,
};

fn solve_sdnq(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some((name, weights)) = module.plain_weight() else { return Ok(None) };
    // 1-bit values are stored in words, eight per word.
    let is_packed = matches!(weights.dtype, Dtype::U8 | Dtype::I64);
    let is_byte = weights.dtype == Dtype::I8 || weights.dtype.is_narrow_float();
    if !(is_packed || is_byte) || !hints.is_method(SDNQ.names) {
        return Ok(None);
    }
    let scales = match module.get("scale") {
        None if is_byte => return Ok(None),
        scales => scales.ok_or(MissingComponents)?,
    };
    if is_byte {
        let packing = Packing::new("sdnq", 8, "elements of weight");
        return Solved::new(module, name, weights.elements(), packing);
    }
    let values = weights.elements().and_then(|elements| elements.checked_mul(8));
    let values = values.ok_or(ImplausibleSize)?;
    let groups = scales.elements().ok_or(ImplausibleSize)?;
    let (parameters, bits) = hints.require(module.name, |scheme| {
        let bits = scheme.bits?;
        let parameters = divide(values, bits)?;
        divide(parameters, groups).map(|_| (parameters, bits))
    })?;
    let evidence = "elements of weight by the bits of the configuration";
    Solved::new(module, name, Some(parameters), Packing::new("sdnq", bits, evidence))
}
