//! ExLlama: EXL2 with `q_weight` and the order of the inputs in `q_invperm`, and EXL3 with tiles of 16 × 16 weights in `trellis`.
//!
//! EXL2 pads the outputs to 32, EXL3 to 128. Source: `exllamav2/conversion/adaptivegptq.py` 0.3.2 and
//! `exllamav3/modules/quant/exl3.py` 1.6.5.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};
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
        let [.., input_tiles, output_tiles, words] = &trellis.shape[..] else {
            return Err(UnresolvedReason::ConflictingParts);
        };
        // Words of 16 bits for 256 weights.
        let packing =
            Packing::with_bits("exl3", words / 16, "tiles of trellis, 16 × 16 weights each");
        let outputs = output_tiles.checked_mul(16);
        let outputs =
            outputs.map(|outputs| hints.outputs_without_padding(module.name, outputs, 128));
        let parameters = outputs.and_then(|outputs| product(&[*input_tiles, 16, outputs]));
        return Solved::new(module, "trellis", parameters, packing);
    }
    let Some(weights) = module.matrix("q_weight") else { return Ok(None) };
    let inputs = module.first(&["q_invperm", "q_perm"]).and_then(TensorInfo::elements);
    let inputs = inputs.ok_or(UnresolvedReason::MissingParts)?;
    let outputs = hints.outputs_without_padding(module.name, weights.columns, 32);
    let packing = Packing::without_bits("exl2", "q_invperm × columns of q_weight");
    Solved::new(module, "q_weight", product(&[inputs, outputs]), packing)
}
