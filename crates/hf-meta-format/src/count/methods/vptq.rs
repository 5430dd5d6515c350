//! VPTQ: `indices [groups, ⌈outputs / vector⌉, words]`, which index `centroids`. The configuration lists the size of
//! each module. Source: `vptq/layers/vqlinear.py` 0.0.5.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason,
};
use crate::formats::TensorInfo;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["vptq"],
    parts: &[
        PartName::weights("indices"),
        PartName::auxiliary("centroids.weight", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("res_centroids.weight", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("outlier_centroids.weight", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("res_indices", AuxiliaryTensor::LookupTable),
        PartName::auxiliary("outlier_indices", AuxiliaryTensor::LookupTable),
        PartName::common("perm", AuxiliaryTensor::ColumnOrder),
        PartName::auxiliary("weight_bias", AuxiliaryTensor::ZeroPoint),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(indices) = module.get("indices") else { return Ok(None) };
    if !module.has("centroids.weight") {
        return Ok(None);
    }
    let [_, rows, _] = &indices.shape[..] else {
        return Err(UnresolvedReason::ConflictingComponents);
    };
    let order = module.get("perm").and_then(TensorInfo::elements);
    let size = hints.choose(module.name, |scheme| {
        let (inputs, outputs) = (scheme.in_features?, scheme.out_features?);
        let fits = outputs.div_ceil(scheme.vector_length?) == *rows
            && order.is_none_or(|order| order == inputs);
        fits.then_some((inputs, outputs))
    })?;
    let (inputs, outputs) = size.ok_or(UnresolvedReason::AmbiguousScheme)?;
    let packing = Packing::without_bits(
        "vptq",
        "in_features × out_features of the configuration, rows of indices",
    );
    Solved::new(module, "indices", inputs.checked_mul(outputs), packing)
}
