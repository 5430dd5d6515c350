//! Sparse weights of compressed-tensors: one bit per weight in `bitmask U8 [outputs, inputs / 8]`, and the nonzero
//! weights in `compressed`. Source: `compressed_tensors/compressors/sparse_compressors` 0.12.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["compressed-tensors"],
    parts: &[
        PartName::weights("compressed"),
        PartName::auxiliary("bitmask", AuxiliaryTensor::Shape),
        PartName::common("shape", AuxiliaryTensor::Shape),
        PartName::common("row_offsets", AuxiliaryTensor::Shape),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(values) = module.get("compressed") else { return Ok(None) };
    let Some(mask) = module.matrix("bitmask") else { return Ok(None) };
    let has_rows = Matrix::new(values).is_none_or(|values| values.rows == mask.rows);
    let parameters = product(&[mask.stacked, mask.rows, mask.columns, 8]);
    if !has_rows || values.elements() > parameters {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::without_bits("bitmask", "8 × elements of bitmask");
    Solved::new(module, "compressed", parameters, packing)
}
