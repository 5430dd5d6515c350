//! ExLlama: EXL2 with `q_weight` and the order of the inputs in `q_invperm`, and EXL3 with tiles of 16 × 16 weights in
//! `trellis`.
//!
//! EXL2 pads the outputs to 32, EXL3 to 128. Source: `exllamav2/conversion/adaptivegptq.py` 0.3.2 and
//! `exllamav3/modules/quant/exl3.py` 1.6.5.

use super::prelude::*;

pub(super) const EXLLAMA: Method = Method {
    names: &["exl2", "exl3"],
    weights: &["q_weight", "trellis"],
    auxiliary: &[
        (ColumnOrder, &["q_invperm", "q_perm", "q_groups", "q_group_map"]),
        (Scale, &["q_scale_max"]),
        (Rotation, &["suh", "svh"]),
    ],
    ambiguous: &[(Rotation, &["su", "sv"]), (State, &["mcg", "mul1"])],
    solve,
};

fn solve(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    if let Some(trellis) = module.get("trellis") {
        return solve_exl3(module, hints, trellis);
    }
    let Some(weights) = module.matrix("q_weight") else { return Ok(None) };
    let inputs = module.first(&["q_invperm", "q_perm"]).and_then(TensorInfo::elements);
    let inputs = inputs.ok_or(MissingComponents)?;
    // Each input has 2 to 8 bits, in words of 32 bits.
    let bits = weights.rows.checked_mul(32).ok_or(ImplausibleSize)?;
    if !(inputs..=inputs.saturating_mul(8)).contains(&bits) {
        return Err(ConflictingComponents);
    }
    let outputs = hints.unpadded_outputs(module.name, weights.columns, 32);
    let parameters = product(&[inputs, outputs.length]);
    let packing = Packing::without_bits("exl2", "q_invperm × columns of q_weight");
    padded_if(!outputs.is_certain, Solved::new(module, "q_weight", parameters, packing))
}

fn solve_exl3(module: &Module<'_>, hints: &Hints<'_>, trellis: &TensorInfo) -> Solution {
    let [input_tiles, output_tiles, words] = &trellis.shape[..] else {
        return Err(ConflictingComponents);
    };
    if container_bits(&trellis.dtype) != Some(16) {
        return Ok(None);
    }
    if module.first(&["svh", "sv"]).is_none() {
        return Err(MissingComponents);
    }
    let sides = input_tiles.checked_mul(16).zip(output_tiles.checked_mul(16));
    let (inputs, outputs) = sides.ok_or(ImplausibleSize)?;
    let has_signs =
        |name: &str, side| module.get(name).is_none_or(|signs| signs.elements() == Some(side));
    if !has_signs("suh", inputs) || !has_signs("svh", outputs) {
        return Err(ConflictingComponents);
    }
    let inputs = hints.unpadded(inputs, 128);
    let outputs = hints.unpadded_outputs(module.name, outputs, 128);
    let parameters = product(&[inputs.length, outputs.length]);
    // A tile of 256 weights is stored in words of 16 bits.
    let packing = Packing::new("exl3", words / 16, "tiles of trellis, 16 × 16 weights each");
    let is_padded = !inputs.is_certain || !outputs.is_certain;
    padded_if(is_padded, Solved::new(module, "trellis", parameters, packing))
}
