//! HQQ: groups of weights in `W_q`, packed along the first dimension, with a `scale` per group.
//!
//! With axis 1, each row of `W_q` is a group; with axis 0, each column is one. Source: `hqq/core/quantize.py` 0.2.8.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["hqq"],
    parts: &[
        PartName::weights("W_q"),
        PartName::common("scale", AuxiliaryTensor::Scale),
        PartName::common("zero", AuxiliaryTensor::ZeroPoint),
        PartName::common("shape", AuxiliaryTensor::Shape),
        PartName::common("axis", AuxiliaryTensor::State),
        PartName::common("nbits", AuxiliaryTensor::State),
        PartName::common("group_size", AuxiliaryTensor::State),
        PartName::common("channel_wise", AuxiliaryTensor::State),
        PartName::common("packing", AuxiliaryTensor::State),
        PartName::common("unpack_view_dtype", AuxiliaryTensor::State),
        PartName::common("view_as_float", AuxiliaryTensor::State),
        PartName::common("compute_dtype", AuxiliaryTensor::State),
        PartName::common("stores_quant_config", AuxiliaryTensor::State),
        PartName::common("offload_meta", AuxiliaryTensor::State),
        PartName::common("optimize", AuxiliaryTensor::State),
        PartName::common("round_zero", AuxiliaryTensor::State),
        PartName::common("quant_scale", AuxiliaryTensor::State),
        PartName::common("quant_zero", AuxiliaryTensor::State),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("W_q") else { return Ok(None) };
    let scales = module.matrix("scale").ok_or(UnresolvedReason::MissingComponents)?;
    if (weights.stacked, scales.stacked) != (1, 1) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let groups =
        scales.rows.checked_mul(scales.columns).ok_or(UnresolvedReason::ImplausibleSize)?;
    let bits = hints.bits(module.name);
    // If bytes are viewed as floats, there are fewer columns. 3-bit values are stored in words of 32 bits, viewed or
    // not.
    let is_viewed = weights.container().is_none() && bits != Some(3);
    let bytes = if is_viewed { weights.dtype.bits().unwrap_or(8) / 8 } else { 1 };
    let columns = weights.columns.checked_mul(bytes).ok_or(UnresolvedReason::ImplausibleSize)?;
    if scales.columns == 1 && scales.rows > 1 || scales.columns != columns {
        if !are_packed_rows(groups, weights.rows) {
            return Err(UnresolvedReason::ConflictingComponents);
        }
        let bits = bits.or_else(|| divide_rows(groups, weights.rows));
        let packing = Packing { bits: bits.and_then(|bits| bits.try_into().ok()), ..AXIS_1 };
        return Solved::new(module, "W_q", groups.checked_mul(columns), packing);
    }
    let group = hints.choose(module.name, |scheme| {
        let bits = scheme.bits?;
        let per_word = weights.container().map_or(8, |_| if bits == 3 { 30 } else { 8 }) / bits;
        scheme.group_size.filter(|group| per_word > 0 && group.div_ceil(per_word) == weights.rows)
    })?;
    let group = group.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let packing = Packing { bits: bits.and_then(|bits| bits.try_into().ok()), ..AXIS_0 };
    Solved::new(module, "W_q", groups.checked_mul(group), packing)
}

const AXIS_1: Packing = Packing::without_bits("hqq", "elements of scale × columns of W_q");
const AXIS_0: Packing =
    Packing::without_bits("hqq", "elements of scale × group size of the configuration");

/// Returns whether `groups` groups fit exactly into `rows` rows: 1, 2, 4 or 8 per row of bytes, or 10 per row of
/// words.
pub(super) fn are_packed_rows(groups: u64, rows: u64) -> bool {
    [1, 2, 4, 8, 10].iter().any(|&values| groups.div_ceil(values) == rows)
}

/// Returns the bits per weight in rows of bytes, from the number of groups and rows.
fn divide_rows(groups: u64, rows: u64) -> Option<u64> {
    super::divide(groups, rows).and_then(|values| super::divide(8, values))
}
