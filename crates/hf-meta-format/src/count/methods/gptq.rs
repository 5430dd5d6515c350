//! GPTQ: `qweight` contains the transposed weights, packed along the inputs into words of 8 to 64 bits.
//!
//! Parts: `qweight [⌈inputs · bits / word⌉, outputs]`, `scales [groups, outputs]`,
//! `qzeros [groups, ⌈outputs · bits / word⌉]`, and `g_idx [inputs]`. AutoRound, ParoQuant and GPTQModel use the same
//! layout. Source: `QuantLinear.pack` of AutoGPTQ 0.7 and GPTQModel, which rounds the rows up.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &[
        "gptq",
        "gptq_marlin",
        "gptqmodel",
        "auto-round",
        "autoround",
        "inc",
        "intel/auto-round",
    ],
    parts: &[
        PartName::weights("qweight"),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::auxiliary("qzeros", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("g_idx", AuxiliaryTensor::ColumnOrder),
        PartName::common("lora_A.weight", AuxiliaryTensor::LowRank),
        PartName::common("lora_B.weight", AuxiliaryTensor::LowRank),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let (Some(weights), Some(scales)) = (module.matrix("qweight"), module.matrix("scales")) else {
        return if module.has("scales") {
            Ok(None)
        } else {
            Err(UnresolvedReason::MissingComponents)
        };
    };
    let Some(word) = weights.container() else { return Ok(None) };
    if weights.columns != scales.columns {
        return Ok(None);
    }
    let fits_zeros = |bits: u64| {
        let zeros = module.matrix("qzeros").filter(|zeros| zeros.container() == Some(word));
        zeros.is_none_or(|zeros| words(scales.columns, bits, word) == Some(zeros.columns))
    };
    // A stack of experts has one column order per expert.
    let order = module.get("g_idx").and_then(|order| order.shape.last().copied());
    if let Some(inputs) = order.filter(|&inputs| inputs > 0) {
        let fits =
            |&bits: &u64| fits_zeros(bits) && words(inputs, bits, word) == Some(weights.rows);
        let bits = (1..=8).find(fits).ok_or(UnresolvedReason::ConflictingComponents)?;
        let packing = Packing::with_bits("gptq", bits, "g_idx × columns of qweight");
        let parameters = product(&[weights.stacked, inputs, weights.columns]);
        return Solved::new(module, "qweight", parameters, packing);
    }
    let inputs = |bits: u64| divide(weights.rows.checked_mul(word)?, bits);
    let fits = |bits: &u64| fits_zeros(*bits) && inputs(*bits).is_some();
    let mut fitting = (1..=8).filter(fits);
    let bits = match (module.has("qzeros"), fitting.next(), fitting.next()) {
        (true, Some(only), None) => Some(only),
        (true, None, _) => return Err(UnresolvedReason::ConflictingComponents),
        _ => hints.choose(module.name, |scheme| scheme.bits.filter(fits))?,
    };
    let bits = bits.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let inputs = inputs(bits).ok_or(UnresolvedReason::ConflictingComponents)?;
    let evidence = "rows of qweight, bits of qzeros or config";
    let packing = Packing::with_bits("gptq", bits, evidence);
    Solved::new(module, "qweight", product(&[weights.stacked, inputs, weights.columns]), packing)
}

/// Returns the number of words that `values` values of `bits` bits take, rounded up.
fn words(values: u64, bits: u64, word: u64) -> Option<u64> {
    Some(values.checked_mul(bits)?.div_ceil(word))
}
