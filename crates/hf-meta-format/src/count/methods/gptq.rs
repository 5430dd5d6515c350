//! GPTQ and the other layouts that GPTQModel writes: Marlin, BitBLAS and GGUF blocks.

use super::prelude::*;

/// GPTQ: `qweight` contains the transposed weights, packed along the inputs into words of 8 to 64 bits.
///
/// Components: `qweight [⌈inputs · bits / word⌉, outputs]`, `scales [groups, outputs]`,
/// `qzeros [groups, ⌈outputs · bits / word⌉]`, and `g_idx [inputs]`. AutoRound, ParoQuant and GPTQModel use the same
/// layout. Source: `QuantLinear.pack` of AutoGPTQ 0.7 and GPTQModel, which rounds the rows up.
pub(super) const GPTQ: Method = Method {
    names: &[
        "gptq",
        "auto_gptq",
        "gptq_marlin",
        "moe_wna16",
        "gptqmodel",
        "auto-round",
        "autoround",
        "inc",
        "intel/auto-round",
    ],
    weights: &["qweight"],
    auxiliary: &[(Scale, &["scales"]), (ZeroPoint, &["qzeros"]), (ColumnOrder, &["g_idx"])],
    ambiguous: &[(LowRank, &["lora_A.weight", "lora_B.weight"])],
    solve: solve_gptq,
};

fn solve_gptq(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some([weights, scales]) = module.matrices(["qweight", "scales"]) else {
        return if module.has("scales") { Ok(None) } else { Err(MissingComponents) };
    };
    let Some(word) = weights.container() else { return Ok(None) };
    if weights.columns != scales.columns {
        return Ok(None);
    }
    let fits_zeros = |bits: u64| {
        let zeros = module.matrix("qzeros").filter(|zeros| zeros.container() == Some(word));
        zeros.is_none_or(|zeros| words(scales.columns, bits, word) == Some(zeros.columns))
    };
    // A stack of experts has one column order per expert.
    let order = module.get("g_idx").and_then(|order| order.shape.last().copied());
    let (bits, inputs, evidence) = if let Some(inputs) = order.filter(|&inputs| inputs > 0) {
        let fits =
            |&bits: &u64| fits_zeros(bits) && words(inputs, bits, word) == Some(weights.rows);
        let bits = (1..=8).find(fits).ok_or(ConflictingComponents)?;
        (bits, inputs, "g_idx × columns of qweight")
    } else {
        let inputs = |bits: u64| divide(weights.rows.checked_mul(word)?, bits);
        let fits = |bits: &u64| fits_zeros(*bits) && inputs(*bits).is_some();
        let mut fitting = (1..=8).filter(fits);
        let bits = match (module.has("qzeros"), fitting.next(), fitting.next()) {
            (true, Some(only), None) => only,
            (true, None, _) => return Err(ConflictingComponents),
            _ => hints.require(module.name, |scheme| scheme.bits.filter(fits))?,
        };
        let inputs = inputs(bits).ok_or(ConflictingComponents)?;
        (bits, inputs, "rows of qweight, bits of qzeros or config")
    };
    let packing = Packing::new("gptq", bits, evidence);
    // Without an order, AutoRound pads the inputs to whole groups.
    let group = hints.choose(module.name, |scheme| scheme.group_size).ok().flatten();
    let padded = group.filter(|_| order.is_none()).map(|group| hints.unpadded(inputs, group));
    let unpadded = padded.map_or(inputs, |side| side.length);
    let parameters = product(&[weights.stacked, unpadded, weights.columns]);
    padded_if(unpadded < inputs, Solved::new(module, "qweight", parameters, packing))
}

/// Returns the number of words that `values` values of `bits` bits take, rounded up.
fn words(values: u64, bits: u64, word: u64) -> Option<u64> {
    Some(values.checked_mul(bits)?.div_ceil(word))
}

