//! ExLlama: EXL2 with `q_weight` and the order of the inputs in `q_invperm`, and EXL3 with tiles of 16 × 16 weights in `trellis`.
//!
//! EXL2 pads the outputs to 32, EXL3 to 128. Source: `exllamav2/conversion/adaptivegptq.py` 0.3.2 and
//! `exllamav3/modules/quant/exl3.py` 1.6.5.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, padded, product,
};
use crate::count::hints::Side;
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["exl2", "exl3"],
    parts: &[
        PartName::weights("q_weight"),
        PartName::auxiliary("q_invperm", AuxiliaryTensor::ColumnOrder),
        PartName::auxiliary("q_perm", AuxiliaryTensor::ColumnOrder),
        PartName::auxiliary("q_scale_max", AuxiliaryTensor::Scale),
        PartName::auxiliary("q_groups", AuxiliaryTensor::ColumnOrder),
        PartName::auxiliary("q_group_map", AuxiliaryTensor::ColumnOrder),
        PartName::weights("trellis"),
        PartName::auxiliary("suh", AuxiliaryTensor::Rotation),
        PartName::auxiliary("svh", AuxiliaryTensor::Rotation),
        PartName::common("su", AuxiliaryTensor::Rotation),
        PartName::common("sv", AuxiliaryTensor::Rotation),
        PartName::common("mcg", AuxiliaryTensor::State),
        PartName::common("mul1", AuxiliaryTensor::State),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    if let Some(trellis) = module.get("trellis") {
        let [input_tiles, output_tiles, words] = &trellis.shape[..] else {
            return Err(UnresolvedReason::ConflictingComponents);
        };
        // A tile of 256 weights is stored in words of 16 bits.
        let packing =
            Packing::with_bits("exl3", words / 16, "tiles of trellis, 16 × 16 weights each");
        let sides = input_tiles.checked_mul(16).zip(output_tiles.checked_mul(16));
        let (inputs, outputs) = sides.ok_or(UnresolvedReason::ImplausibleSize)?;
        let has_signs =
            |part: &str, side| module.get(part).is_none_or(|signs| signs.elements() == Some(side));
        if !has_signs("suh", inputs) || !has_signs("svh", outputs) {
            return Err(UnresolvedReason::ConflictingComponents);
        }
        let inputs = hints.without_padding(inputs, 128);
        let outputs = hints.outputs_without_padding(module.name, outputs, 128);
        return Side::solve(module, "trellis", inputs, outputs, packing);
    }
    let Some(weights) = module.matrix("q_weight") else { return Ok(None) };
    let inputs = module.first(&["q_invperm", "q_perm"]).and_then(TensorInfo::elements);
    let inputs = inputs.ok_or(UnresolvedReason::MissingComponents)?;
    // Each input has 2 to 8 bits, in words of 32 bits.
    let bits = weights.rows.checked_mul(32).ok_or(UnresolvedReason::ImplausibleSize)?;
    if !(inputs..=inputs.saturating_mul(8)).contains(&bits) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let outputs = hints.outputs_without_padding(module.name, weights.columns, 32);
    let packing = Packing::without_bits("exl2", "q_invperm × columns of q_weight");
    let inputs = Side { length: inputs, is_certain: true };
    Side::solve(module, "q_weight", inputs, outputs, packing)
}

impl Side {
    fn solve(
        module: &Module<'_>,
        weights: &str,
        inputs: Self,
        outputs: Self,
        packing: Packing,
    ) -> Solution {
        let parameters = product(&[inputs.length, outputs.length]);
        let solution = Solved::new(module, weights, parameters, packing);
        if inputs.is_certain && outputs.is_certain { solution } else { padded(solution) }
    }
}
