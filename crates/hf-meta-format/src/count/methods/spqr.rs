//! SpQR: `dense_weights I64` with 16 weights of a tile per word, and outliers in `col_vals`, indexed by
//! `row_offsets [outputs + 1]`. Source: `spqr_quant/inference.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide,
};
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["spqr"],
    parts: &[
        PartName::weights("dense_weights"),
        PartName::common("row_offsets", AuxiliaryTensor::Shape),
        PartName::auxiliary("col_vals", AuxiliaryTensor::State),
        PartName::auxiliary("in_perm", AuxiliaryTensor::ColumnOrder),
    ],
    has_plain_weight: false,
    solve,
};

/// The side of a tile. The kernels support no other.
const TILE: u64 = 16;

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.get("dense_weights") else { return Ok(None) };
    let offsets = module.get("row_offsets").and_then(TensorInfo::elements);
    let outputs = offsets.and_then(|offsets| offsets.checked_sub(1));
    let outputs = outputs.ok_or(UnresolvedReason::MissingComponents)?;
    let parameters = weights.elements().and_then(|words| words.checked_mul(TILE));
    if parameters.and_then(|parameters| divide(parameters, outputs)).is_none() {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let packing = Packing::new("spqr", 3, "16 × elements of dense_weights");
    Solved::new(module, "dense_weights", parameters, packing)
}
