//! bitsandbytes: 4-bit values in a column of any dtype, next to `absmax` and `quant_map`; 8-bit values next to `SCB`.
//!
//! Source: `Params4bit` and `Int8Params` of bitsandbytes 0.50, with `bnb_4bit_quant_storage`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["bitsandbytes"],
    parts: &[
        PartName::auxiliary("weight.absmax", AuxiliaryTensor::Scale),
        PartName::auxiliary("weight.nested_absmax", AuxiliaryTensor::Scale),
        PartName::auxiliary("weight.quant_map", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("weight.nested_quant_map", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("weight.quant_state.bitsandbytes__nf4", AuxiliaryTensor::State),
        PartName::auxiliary("weight.quant_state.bitsandbytes__fp4", AuxiliaryTensor::State),
        PartName::auxiliary("absmax", AuxiliaryTensor::Scale),
        PartName::auxiliary("nested_absmax", AuxiliaryTensor::Scale),
        PartName::auxiliary("quant_map", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("nested_quant_map", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("quant_state.bitsandbytes__nf4", AuxiliaryTensor::State),
        PartName::auxiliary("quant_state.bitsandbytes__fp4", AuxiliaryTensor::State),
        PartName::auxiliary("SCB", AuxiliaryTensor::Scale),
        PartName::common("weight_format", AuxiliaryTensor::State),
    ],
    has_plain_weight: true,
    solve,
};

/// The block sizes of bitsandbytes. Each block of weights has one `absmax`.
const BLOCKS: [u64; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some((part, weights)) = module.plain_weight() else { return Ok(None) };
    let elements = weights.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    if module.has("SCB") {
        let packing = Packing::new("bitsandbytes", 8, "elements of weight");
        return Solved::new(module, part.name(), Some(elements), packing);
    }
    let Some(absmax) = module.first(&["weight.absmax", "absmax"]) else { return Ok(None) };
    let bits = weights.dtype.bits().and_then(|bits| elements.checked_mul(bits));
    let parameters = bits.ok_or(UnresolvedReason::ImplausibleSize)? / 4;
    let scales = absmax.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    if !BLOCKS.iter().any(|&block| parameters.div_ceil(block) == scales) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::new("bitsandbytes", 4, "2 × bytes of weight, blocks of absmax");
    Solved::new(module, part.name(), Some(parameters), packing)
}
