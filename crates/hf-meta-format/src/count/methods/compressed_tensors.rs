//! compressed-tensors: `weight_packed I32 [outputs, ⌈inputs · bits / 32⌉]` with `weight_scale [outputs, groups]`.
//!
//! `weight_shape` stores the shape as tensor data, which a header does not contain. Bits and group sizes come from
//! the configuration if they fit the shapes. Up to version 0.13, values of 3, 5, 6 and 7 bits did not cross words.
//! Marlin-2:4 has `weight_packed`, `meta` and `scale_packed`. Source: `compressed_tensors/compressors` 0.9 to 0.20.

use super::prelude::*;

pub(super) const PACKED: Method = Method {
    names: &["compressed-tensors"],
    weights: &["weight_packed", "*_packed", "*_weight_packed"],
    auxiliary: &[(Scale, &["scale_packed"])],
    ambiguous: &[
        (Scale, &["*_weight_scale", "*_scale"]),
        (ZeroPoint, &["*_zero_point"]),
        (Shape, &["meta", "*_shape"]),
        (ColumnOrder, &["*_g_idx"]),
    ],
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    // Experts stacked in one tensor have names such as `…_packed`.
    let [weights, scales, zeros] = match () {
        () if module.has("_packed") => ["_packed", "_scale", "_zero_point"],
        () if module.has("_weight_packed") => ["_weight_packed", "_weight_scale", "_zero_point"],
        () => ["weight_packed", "weight_scale", "weight_zero_point"],
    };
    let Some(packed) = module.matrix(weights) else { return Ok(None) };
    if packed.container() != Some(32) {
        return Ok(None);
    }
    if let Some(scales) = module.matrix("scale_packed") {
        return solve_marlin_24(module, &packed, &scales);
    }
    let scales = module.get(scales).ok_or(MissingComponents)?;
    let groups = match Matrix::new(scales) {
        Some(scales) if scales.stacked != packed.stacked => return Err(ConflictingComponents),
        Some(scales) if scales.rows == packed.rows => scales.columns,
        // A scale per block of rows and columns, or per tensor, does not restrict the inputs.
        Some(scales) if packed.rows.is_multiple_of(scales.rows) => 1,
        None if scales.elements() == Some(1) => 1,
        _ => return Err(ConflictingComponents),
    };
    let order = module.first(&["weight_g_idx", "_g_idx"]).and_then(TensorInfo::elements);
    let zero_point_bits = module.matrix(zeros).and_then(|zeros| {
        (2..=8).find(|&bits| {
            zeros.container() == Some(32) && words(packed.rows, bits).contains(&zeros.rows)
        })
    });
    let (bits, inputs) = hints.require(module.name, |scheme| {
        let bits = scheme.bits.filter(|&bits| zero_point_bits.is_none_or(|found| found == bits))?;
        let inputs = inputs(&packed, groups, bits, scheme.group_size, order, hints)?;
        Some((bits, inputs))
    })?;
    // The last word of a row may contain padding, unless something else determines the inputs.
    let is_padded =
        groups == 1 && order.is_none() && !inputs.is_multiple_of(32) && !hints.is_dimension(inputs);
    let parameters = product(&[packed.stacked, packed.rows, inputs]);
    let evidence = "columns of weight_packed and weight_scale";
    let packing = Packing::new("pack-quantized", bits, evidence);
    padded_if(is_padded, Solved::new(module, weights, parameters, packing))
}

/// Returns the number of inputs whose values, at `bits` bits, fill the columns of a packed weight.
fn inputs(
    packed: &Matrix<'_>,
    groups: u64,
    bits: u64,
    group_size: Option<u64>,
    order: Option<u64>,
    hints: &Hints<'_>,
) -> Option<u64> {
    let fits = |inputs: &u64| words(*inputs, bits).contains(&packed.columns);
    if let Some(inputs) = order {
        return Some(inputs).filter(fits);
    }
    let grouped = group_size.and_then(|size| size.checked_mul(groups)).filter(fits);
    if grouped.is_some() {
        return grouped;
    }
    // One scale per row does not restrict the inputs.
    let dense = packed.columns.checked_mul(32)? / bits;
    let whole = packed.columns.checked_mul(32 / bits)?;
    let is_one_group = groups == 1 && group_size.is_none_or(|size| size >= whole);
    let lowest = packed.columns.checked_sub(1)?.checked_mul(32 / bits)?;
    let dimension = || hints.dimensions(lowest..=dense).find(fits);
    let last = if 32 % bits == 0 || dense.is_multiple_of(32) { dense } else { whole };
    let inputs = if hints.is_dimension(dense) { dense } else { dimension().unwrap_or(last) };
    Some(inputs).filter(|inputs| is_one_group && fits(inputs))
}

/// Returns the words per row: if values may cross words, and if they may not.
fn words(values: u64, bits: u64) -> [u64; 2] {
    [values.saturating_mul(bits).div_ceil(32), values.div_ceil(32 / bits)]
}

/// Marlin-2:4 stores half of the weights, in tiles of 16 rows, and their positions in `meta`.
fn solve_marlin_24(module: &Module<'_>, packed: &Matrix<'_>, scales: &Matrix<'_>) -> Solution {
    let bits = match packed.columns.checked_div(scales.columns) {
        Some(2) => 4,
        Some(4) => 8,
        _ => return Err(ConflictingComponents),
    };
    let parameters = product(&[packed.stacked, packed.rows, 32, scales.columns]);
    let evidence = "32 × rows of weight_packed × columns of scale_packed";
    let packing = Packing::new("marlin-24", bits, evidence);
    Solved::new(module, "weight_packed", parameters, packing)
}
