//! Marlin and QQQ: `B [inputs / 16, outputs · 16 · bits / 32]`, with scales in `s` or `s_channel`, whose columns are
//! the outputs. Source: `marlin/__init__.py` of IST-DASLab, `QQQ/gptq/qlinear/qlinear_marlin.py`, GPTQModel.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["marlin", "qqq"],
    parts: &[
        PartName::weights("B"),
        PartName::common("s", AuxiliaryTensor::Scale),
        PartName::common("s_channel", AuxiliaryTensor::Scale),
        PartName::common("s_group", AuxiliaryTensor::Scale),
        PartName::common("workspace", AuxiliaryTensor::State),
        PartName::common("perm", AuxiliaryTensor::ColumnOrder),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("B").filter(|weights| weights.container() == Some(32)) else {
        return Ok(None);
    };
    let scales = module.first(&["s", "s_channel"]).and_then(Matrix::new);
    let scales = scales.ok_or(UnresolvedReason::MissingComponents)?;
    let bits = divide(weights.columns, scales.columns).map(|words| words * 2);
    let bits = bits.filter(|bits| [2, 4, 8].contains(bits));
    let bits = bits.ok_or(UnresolvedReason::ConflictingComponents)?;
    let parameters = product(&[weights.stacked, weights.rows, 16, scales.columns]);
    let packing = Packing::with_bits("marlin", bits, "16 × rows of B × columns of the scales");
    Solved::new(module, "B", parameters, packing)
}
