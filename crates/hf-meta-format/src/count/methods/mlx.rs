//! MLX, and the Metal kernels of transformers: `weight U32 [outputs, inputs · bits / 32]` with `scales [outputs, groups]` and, in the
//! affine mode, `biases` or `qbiases`.
//!
//! The shapes determine the product of bits and group size, and the configuration chooses among the widths that MLX
//! supports. Source: `mlx.core.quantize` 0.32 and `transformers/integrations/metal_quantization.py`.

use super::{
    AuxiliaryTensor, Hints, MethodDefinition, Module, Packing, PartName, Solution, Solved,
    UnresolvedReason, divide, product,
};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    names: &["mlx", "metal"],
    parts: &[
        PartName::auxiliary("scales", AuxiliaryTensor::Scale),
        PartName::common("biases", AuxiliaryTensor::ZeroPoint),
        PartName::auxiliary("qbiases", AuxiliaryTensor::ZeroPoint),
    ],
    has_plain_weight: true,
    solve,
};

/// The bit widths that MLX supports.
const WIDTHS: [u64; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [u64; 4] = [16, 32, 64, 128];

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix();
    let Some((part, weights)) = weights.filter(|(_, weights)| weights.container() == Some(32))
    else {
        return Ok(None);
    };
    let Some(scales) = module.matrix("scales") else { return Ok(None) };
    if (scales.stacked, scales.rows) != (weights.stacked, weights.rows) {
        return Err(UnresolvedReason::ConflictingComponents);
    }
    // The bits per group: bits × group size.
    let row_bits = weights.columns.checked_mul(32).ok_or(UnresolvedReason::ImplausibleSize)?;
    let group_bits =
        divide(row_bits, scales.columns).ok_or(UnresolvedReason::ConflictingComponents)?;
    let candidates =
        || WIDTHS.into_iter().filter(|bits| GROUPS.iter().any(|group| bits * group == group_bits));
    let listed = hints.choose(module.name, |scheme| {
        let bits = scheme.bits.filter(|bits| candidates().any(|candidate| candidate == *bits))?;
        scheme
            .group_size
            .is_none_or(|group| bits.checked_mul(group) == Some(group_bits))
            .then_some(bits)
    })?;
    let only = || {
        let mut candidates = candidates();
        candidates.next().filter(|_| candidates.next().is_none())
    };
    let bits = listed.or_else(only).ok_or(UnresolvedReason::AmbiguousScheme)?;
    let inputs = row_bits / bits;
    let parameters = product(&[weights.stacked, weights.rows, inputs]);
    let packing =
        Packing::with_bits("mlx", bits, "columns of weight and scales, bits of the configuration");
    Solved::new(module, part.name(), parameters, packing)
}
