//! Tensor subclasses of `PyTorch`, which are saved as one tensor per field: quanto and torchao.

use super::fp4;
use super::prelude::*;

/// quanto: `weight._data` for 8 bits; for 2 and 4 bits `weight._data._data U8 [groups · bits / 8, group size]` with a
/// scale per group. Source: `optimum/quanto/tensor` 0.2.7.
pub(super) const QUANTO: Method = Method {
    names: &["quanto"],
    weights: &[QUANTO_PACKED, "weight._data"],
    auxiliary: &[(Scale, &["weight._scale"]), (ZeroPoint, &["weight._shift"])],
    ambiguous: &[],
    solve: solve_quanto,
};

const QUANTO_PACKED: &str = "weight._data._data";

fn solve_quanto(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let scales = module.get("weight._scale").ok_or(MissingComponents)?;
    if let Some(bytes) = module.get("weight._data") {
        let packing = Packing::new("quanto", 8, "elements of weight._data");
        return Solved::new(module, "weight._data", bytes.elements(), packing);
    }
    let sides = module.get(QUANTO_PACKED).and_then(rows_and_rest).zip(rows_and_rest(scales));
    let Some(([rows, columns], [groups, per_row])) = sides else { return Ok(None) };
    let (bits, parameters) = if per_row == 1 && groups >= rows {
        let bits = divide(8, groups.div_ceil(rows)).ok_or(ConflictingComponents)?;
        (bits, groups.checked_mul(columns))
    } else if per_row == columns {
        let is_packed = |bits: &u64| [2, 4].contains(bits);
        let bits = hints.require(module.name, |scheme| scheme.bits.filter(is_packed))?;
        (bits, product(&[rows, 8 / bits, columns]))
    } else {
        return Err(ConflictingComponents);
    };
    let evidence = "elements of weight._scale × columns of weight._data._data";
    Solved::new(module, QUANTO_PACKED, parameters, Packing::new("quanto", bits, evidence))
}

/// Returns the first dimension of a tensor, which is packed, and the product of the others. The weights of convolutions
/// have four dimensions.
fn rows_and_rest(tensor: &TensorInfo) -> Option<[u64; 2]> {
    let (rows, rest) = tensor.shape.split_first().filter(|(_, rest)| !rest.is_empty())?;
    product(rest).filter(|&rest| *rows > 0 && rest > 0).map(|rest| [*rows, rest])
}

/// torchao: `_weight_qdata` in bytes, in words of 32 bits, or in tiles of a matrix padded to 8 × 1,024.
///
/// The file metadata contains the shapes of most tensors. Source: `torchao/prototype/safetensors` and
/// `torchao/quantization/quantize_` 0.18.
pub(super) const TORCHAO: Method = Method {
    names: &["torchao"],
    weights: &[TORCHAO_DATA],
    auxiliary: &[
        (Scale, &["_weight_scale", "_weight_scale_and_zero", "_weight_per_tensor_scale"]),
        (Scale, &["_weight_act_per_tensor_scale", "_weight_act_pre_scale"]),
        (ZeroPoint, &["_weight_zero_point"]),
    ],
    ambiguous: &[],
    solve: solve_torchao,
};

const TORCHAO_DATA: &str = "_weight_qdata";

fn solve_torchao(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(data) = module.get(TORCHAO_DATA) else { return Ok(None) };
    let (values, bits) = values_per_element(module, data)?;
    let stored = data.elements().and_then(|elements| elements.checked_mul(values));
    let stored = stored.ok_or(ImplausibleSize)?;
    let Some(elements) = hints.metadata_elements(module.name) else {
        let evidence = "elements of _weight_qdata, shapes of the scales";
        let packing = Packing::new("torchao", bits, evidence);
        let is_tiled = data.shape.len() == 4;
        return padded_if(is_tiled, Solved::new(module, TORCHAO_DATA, Some(stored), packing));
    };
    if elements > stored {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("torchao", bits, "shape in the metadata");
    Solved::new(module, TORCHAO_DATA, Some(elements), packing)
}

/// Returns the weights per element and the bits per weight.
fn values_per_element(
    module: &Module<'_>,
    data: &TensorInfo,
) -> Result<(u64, u64), UnresolvedReason> {
    let scales = module.first(&["_weight_scale", "_weight_scale_and_zero"]);
    let scales = scales.ok_or(MissingComponents)?;
    let matrix = Matrix::new(data).ok_or(ConflictingComponents)?;
    // One scale per group of inputs and output, with the outputs last.
    let is_grouped_by_rows = Matrix::new(scales)
        .is_some_and(|scales| scales.columns == matrix.rows && scales.rows != matrix.rows);
    match &data.dtype {
        Dtype::I32 if data.shape.len() == 4 || is_grouped_by_rows => Ok((8, 4)),
        Dtype::I8 | Dtype::U8 if is_grouped_by_rows => Ok((2, 4)),
        Dtype::U8 => {
            let scales = Matrix::new(scales).ok_or(ConflictingComponents)?;
            let found = fp4::packing(matrix.columns, scales.columns, scales.dtype);
            let is_half = found.is_some_and(|(packing, _)| packing.bits == Some(4));
            if is_half { Ok((2, 4)) } else { Err(ConflictingComponents) }
        }
        dtype if dtype.bits() == Some(8) => Ok((1, 8)),
        _ => Err(ConflictingComponents),
    }
}
