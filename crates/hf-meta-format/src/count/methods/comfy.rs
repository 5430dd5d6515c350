//! Layouts of `ComfyUI`, which stores the tensors of a weight under its name: `weight`, `weight_scale`, and so on.
//!
//! | layout | `weight` | other tensors |
//! |---|---|---|
//! | W4A8, W6A8 | `I8 [outputs, inputs · bits / 8]` | `weight_s_rel [outputs, groups]`, `weight_s_channel` |
//! | SVDQuant W4A4 | `I8 [outputs, inputs / 2]` | `weight_scale [groups, outputs]`, `weight_smooth_factor [inputs]` |
//! | AWQ W4A16 | `I8 [outputs, inputs / 2]` | `weight_scale` and `weight_zeros [groups, outputs]` |
//! | `ConvRot` W4A4 | `I8 [outputs, inputs / 2]` | `weight_scale [outputs]`; see `byte_weights.rs` |
//! | NVFP4, MXFP8 | padded to 16 or 32 on both sides | `weight_scale` in tiles of 128 × 4 |
//!
//! `comfy_quant` contains the name of the layout as JSON, but in the data, which a header does not contain. Source:
//! `comfy_kitchen/tensor` 0.2.40.

use super::prelude::*;

pub(super) const COMFY: Method = Method {
    names: &[],
    weights: &PLAIN,
    auxiliary: &[
        (Scale, &["weight_s_rel", "weight_s_channel", "weight_smooth_factor"]),
        (ZeroPoint, &["weight_zeros", "weight_correction"]),
        (LookupTable, &["weight_codebook"]),
        (LowRank, &["weight_proj_down", "weight_proj_up"]),
    ],
    ambiguous: &[],
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some((name, weights)) = module.plain_matrix() else { return Ok(None) };
    let is_byte = *weights.dtype == Dtype::I8;
    if let Some(groups) = module.matrix("weight_s_rel").filter(|_| is_byte) {
        return solve_grouped(module, (name, weights), &groups);
    }
    let Some(scale) = module.get("weight_scale") else { return Ok(None) };
    match (Matrix::new(scale), &weights.dtype) {
        (Some(scales), Dtype::I8) if module.first(&TRANSPOSED).is_some() => {
            solve_transposed(module, (name, weights), &scales)
        }
        (Some(scales), Dtype::U8) if scale.dtype == Dtype::F8_E4M3 => {
            let columns = weights.columns.checked_mul(2).ok_or(ImplausibleSize)?;
            if !is_tiled(&scales, weights.rows, columns / 16) {
                return Ok(None);
            }
            let packing = Packing::new("nvfp4", 4, "2 × elements of weight, tiles of the scales");
            let sides = [weights.rows, columns].map(|side| unpadded_16(hints, side));
            solve_padded(module, name, sides, packing)
        }
        (Some(scales), dtype) if dtype.is_narrow_float() && scale.dtype.is_exponent() => {
            let is_tiled = is_tiled(&scales, weights.rows, weights.columns / 32);
            if !is_tiled && !module.has("comfy_quant") {
                return Ok(None);
            }
            let packing = Packing::new("mxfp8", 8, "elements of weight, tiles of the scales");
            let sides = [weights.rows, weights.columns].map(|side| hints.unpadded(side, 32));
            solve_padded(module, name, sides, packing)
        }
        _ => Ok(None),
    }
}

/// The tensors of layouts whose scales are transposed.
const TRANSPOSED: [&str; 2] = ["weight_smooth_factor", "weight_zeros"];

/// The name of a component, and its matrix.
type Named<'a> = (&'static str, Matrix<'a>);

fn solve_transposed(module: &Module<'_>, weights: Named<'_>, scales: &Matrix<'_>) -> Solution {
    let (name, weights) = weights;
    let parameters = product(&[weights.stacked, weights.rows, weights.columns, 2]);
    let inputs = parameters.and_then(|parameters| divide(parameters, scales.columns));
    let inputs = inputs.filter(|inputs| inputs.is_multiple_of(scales.rows));
    let smooth = module.elements("weight_smooth_factor");
    if inputs.is_none() || smooth.is_some_and(|smooth| inputs != Some(smooth)) {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("svdquant", 4, "2 × elements of weight, columns of weight_scale");
    Solved::new(module, name, parameters, packing)
}

/// Solves 4-bit and 6-bit weights. The group size divides 16 or is a multiple of 16.
fn solve_grouped(module: &Module<'_>, weights: Named<'_>, groups: &Matrix<'_>) -> Solution {
    let (name, weights) = weights;
    let inputs = |bits: u64| divide(weights.columns.checked_mul(8)?, bits);
    let fits = |&bits: &u64| {
        let group = inputs(bits).and_then(|inputs| divide(inputs, groups.columns));
        group.is_some_and(|group| [4, 8].contains(&group) || divide(group, 16) > Some(0))
    };
    // Only 4-bit weights have a codebook or a correction of their offset.
    let is_4_bit = module.has("weight_codebook") || module.has("weight_correction");
    let widths: &[u64] = if is_4_bit { &[4] } else { &[4, 6] };
    let mut fitting = widths.iter().copied().filter(fits);
    let bits = fitting.next().filter(|_| groups.rows == weights.rows);
    let bits = bits.ok_or(ConflictingComponents)?;
    if fitting.next().is_some() {
        return Err(AmbiguousScheme);
    }
    let parameters =
        inputs(bits).and_then(|inputs| product(&[weights.stacked, weights.rows, inputs]));
    let packing = Packing::new("w4a8", bits, "columns of weight and weight_s_rel");
    Solved::new(module, name, parameters, packing)
}

/// Returns whether scales are padded to whole tiles.
fn is_tiled(scales: &Matrix<'_>, rows: u64, groups: u64) -> bool {
    let tiles = [rows.next_multiple_of(128), groups.next_multiple_of(4)];
    [scales.rows, scales.columns] == tiles && tiles != [rows, groups]
}

/// Returns the length of a side before it was padded to a multiple of 16.
///
/// Without a configuration, a multiple of 64 is taken as certain: nearly all dimensions are one, and few become one
/// only by padding, such as 500.
fn unpadded_16(hints: &Hints<'_>, side: u64) -> Side {
    let found = hints.unpadded(side, 16);
    let is_common = side.is_multiple_of(64) && found.length == side;
    Side { is_certain: found.is_certain || is_common, ..found }
}

/// Solves weights that are padded on both sides.
fn solve_padded(module: &Module<'_>, name: &str, sides: [Side; 2], packing: Packing) -> Solution {
    let parameters = product(&sides.map(|side| side.length));
    let is_certain = sides.iter().all(|side| side.is_certain);
    padded_if(!is_certain, Solved::new(module, name, parameters, packing))
}
