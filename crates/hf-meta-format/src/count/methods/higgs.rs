//! HIGGS: `weight I16` in tiles, with `scales [outputs, groups]` over inputs padded to 1,024. Only the model
//! dimensions give the inputs, because the sizes in `tune_metadata` are padded. Source:
//! `transformers/integrations/higgs.py` 5.23.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved, padded,
    product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["higgs"],
    parts: &[
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::common("tables", AuxiliaryTensor::LookupTable),
        PartName::common("tables2", AuxiliaryTensor::LookupTable),
    ],
    has_plain_weight: true,
    solve,
};

/// Inputs are padded to a multiple of this.
const PADDING: u64 = 1024;

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let (Some((part, weights)), Some(scales)) = (weights, module.matrix("scales")) else {
        return Ok(None);
    };
    if weights.stacked != scales.stacked || weights.container() != Some(16) || !module.has("tables")
    {
        return Ok(None);
    }
    let packing = Packing::without_bits("higgs", "rows of scales × columns of weight");
    // The model dimension that would be padded to the columns, if there is only one.
    let mut dimensions =
        hints.dimensions(weights.columns.saturating_sub(PADDING - 1)..=weights.columns);
    let inputs = dimensions.next().filter(|_| dimensions.next().is_none());
    let is_padded = inputs.is_none();
    let inputs = inputs.unwrap_or(weights.columns);
    let solution =
        Solved::new(module, part.name(), product(&[scales.stacked, scales.rows, inputs]), packing);
    if is_padded { padded(solution) } else { solution }
}
