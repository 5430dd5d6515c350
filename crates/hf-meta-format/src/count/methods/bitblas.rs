//! BitBLAS: `qweight I8 [outputs, inputs · bits / 8]` with `scales [outputs, groups]` and `qzeros I8 [groups, outputs · bits / 8]`.
//! Source: `bitblas.py` of vLLM and GPTQModel.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["bitblas"],
    parts: &[
        PartName::weights("qweight"),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::auxiliary("qzeros", AuxiliaryTensor::ZeroPoint),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let (Some(weights), Some(scales)) = (module.matrix("qweight"), module.matrix("scales")) else {
        return Ok(None);
    };
    let is_alike = (weights.stacked, weights.rows) == (scales.stacked, scales.rows);
    if !is_alike || weights.container() != Some(8) {
        return Ok(None);
    }
    let zeros = module.matrix("qzeros").filter(|zeros| zeros.container() == Some(8));
    let bits = match zeros {
        Some(zeros) => divide(zeros.columns.saturating_mul(8), weights.rows),
        None => hints.choose(module.name, |scheme| scheme.bits)?,
    };
    let bits = bits.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let inputs = weights.columns.checked_mul(8).and_then(|row| divide(row, bits));
    let inputs = inputs.ok_or(UnresolvedReason::ConflictingComponents)?;
    let packing = Packing::with_bits("bitblas", bits, "columns of qweight by the bits of qzeros");
    Solved::new(module, "qweight", product(&[weights.stacked, weights.rows, inputs]), packing)
}
