//! HQQ and SINQ: groups of weights in `W_q`, packed along the first dimension, with a scale and a zero point per group.

use super::prelude::*;

/// HQQ: with axis 1, each row of `W_q` is a group; with axis 0, each column is one. Source: `hqq/core/quantize.py`
/// 0.2.8.
pub(super) const HQQ: Method = Method {
    names: &["hqq"],
    weights: &["W_q"],
    auxiliary: &[],
    ambiguous: &[
        (Scale, &["scale"]),
        (ZeroPoint, &["zero"]),
        (Shape, &["shape"]),
        (State, &["axis", "nbits", "group_size", "channel_wise", "packing", "compute_dtype"]),
        (State, &["unpack_view_dtype", "view_as_float", "stores_quant_config", "offload_meta"]),
        (State, &["optimize", "round_zero", "quant_scale", "quant_zero"]),
    ],
    solve: solve_hqq,
};

fn solve_hqq(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("W_q") else { return Ok(None) };
    let scales = module.matrix("scale").ok_or(MissingComponents)?;
    if (weights.stacked, scales.stacked) != (1, 1) {
        return Err(ConflictingComponents);
    }
    let groups = scales.rows.checked_mul(scales.columns).ok_or(ImplausibleSize)?;
    let bits = hints.bits(module.name);
    // If bytes are viewed as floats, there are fewer columns. 3-bit values are stored in words of 32 bits, viewed or
    // not.
    let is_viewed = weights.container().is_none() && bits != Some(3);
    let bytes = if is_viewed { weights.dtype.bits().unwrap_or(8) / 8 } else { 1 };
    let columns = weights.columns.checked_mul(bytes).ok_or(ImplausibleSize)?;
    let solved = |bits: Option<u64>, group, evidence| {
        let bits = bits.and_then(|bits| bits.try_into().ok());
        let packing = Packing { bits, ..Packing::without_bits("hqq", evidence) };
        Solved::new(module, "W_q", groups.checked_mul(group), packing)
    };
    if scales.columns == 1 && scales.rows > 1 || scales.columns != columns {
        if !are_packed_rows(groups, weights.rows) {
            return Err(ConflictingComponents);
        }
        let shown = || divide(groups, weights.rows).and_then(|values| divide(8, values));
        return solved(bits.or_else(shown), columns, "elements of scale × columns of W_q");
    }
    let per_word = |bits: u64| {
        let word: u64 = weights.container().map_or(8, |_| if bits == 3 { 30 } else { 8 });
        word.checked_div(bits).filter(|&values| values > 0)
    };
    let group = hints.choose(module.name, |scheme| {
        let values = per_word(scheme.bits?)?;
        scheme.group_size.filter(|group| group.div_ceil(values) == weights.rows)
    })?;
    if let Some(group) = group {
        return solved(bits, group, "elements of scale × group size of the configuration");
    }
    // One group of all outputs, whose last row of bytes or words may be padded.
    let values = bits.and_then(per_word).filter(|_| scales.rows == 1).ok_or(AmbiguousScheme)?;
    let packed = weights.rows.checked_mul(values).ok_or(ImplausibleSize)?;
    let outputs = hints.unpadded(packed, values);
    let is_padded = outputs.length < packed || !outputs.is_certain && !values.is_power_of_two();
    padded_if(is_padded, solved(bits, outputs.length, "columns of scale × rows of W_q"))
}

/// Returns whether `groups` groups fit exactly into `rows` rows: 1, 2, 4 or 8 per row of bytes, or 10 per row of
/// words.
fn are_packed_rows(groups: u64, rows: u64) -> bool {
    [1, 2, 4, 8, 10].iter().any(|&values| groups.div_ceil(values) == rows)
}

/// SINQ: `W_q` as in HQQ, with one zero point per group in `meta.zero`, or in `meta.zero.x` if the zero points are
/// quantized, too. Source: `sinq/sinqlinear_hf.py` and `sinq/quantizer.py` 0.2.
pub(super) const SINQ: Method = Method {
    names: &["sinq"],
    weights: &["W_q"],
    auxiliary: &[
        (Scale, &["meta.scale", "meta.scale.x", "meta.scale.s", "meta.scale.m", "meta.scale2"]),
        (ZeroPoint, &["meta.zero", "meta.zero.x", "meta.zero.s", "meta.zero.m"]),
    ],
    ambiguous: &[],
    solve: solve_sinq,
};

fn solve_sinq(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("W_q") else { return Ok(None) };
    let zeros = module.first(&["meta.zero.x", "meta.zero"]).and_then(TensorInfo::elements);
    let groups = zeros.ok_or(MissingComponents)?;
    if !are_packed_rows(groups, weights.rows) {
        return Err(ConflictingComponents);
    }
    let packing = Packing::without_bits("sinq", "elements of meta.zero × columns of W_q");
    Solved::new(module, "W_q", groups.checked_mul(weights.columns), packing)
}
