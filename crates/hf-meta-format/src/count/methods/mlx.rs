//! MLX, and the Metal kernels of transformers: `weight U32 [outputs, inputs · bits / 32]` with `scales [outputs, groups]`
//! and, in the affine mode, `biases` or `qbiases`.
//!
//! The shapes determine the product of bits and group size, and the configuration chooses among the widths that MLX
//! supports. Source: `mlx.core.quantize` 0.32 and `transformers/integrations/metal_quantization.py`.

use super::prelude::*;

pub(super) const MLX: Method = Method {
    names: &["mlx", "mlx_q4", "mlx_q8", "metal"],
    weights: &PLAIN,
    auxiliary: &[(Scale, &["scales"]), (ZeroPoint, &["qbiases"])],
    ambiguous: &[(ZeroPoint, &["biases"])],
    solve,
};

/// The bit widths that MLX supports.
const WIDTHS: [u64; 7] = [1, 2, 3, 4, 5, 6, 8];
const GROUPS: [u64; 4] = [16, 32, 64, 128];

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix().filter(|(_, weights)| weights.container() == Some(32));
    let (Some((name, weights)), Some(scales)) = (weights, module.matrix("scales")) else {
        return Ok(None);
    };
    if (scales.stacked, scales.rows) != (weights.stacked, weights.rows) {
        return Err(ConflictingComponents);
    }
    // The bits per group: bits × group size.
    let row_bits = weights.columns.checked_mul(32).ok_or(ImplausibleSize)?;
    let group_bits = divide(row_bits, scales.columns).ok_or(ConflictingComponents)?;
    let fits = |bits: &u64| GROUPS.iter().any(|group| bits * group == group_bits);
    let listed = hints.choose(module.name, |scheme| {
        let bits = scheme.bits.filter(|bits| WIDTHS.contains(bits) && fits(bits))?;
        let group = scheme.group_size;
        group.is_none_or(|group| bits.checked_mul(group) == Some(group_bits)).then_some(bits)
    })?;
    let only = || {
        let mut fitting = WIDTHS.into_iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    let bits = listed.or_else(only).ok_or(AmbiguousScheme)?;
    let parameters = product(&[weights.stacked, weights.rows, row_bits / bits]);
    let evidence = "columns of weight and scales, bits of the configuration";
    Solved::new(module, name, parameters, Packing::new("mlx", bits, evidence))
}
