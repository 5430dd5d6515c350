//! Nunchaku (SVDQuant): `qweight I8 [outputs, inputs / 2]` with `wscales [groups, outputs]` and a low-rank branch;
//! for AWQ, `qweight I32 [outputs / 4, inputs / 2]` with `wzeros`. Source: `nunchaku/models/linear.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["svdquant", "nunchaku"],
    parts: &[
        PartName::weights("qweight"),
        PartName::auxiliary("wscales", AuxiliaryTensor::Scale),
        PartName::auxiliary("wcscales", AuxiliaryTensor::Scale),
        PartName::auxiliary("wtscale", AuxiliaryTensor::Scale),
        PartName::auxiliary("wzeros", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("proj_down", AuxiliaryTensor::LowRank),
        PartName::auxiliary("proj_up", AuxiliaryTensor::LowRank),
        PartName::auxiliary("smooth_factor", AuxiliaryTensor::Scale),
        PartName::auxiliary("smooth_factor_orig", AuxiliaryTensor::Scale),
        PartName::auxiliary("smooth", AuxiliaryTensor::Scale),
        PartName::auxiliary("smooth_orig", AuxiliaryTensor::Scale),
        PartName::auxiliary("lora_down", AuxiliaryTensor::LowRank),
        PartName::auxiliary("lora_up", AuxiliaryTensor::LowRank),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (Some(weights), Some(scales)) = (module.matrix("qweight"), module.matrix("wscales")) else {
        return Ok(None);
    };
    let outputs = match weights.container() {
        Some(8) => Some(weights.rows),
        Some(32) => weights.rows.checked_mul(4),
        _ => None,
    };
    if outputs != Some(scales.columns) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let parameters = product(&[weights.stacked, scales.columns, weights.columns, 2]);
    let packing = Packing::new("svdquant", 4, "columns of wscales × 2 × columns of qweight");
    Solved::new(module, "qweight", parameters, packing)
}
