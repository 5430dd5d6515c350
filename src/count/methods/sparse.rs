//! Sparse weights of compressed-tensors: a bit in `bitmask U8 [outputs, inputs / 8]` for each weight, and the weights that are
//! not zero in `compressed`. Source: `compressed_tensors/compressors/sparse_compressors` 0.12.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &[],
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
    if !module.has("compressed") {
        return Ok(None);
    }
    let Some(mask) = module.matrix("bitmask") else { return Ok(None) };
    let columns = mask.columns.checked_mul(8).ok_or(UnresolvedReason::TooLarge)?;
    let parameters = mask.rows.checked_mul(columns);
    let packing = Packing::without_bits("bitmask", "8 × elements of bitmask");
    Solved::new(module, "compressed", parameters, packing)
}
