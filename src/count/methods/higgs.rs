//! HIGGS: `weight I16` in tiles, with `scales [outputs, groups]` over inputs that are padded to 1,024. The configuration lists the
//! size of each module in `tune_metadata`. Source: `transformers/integrations/higgs.py` 5.23.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    padded, product,
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

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights =
        module.plain_weight().and_then(|(part, tensor)| Some((part, Matrix::new(tensor)?)));
    let (Some((part, weights)), Some(scales)) = (weights, module.matrix("scales")) else {
        return Ok(None);
    };
    if weights.container() != Some(16) || !module.has("tables") {
        return Ok(None);
    }
    let inputs = hints.choose(module.name, |scheme| {
        let fits =
            scheme.out_features == Some(scales.rows) && scheme.in_features? <= weights.columns;
        scheme.in_features.filter(|_| fits)
    })?;
    let packing = Packing::without_bits("higgs", "rows of scales × columns of weight");
    let is_padded = inputs.is_none() && !hints.is_dimension(weights.columns);
    let inputs = inputs.unwrap_or(weights.columns);
    let solution = Solved::new(module, part.name(), product(&[scales.rows, inputs]), packing);
    if is_padded { padded(solution) } else { solution }
}
