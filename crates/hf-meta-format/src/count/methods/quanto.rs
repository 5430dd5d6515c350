//! quanto: `weight._data` for 8 bits; for 2 and 4 bits `weight._data._data U8 [groups · bits / 8, group size]` with a
//! scale per group. Source: `optimum/quanto/tensor` 0.2.7.

use super::{
    AuxiliaryTensor, Hints, Matrix, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["quanto"],
    parts: &[
        PartName::weights("weight._data._data"),
        PartName::weights("weight._data"),
        PartName::auxiliary("weight._scale", AuxiliaryTensor::Scale),
        PartName::auxiliary("weight._shift", AuxiliaryTensor::ZeroPoint),
    ],
    has_plain_weight: false,
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let scales = module.get("weight._scale").ok_or(UnresolvedReason::MissingComponents)?;
    if let Some(bytes) = module.get("weight._data") {
        let packing = Packing::new("quanto", 8, "elements of weight._data");
        return Solved::new(module, "weight._data", bytes.elements(), packing);
    }
    let (Some(packed), Some(scales)) = (module.matrix(PACKED), Matrix::new(scales)) else {
        return Ok(None);
    };
    let packing = |bits| {
        Packing::with_bits(
            "quanto",
            bits,
            "elements of weight._scale × columns of weight._data._data",
        )
    };
    if scales.columns == 1 && scales.rows >= packed.rows {
        let values = scales.rows.div_ceil(packed.rows);
        let bits = divide(8, values).ok_or(UnresolvedReason::ConflictingComponents)?;
        return Solved::new(module, PACKED, scales.rows.checked_mul(packed.columns), packing(bits));
    }
    if scales.columns != packed.columns {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    let bits =
        hints.choose(module.name, |scheme| scheme.bits.filter(|bits| [2, 4].contains(bits)))?;
    let bits = bits.ok_or(UnresolvedReason::AmbiguousScheme)?;
    Solved::new(module, PACKED, product(&[packed.rows, 8 / bits, packed.columns]), packing(bits))
}

const PACKED: &str = "weight._data._data";
