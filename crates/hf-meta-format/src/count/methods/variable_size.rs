//! Encodings whose size depends on the values of the weights: sparse bitmasks, SpQR and DFloat11.

use super::prelude::*;

/// Sparse weights of compressed-tensors: one bit per weight in `bitmask U8 [outputs, inputs / 8]`, and the nonzero
/// weights in `compressed`. Source: `compressed_tensors/compressors/sparse_compressors` 0.12.
pub(super) const BITMASK: Method = Method {
    names: &["compressed-tensors"],
    weights: &["compressed"],
    auxiliary: &[(Shape, &["bitmask"])],
    ambiguous: &[(Shape, &["shape", "row_offsets"])],
    solve: solve_bitmask,
};

fn solve_bitmask(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(values) = module.get("compressed") else { return Ok(None) };
    let Some(mask) = module.matrix("bitmask") else { return Ok(None) };
    let has_rows = Matrix::new(values).is_none_or(|values| values.rows == mask.rows);
    let parameters = product(&[mask.stacked, mask.rows, mask.columns, 8]);
    if !has_rows || values.elements() > parameters {
        return Err(ConflictingComponents);
    }
    let packing = Packing::without_bits("bitmask", "8 × elements of bitmask");
    Solved::new(module, "compressed", parameters, packing)
}

/// SpQR: `dense_weights I64` with 16 weights of a tile per word, and outliers in `col_vals`, indexed by
/// `row_offsets [outputs + 1]`. Source: `spqr_quant/inference.py`.
pub(super) const SPQR: Method = Method {
    names: &["spqr"],
    weights: &["dense_weights"],
    auxiliary: &[(State, &["col_vals"]), (ColumnOrder, &["in_perm"])],
    ambiguous: &[(Shape, &["row_offsets"])],
    solve: solve_spqr,
};

/// The side of a tile of SpQR. The kernels support no other.
const TILE: u64 = 16;

fn solve_spqr(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.get("dense_weights") else { return Ok(None) };
    let offsets = module.elements("row_offsets");
    let outputs = offsets.and_then(|offsets| offsets.checked_sub(1)).ok_or(MissingComponents)?;
    let parameters = weights.elements().and_then(|words| words.checked_mul(TILE));
    if parameters.and_then(|parameters| divide(parameters, outputs)).is_none() {
        return Err(ConflictingComponents);
    }
    let packing = Packing::new("spqr", 3, "16 × elements of dense_weights");
    Solved::new(module, "dense_weights", parameters, packing)
}

/// DFloat11: lossless BF16, with sign and mantissa in `sign_mantissa` and the exponents compressed. Source:
/// `dfloat11.py` 0.5.
pub(super) const DFLOAT11: Method = Method {
    names: &["dfloat11"],
    weights: &["sign_mantissa"],
    auxiliary: &[(State, &["encoded_exponent"])],
    ambiguous: &[
        (LookupTable, &["luts"]),
        (State, &["output_positions", "gaps", "split_positions"]),
    ],
    solve: solve_dfloat11,
};

fn solve_dfloat11(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.get("sign_mantissa") else { return Ok(None) };
    if !module.has("encoded_exponent") {
        return Err(MissingComponents);
    }
    let packing = Packing::new("dfloat11", 11, "elements of sign_mantissa");
    Solved::new(module, "sign_mantissa", weights.elements(), packing)
}
