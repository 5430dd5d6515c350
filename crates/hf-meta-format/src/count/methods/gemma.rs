//! Gemma with 2, 4 and 8 bits: `weight U8 [outputs, inputs · bits / 8]` with one `weight_scale` per output;
//! embeddings in `embedding_quantized`. Only the configuration states the bits. Source:
//! `transformers/integrations/gemma_quant.py` 5.23.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};
use crate::formats::Dtype;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["gemma"],
    parts: &[
        PartName::weights("embedding_quantized"),
        PartName::auxiliary("embedding_scale", AuxiliaryTensor::Scale),
    ],
    has_plain_weight: true,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let plain = module.plain_weight().map(|(part, tensor)| (part.name(), tensor));
    let embedding = module.get("embedding_quantized").map(|tensor| ("embedding_quantized", tensor));
    let Some((name, tensor)) = embedding.or(plain) else { return Ok(None) };
    let Some(weights) = Matrix::new(tensor).filter(|weights| weights.container() == Some(8)) else {
        return Ok(None);
    };
    if !hints.names(METHOD.names) {
        return Ok(None);
    }
    let scales = module.first(&["weight_scale", "embedding_scale"]);
    let scales = scales.ok_or(UnresolvedReason::MissingComponents)?;
    if scales.shape.first() != Some(&weights.rows) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let is_signed = *weights.dtype == Dtype::I8;
    let bits =
        hints.choose(module.name, |scheme| scheme.bits.filter(|bits| [2, 4, 8].contains(bits)))?;
    let bits = if is_signed { Some(8) } else { bits }.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let parameters = product(&[weights.rows, weights.columns, 8 / bits]);
    let packing =
        Packing::with_bits("gemma", bits, "elements of weight by the bits of the configuration");
    Solved::new(module, name, parameters, packing)
}
