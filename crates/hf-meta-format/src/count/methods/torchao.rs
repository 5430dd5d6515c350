//! torchao: `_weight_qdata` in bytes, in words of 32 bits, or in tiles of a matrix padded to 8 × 1,024.
//!
//! The file metadata contains the shapes of most tensors. Source: `torchao/prototype/safetensors` and
//! `torchao/quantization/quantize_` 0.18.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, fp4, padded,
};
use crate::formats::{Dtype, TensorInfo};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["torchao"],
    parts: &[
        PartName::weights("_weight_qdata"),
        PartName::auxiliary("_weight_scale", AuxiliaryTensor::Scale),
        PartName::auxiliary("_weight_zero_point", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("_weight_scale_and_zero", AuxiliaryTensor::Scale),
        PartName::auxiliary("_weight_per_tensor_scale", AuxiliaryTensor::Scale),
        PartName::auxiliary("_weight_act_per_tensor_scale", AuxiliaryTensor::Scale),
        PartName::auxiliary("_weight_act_pre_scale", AuxiliaryTensor::Scale),
    ],
    has_plain_weight: false,
    solve,
};

const WEIGHTS: &str = "_weight_qdata";

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(data) = module.get(WEIGHTS) else { return Ok(None) };
    let (values, bits) = values_per_element(module, data)?;
    let stored = data.elements().and_then(|elements| elements.checked_mul(values));
    let stored = stored.ok_or(UnresolvedReason::ImplausibleSize)?;
    if let Some(elements) = hints.metadata_elements(module.name) {
        if elements > stored {
            return Err(UnresolvedReason::ConflictingComponents);
        }
        let packing = Packing::with_bits("torchao", bits, "shape in the metadata");
        return Solved::new(module, WEIGHTS, Some(elements), packing);
    }
    let packing =
        Packing::with_bits("torchao", bits, "elements of _weight_qdata, shapes of the scales");
    let solution = Solved::new(module, WEIGHTS, Some(stored), packing);
    if data.shape.len() == 4 { padded(solution) } else { solution }
}

/// Returns the weights per element and the bits per weight.
fn values_per_element(
    module: &Module<'_>,
    data: &TensorInfo,
) -> Result<(u64, u64), UnresolvedReason> {
    let scales = module.first(&["_weight_scale", "_weight_scale_and_zero"]);
    let scales = scales.ok_or(UnresolvedReason::MissingComponents)?;
    let is_grouped_by_rows = |data: &Matrix<'_>| {
        // One scale per group of inputs and output, with the outputs last.
        Matrix::new(scales)
            .is_some_and(|scales| scales.columns == data.rows && scales.rows != data.rows)
    };
    let matrix = Matrix::new(data).ok_or(UnresolvedReason::ConflictingComponents)?;
    match &data.dtype {
        Dtype::I32 if data.shape.len() == 4 || is_grouped_by_rows(&matrix) => Ok((8, 4)),
        Dtype::I8 | Dtype::U8 if is_grouped_by_rows(&matrix) => Ok((2, 4)),
        Dtype::U8 => {
            let scales = Matrix::new(scales).ok_or(UnresolvedReason::ConflictingComponents)?;
            let found = fp4::packing(matrix.columns, scales.columns, scales.dtype);
            let is_half = found.is_some_and(|(packing, _)| packing.bits == Some(4));
            if is_half { Ok((2, 4)) } else { Err(UnresolvedReason::ConflictingComponents) }
        }
        dtype if dtype.bits() == Some(8) => Ok((1, 8)),
        _ => Err(UnresolvedReason::ConflictingComponents),
    }
}
