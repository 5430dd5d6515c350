//! MXFP4 of gpt-oss: `…_blocks U8 [experts, outputs, groups, 16]` and `…_scales U8 [experts, outputs, groups]`. Files
//! by `OpenAI` use the components `blocks` and `scales`. Source: `gpt_oss/torch/weights.py`,
//! `transformers/integrations/mxfp4.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["mxfp4"],
    parts: &[
        PartName::weights("*_blocks"),
        PartName::weights("blocks"),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::auxiliary("*_scales", AuxiliaryTensor::Scale),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (weights, scales) =
        if module.has("blocks") { ("blocks", "scales") } else { ("_blocks", "_scales") };
    let Some(blocks) = module.get(weights) else { return Ok(None) };
    let scales = module.get(scales).ok_or(UnresolvedReason::MissingComponents)?;
    let scales = scales.elements().ok_or(UnresolvedReason::ImplausibleSize)?;
    if blocks.elements() != scales.checked_mul(16) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::new("mxfp4", 4, "32 × elements of the scales");
    Solved::new(module, weights, scales.checked_mul(32), packing)
}
