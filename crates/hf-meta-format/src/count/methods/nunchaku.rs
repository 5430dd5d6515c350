//! Nunchaku (SVDQuant): `qweight I8 [outputs, inputs / 2]` with `wscales [groups, outputs]` and a low-rank branch;
//! for AWQ, `qweight I32 [outputs / 4, inputs / 2]` with `wzeros`. Source: `nunchaku/models/linear.py`.

use super::prelude::*;

pub(super) const SVDQUANT: Method = Method {
    names: &["svdquant", "nunchaku", "nunchaku_lite"],
    weights: &["qweight"],
    auxiliary: &[
        (Scale, &["wscales", "wcscales", "wtscale"]),
        (Scale, &["smooth_factor", "smooth_factor_orig", "smooth", "smooth_orig"]),
        (ZeroPoint, &["wzeros"]),
        (LowRank, &["proj_down", "proj_up", "lora_down", "lora_up"]),
    ],
    ambiguous: &[],
    solve,
};

fn solve(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some([weights, scales]) = module.matrices(["qweight", "wscales"]) else { return Ok(None) };
    let outputs = match weights.container() {
        Some(8) => Some(weights.rows),
        Some(32) => weights.rows.checked_mul(4),
        _ => None,
    };
    if outputs != Some(scales.columns) {
        return Err(ConflictingComponents);
    }
    let parameters = product(&[weights.stacked, scales.columns, weights.columns, 2]);
    let packing = Packing::new("svdquant", 4, "columns of wscales × 2 × columns of qweight");
    Solved::new(module, "qweight", parameters, packing)
}
