//! bitsandbytes: 4-bit values in a column of any dtype, next to `absmax` and `quant_map`; 8-bit values next to `SCB`.
//!
//! Source: `Params4bit` and `Int8Params` of bitsandbytes 0.50, with `bnb_4bit_quant_storage`.

use super::prelude::*;

pub(super) const BITSANDBYTES: Method = Method {
    names: &["bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"],
    weights: &PLAIN,
    auxiliary: &[
        (Scale, &["weight.absmax", "weight.nested_absmax", "absmax", "nested_absmax", "SCB"]),
        (LookupTable, &["weight.quant_map", "weight.nested_quant_map"]),
        (LookupTable, &["quant_map", "nested_quant_map"]),
        (State, &["weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"]),
        (State, &["quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"]),
    ],
    ambiguous: &[(State, &["weight_format"])],
    solve,
};

/// The block sizes of bitsandbytes. Each block of weights has one `absmax`.
const BLOCKS: [u64; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some((name, weights)) = module.plain_weight() else { return Ok(None) };
    let elements = weights.elements().ok_or(ImplausibleSize)?;
    if module.has("SCB") {
        let packing = Packing::new("bitsandbytes", 8, "elements of weight");
        return Solved::new(module, name, Some(elements), packing);
    }
    let Some(absmax) = module.first(&["weight.absmax", "absmax"]) else { return Ok(None) };
    let bits = weights.dtype.bits().and_then(|bits| elements.checked_mul(bits));
    let parameters = bits.ok_or(ImplausibleSize)? / 4;
    let scales = absmax.elements().ok_or(ImplausibleSize)?;
    if !BLOCKS.iter().any(|&block| parameters.div_ceil(block) == scales) {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("bitsandbytes", 4, "2 × bytes of weight, blocks of absmax");
    Solved::new(module, name, Some(parameters), packing)
}
