//! Quark INT4 and INT8 in words: `weight I32 [inputs, outputs / 8]` with `weight_scale [groups, outputs]`, or
//! `[outputs, inputs / 8]` with one scale per output. Source: `quark/torch/export/nn/modules/qparamslinear.py` 0.13.

use super::{
    Hints, Matrix, MethodDefinition, Module, Packing, Solution, Solved, UnresolvedReason, divide,
    product,
};

pub(super) const METHOD: MethodDefinition =
    MethodDefinition { names: &["quark"], parts: &[], has_plain_weight: true, solve };

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let (Some((part, weights)), Some(scale)) = (weights, module.get("weight_scale")) else {
        return Ok(None);
    };
    if let Some(scales) = Matrix::new(scale).filter(|_| weights.container() == Some(8)) {
        return bytes(module, hints, part.name(), &weights, &scales);
    }
    if weights.container() != Some(32) {
        return Ok(None);
    }
    let (bits, columns, evidence) = match &scale.shape[..] {
        [_, outputs] => {
            let values = divide(*outputs, weights.columns);
            let bits = values.and_then(|values| divide(32, values));
            let bits = bits.ok_or(UnresolvedReason::ConflictingComponents)?;
            (bits, Some(*outputs), "rows of weight × columns of weight_scale")
        }
        [outputs] if *outputs == weights.rows || *outputs == 1 => {
            let bits =
                hints.choose(module.name, |scheme| scheme.bits.filter(|bits| 32 % bits == 0))?;
            let bits = bits.ok_or(UnresolvedReason::AmbiguousScheme)?;
            let columns = weights.columns.checked_mul(32 / bits);
            (bits, columns, "columns of weight by the bits of the configuration")
        }
        _ => return Err(UnresolvedReason::ConflictingComponents),
    };
    let parameters = columns.and_then(|columns| product(&[weights.stacked, weights.rows, columns]));
    Solved::new(module, part.name(), parameters, Packing::with_bits("quark", bits, evidence))
}

/// Solves 3-bit weights, whose rows are packed into bytes without gaps, with `weight_scale [groups, outputs]`.
fn bytes(
    module: &Module<'_>,
    hints: &Hints<'_>,
    part: &str,
    weights: &Matrix<'_>,
    scales: &Matrix<'_>,
) -> Solution {
    let is_alike = (weights.stacked, weights.rows) == (scales.stacked, scales.columns);
    if !is_alike || !hints.names(METHOD.names) {
        return Ok(None);
    }
    let size = hints.choose(module.name, |scheme| {
        let (bits, inputs) = (scheme.bits?, scales.rows.checked_mul(scheme.group_size?)?);
        (inputs.checked_mul(bits) == weights.columns.checked_mul(8)).then_some((bits, inputs))
    })?;
    let (bits, inputs) = size.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let evidence = "rows of weight_scale × group size of the configuration";
    let packing = Packing::with_bits("quark", bits, evidence);
    Solved::new(module, part, product(&[weights.stacked, weights.rows, inputs]), packing)
}
