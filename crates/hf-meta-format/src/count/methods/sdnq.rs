//! SDNQ: `weight` contains the bits of all weights consecutively, in bytes grouped by bit width, such as
//! `U8 [outputs · inputs / 8, 3]`. Only the configuration states the width. Source: `sdnq` 0.2.8, `packed_int.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide,
};
use crate::formats::Dtype;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["sdnq", "sdnq_training"],
    parts: &[
        PartName::common("scale", AuxiliaryTensor::Scale),
        PartName::common("scale_2", AuxiliaryTensor::Scale),
        PartName::common("scale_zero_point", AuxiliaryTensor::ZeroPoint),
        PartName::common("zero_point", AuxiliaryTensor::ZeroPoint),
        PartName::common("zero_point_2", AuxiliaryTensor::ZeroPoint),
        PartName::common("zero_point_scale", AuxiliaryTensor::Scale),
        PartName::common("svd_up", AuxiliaryTensor::LowRank),
        PartName::common("svd_down", AuxiliaryTensor::LowRank),
    ],
    has_plain_weight: true,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some((part, weights)) = module.plain_weight() else { return Ok(None) };
    // 1-bit values are stored in words, eight per word.
    let is_packed = matches!(weights.dtype, Dtype::U8 | Dtype::I64);
    let is_byte = weights.dtype == Dtype::I8 || weights.dtype.is_float8();
    if !(is_packed || is_byte) || !hints.names(METHOD.names) {
        return Ok(None);
    }
    let scales = match module.get("scale") {
        None if is_byte => return Ok(None),
        scales => scales.ok_or(UnresolvedReason::MissingComponents)?,
    };
    if is_byte {
        let packing = Packing::with_bits("sdnq", 8, "elements of weight");
        return Solved::new(module, part.name(), weights.elements(), packing);
    }
    let values = weights.elements().and_then(|elements| elements.checked_mul(8));
    let values = values.ok_or(UnresolvedReason::ImplausibleSize)?;
    let groups = scales.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    let size = hints.choose(module.name, |scheme| {
        let bits = scheme.bits?;
        let parameters = divide(values, bits)?;
        divide(parameters, groups).map(|_| (parameters, bits))
    })?;
    let (parameters, bits) = size.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let packing =
        Packing::with_bits("sdnq", bits, "elements of weight by the bits of the configuration");
    Solved::new(module, part.name(), Some(parameters), packing)
}
