//! DFloat11: lossless BF16, with sign and mantissa in `sign_mantissa` and the exponents compressed. Source: `dfloat11.py` 0.5.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["dfloat11"],
    parts: &[
        PartName::weights("sign_mantissa"),
        PartName::auxiliary("encoded_exponent", AuxiliaryTensor::State),
        PartName::common("luts", AuxiliaryTensor::LookupTable),
        PartName::common("output_positions", AuxiliaryTensor::State),
        PartName::common("gaps", AuxiliaryTensor::State),
        PartName::common("split_positions", AuxiliaryTensor::State),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.get("sign_mantissa") else { return Ok(None) };
    if !module.has("encoded_exponent") {
        return Err(UnresolvedReason::MissingComponents);
    }
    let packing = Packing::new("dfloat11", 11, "elements of sign_mantissa");
    Solved::new(module, "sign_mantissa", weights.elements(), packing)
}
