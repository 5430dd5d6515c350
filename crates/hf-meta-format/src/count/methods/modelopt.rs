//! modelopt W4A16 and W4A8 (AWQ): two rows of weights per row of bytes, in `weight U8 [outputs / 2, inputs]` with
//! `weight_scale [outputs, groups]`. Source: `modelopt/torch/export/quant_utils.py` 0.47.

use super::{Hints, MethodDefinition, Module, Packing, Solution, Solved, product};
use crate::formats::Dtype;

pub(super) const METHOD: MethodDefinition =
    MethodDefinition { names: &["modelopt"], parts: &[], has_plain_weight: true, solve };

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let (Some((part, weights)), Some(scales)) = (weights, module.matrix("weight_scale")) else {
        return Ok(None);
    };
    // A single scale for each of twice as many rows could also belong to another format.
    let is_half = weights.rows.checked_mul(2) == Some(scales.rows)
        && (scales.columns > 1 || hints.names(METHOD.names));
    if *weights.dtype != Dtype::U8 || !is_half || !weights.columns.is_multiple_of(scales.columns) {
        return Ok(None);
    }
    let parameters = product(&[weights.stacked, scales.rows, weights.columns]);
    let packing = Packing::new("modelopt", 4, "rows of weight_scale × columns of weight");
    Solved::new(module, part.name(), parameters, packing)
}
