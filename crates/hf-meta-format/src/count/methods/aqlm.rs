//! AQLM: `codes [outputs / out_group, inputs / in_group, codebooks]`, which index
//! `codebooks [codebooks, entries, out_group, in_group]`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["aqlm"],
    parts: &[
        PartName::weights("codes"),
        PartName::auxiliary("codebooks", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (Some(codes), Some(books)) = (module.get("codes"), module.get("codebooks")) else {
        return Ok(None);
    };
    let ([outputs, inputs, per_group], [number, _, out_group, in_group]) =
        (&codes.shape[..], &books.shape[..])
    else {
        return Err(UnresolvedReason::ConflictingComponents);
    };
    let scales = module.get("scales").ok_or(UnresolvedReason::MissingComponents)?;
    if per_group != number || scales.shape.first() != Some(outputs) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let parameters = product(&[*outputs, *inputs, *out_group, *in_group]);
    let packing = Packing::without_bits("aqlm", "codes × groups of codebooks");
    Solved::new(module, "codes", parameters, packing)
}
