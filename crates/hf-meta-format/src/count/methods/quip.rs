//! QuIP#: codes in `Qidxs`, with one sign vector per side: `SU [inputs]` and `SV [outputs]`. Source:
//! `lib/linear/quantized_linear.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["quip", "quip#"],
    parts: &[
        PartName::weights("Qidxs"),
        PartName::common("SU", AuxiliaryTensor::Rotation),
        PartName::common("SV", AuxiliaryTensor::Rotation),
        PartName::common("Wscale", AuxiliaryTensor::Scale),
        PartName::common("codebook_id", AuxiliaryTensor::State),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(codes) = module.matrix("Qidxs") else { return Ok(None) };
    let side = |name: &str| module.get(name).and_then(TensorInfo::elements);
    let (inputs, outputs) =
        side("SU").zip(side("SV")).ok_or(UnresolvedReason::MissingComponents)?;
    if (codes.stacked, codes.rows) != (1, outputs)
        || !divide(inputs, codes.columns).is_some_and(|values| [4, 8, 16, 32, 64].contains(&values))
    {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::without_bits("quip#", "SU × SV");
    Solved::new(module, "Qidxs", product(&[inputs, outputs]), packing)
}
