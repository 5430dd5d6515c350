//! SINQ: `W_q` as in HQQ, with one zero point per group in `meta.zero`, or in `meta.zero.x` if the zero points are
//! quantized, too. Source: `sinq/sinqlinear_hf.py` and `sinq/quantizer.py` 0.2.

use super::hqq::are_packed_rows;
use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["sinq"],
    parts: &[
        PartName::weights("W_q"),
        PartName::auxiliary("meta.scale", AuxiliaryTensor::Scale),
        PartName::auxiliary("meta.scale.x", AuxiliaryTensor::Scale),
        PartName::auxiliary("meta.scale.s", AuxiliaryTensor::Scale),
        PartName::auxiliary("meta.scale.m", AuxiliaryTensor::Scale),
        PartName::auxiliary("meta.scale2", AuxiliaryTensor::Scale),
        PartName::auxiliary("meta.zero", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("meta.zero.x", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("meta.zero.s", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("meta.zero.m", AuxiliaryTensor::ZeroPoint),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("W_q") else { return Ok(None) };
    let zeros = module.first(&["meta.zero.x", "meta.zero"]).and_then(TensorInfo::elements);
    let groups = zeros.ok_or(UnresolvedReason::MissingComponents)?;
    if !are_packed_rows(groups, weights.rows) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::without_bits("sinq", "elements of meta.zero × columns of W_q");
    Solved::new(module, "W_q", groups.checked_mul(weights.columns), packing)
}