/// Marlin and QQQ: `B [inputs / 16, outputs · 16 · bits / 32]`, with scales in `s` or `s_channel`, whose columns are
/// the outputs. Source: `marlin/__init__.py` of IST-DASLab, `QQQ/gptq/qlinear/qlinear_marlin.py`, GPTQModel.
pub(super) const MARLIN: Method = Method {
    names: &["marlin", "qqq"],
    weights: &["B"],
    auxiliary: &[],
    ambiguous: &[
        (Scale, &["s", "s_channel", "s_group"]),
        (State, &["workspace"]),
        (ColumnOrder, &["perm"]),
    ],
    solve: solve_marlin,
};

fn solve_marlin(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(weights) = module.matrix("B").filter(|weights| weights.container() == Some(32)) else {
        return Ok(None);
    };
    let scales = module.first(&["s", "s_channel"]).and_then(Matrix::new);
    let scales = scales.ok_or(MissingComponents)?;
    let bits = divide(weights.columns, scales.columns).map(|words| words * 2);
    let bits = bits.filter(|bits| [2, 4, 8].contains(bits)).ok_or(ConflictingComponents)?;
    let parameters = product(&[weights.stacked, weights.rows, 16, scales.columns]);
    let packing = Packing::new("marlin", bits, "16 × rows of B × columns of the scales");
    Solved::new(module, "B", parameters, packing)
}

/// BitBLAS: `qweight I8 [outputs, inputs · bits / 8]` with `scales [outputs, groups]` and
/// `qzeros I8 [groups, outputs · bits / 8]`. Source: `bitblas.py` of vLLM and GPTQModel.
pub(super) const BITBLAS: Method = Method {
    names: &["bitblas"],
    weights: &["qweight"],
    auxiliary: &[(Scale, &["scales"]), (ZeroPoint, &["qzeros"])],
    ambiguous: &[],
    solve: solve_bitblas,
};

fn solve_bitblas(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some([weights, scales]) = module.matrices(["qweight", "scales"]) else { return Ok(None) };
    let is_alike = (weights.stacked, weights.rows) == (scales.stacked, scales.rows);
    if !is_alike || weights.container() != Some(8) {
        return Ok(None);
    }
    let zeros = module.matrix("qzeros").filter(|zeros| zeros.container() == Some(8));
    let bits = match zeros {
        Some(zeros) => divide(zeros.columns.saturating_mul(8), weights.rows),
        None => hints.choose(module.name, |scheme| scheme.bits)?,
    };
    let bits = bits.ok_or(AmbiguousScheme)?;
    let inputs = weights.columns.checked_mul(8).and_then(|row| divide(row, bits));
    let inputs = inputs.ok_or(ConflictingComponents)?;
    let packing = Packing::new("bitblas", bits, "columns of qweight by the bits of qzeros");
    Solved::new(module, "qweight", product(&[weights.stacked, weights.rows, inputs]), packing)
}

/// GGUF blocks in `qweight U8 [outputs, bytes per row]`. The configuration names the block type. Source:
/// `gptqmodel/nn_modules/qlinear/gguf.py`.
pub(super) const GGUF: Method = Method {
    names: &["gguf"],
    weights: &["qweight"],
    auxiliary: &[],
    ambiguous: &[],
    solve: solve_gguf,
};

fn solve_gguf(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(rows) = module.matrix("qweight").filter(|rows| rows.container() == Some(8)) else {
        return Ok(None);
    };
    if module.has("scales") || !hints.is_method(GGUF.names) {
        return Ok(None);
    }
    let block = hints.require(module.name, |scheme| {
        scheme.block.filter(|block| rows.columns.is_multiple_of(block.bytes))
    })?;
    let parameters =
        product(&[rows.stacked, rows.rows, rows.columns / block.bytes, block.elements]);
    let evidence = "bytes of qweight by the block of the configuration";
    Solved::new(module, "qweight", parameters, Packing::without_bits("gguf blocks", evidence))
}
