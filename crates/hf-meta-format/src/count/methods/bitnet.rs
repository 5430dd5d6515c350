//! BitNet: four ternary weights per byte, in `weight U8 [outputs / 4, inputs]` with one `weight_scale`. Only the
//! configuration distinguishes them from other bytes. Source: `transformers/integrations/bitnet.py`.

use super::{
    Hints, MethodDefinition, Module, Packing, Solution, Solved, UnresolvedReason, product,
};
use crate::formats::Dtype;

pub(super) const METHOD: MethodDefinition =
    MethodDefinition { names: &["bitnet"], parts: &[], has_plain_weight: true, solve };

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let Some((part, weights)) = weights.filter(|(_, weights)| *weights.dtype == Dtype::U8) else {
        return Ok(None);
    };
    if !hints.names(METHOD.names) {
        return Ok(None);
    }
    let scale = module.get("weight_scale").ok_or(UnresolvedReason::MissingComponents)?;
    if scale.elements() != Some(1) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let parameters = product(&[4, weights.stacked, weights.rows, weights.columns]);
    let packing = Packing::new("bitnet", 2, "4 × elements of weight");
    Solved::new(module, part.name(), parameters, packing)
}
