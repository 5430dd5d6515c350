//! Vector quantization: codes that index a codebook with groups of weights. AQLM, VPTQ, QuIP# and HIGGS.

use super::prelude::*;

/// AQLM: `codes [outputs / out_group, inputs / in_group, codebooks]`, which index
/// `codebooks [codebooks, entries, out_group, in_group]`.
pub(super) const AQLM: Method = Method {
    names: &["aqlm"],
    weights: &["codes"],
    auxiliary: &[(LookupTable, &["codebooks"]), (Scale, &["scales"])],
    ambiguous: &[],
    solve: solve_aqlm,
};

fn solve_aqlm(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let (Some(codes), Some(books)) = (module.get("codes"), module.get("codebooks")) else {
        return Ok(None);
    };
    let ([outputs, inputs, per_group], [number, _, out_group, in_group]) =
        (&codes.shape[..], &books.shape[..])
    else {
        return Err(ConflictingComponents);
    };
    let scales = module.get("scales").ok_or(MissingComponents)?;
    if per_group != number || scales.shape.first() != Some(outputs) {
        return Err(ConflictingComponents);
    }
    let parameters = product(&[*outputs, *inputs, *out_group, *in_group]);
    let packing = Packing::without_bits("aqlm", "codes × groups of codebooks");
    Solved::new(module, "codes", parameters, packing)
}

/// VPTQ: `indices [groups, ⌈outputs / vector⌉, words]`, which index `centroids`. The configuration lists the size of
/// each module. Source: `vptq/layers/vqlinear.py` 0.0.5.
pub(super) const VPTQ: Method = Method {
    names: &["vptq"],
    weights: &["indices"],
    auxiliary: &[
        (LookupTable, &["centroids.weight", "res_centroids.weight", "outlier_centroids.weight"]),
        (LookupTable, &["res_indices", "outlier_indices"]),
        (ZeroPoint, &["weight_bias"]),
    ],
    ambiguous: &[(ColumnOrder, &["perm"])],
    solve: solve_vptq,
};

fn solve_vptq(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let Some(indices) = module.get("indices") else { return Ok(None) };
    if !module.has("centroids.weight") {
        return Ok(None);
    }
    let [_, rows, _] = &indices.shape[..] else { return Err(ConflictingComponents) };
    let order = module.elements("perm");
    let (inputs, outputs) = hints.require(module.name, |scheme| {
        let (inputs, outputs) = (scheme.in_features?, scheme.out_features?);
        let fits = outputs.div_ceil(scheme.vector_length?) == *rows
            && order.is_none_or(|order| order == inputs);
        fits.then_some((inputs, outputs))
    })?;
    let evidence = "in_features × out_features of the configuration, rows of indices";
    let packing = Packing::without_bits("vptq", evidence);
    Solved::new(module, "indices", inputs.checked_mul(outputs), packing)
}

/// QuIP#: codes in `Qidxs`, with one sign vector per side: `SU [inputs]` and `SV [outputs]`. Source:
/// `lib/linear/quantized_linear.py`.
pub(super) const QUIP: Method = Method {
    names: &["quip", "quip#"],
    weights: &["Qidxs"],
    auxiliary: &[],
    ambiguous: &[(Rotation, &["SU", "SV"]), (Scale, &["Wscale"]), (State, &["codebook_id"])],
    solve: solve_quip,
};

fn solve_quip(module: &Module<'_>, _: &Hints<'_>) -> Solution {
    let Some(codes) = module.matrix("Qidxs") else { return Ok(None) };
    let sides = module.elements("SU").zip(module.elements("SV"));
    let (inputs, outputs) = sides.ok_or(MissingComponents)?;
    if (codes.stacked, codes.rows) != (1, outputs)
        || !divide(inputs, codes.columns).is_some_and(|values| [4, 8, 16, 32, 64].contains(&values))
    {
        return Err(ConflictingComponents);
    }
    let packing = Packing::without_bits("quip#", "SU × SV");
    Solved::new(module, "Qidxs", product(&[inputs, outputs]), packing)
}

/// HIGGS: `weight I16` in tiles, with `scales [outputs, groups]` over inputs padded to 1,024. Only the model
/// dimensions give the inputs, because the sizes in `tune_metadata` are padded. Source:
/// `transformers/integrations/higgs.py` 5.23.
pub(super) const HIGGS: Method = Method {
    names: &["higgs"],
    weights: &PLAIN,
    auxiliary: &[(Scale, &["scales"])],
    ambiguous: &[(LookupTable, &["tables", "tables2"])],
    solve: solve_higgs,
};

/// HIGGS pads the inputs to a multiple of this.
const PADDING: u64 = 1024;

fn solve_higgs(module: &Module<'_>, hints: &Hints<'_>) -> Solution {
    let weights = module.plain_matrix().filter(|(_, weights)| weights.container() == Some(16));
    let (Some((name, weights)), Some(scales)) = (weights, module.matrix("scales")) else {
        return Ok(None);
    };
    if weights.stacked != scales.stacked || !module.has("tables") {
        return Ok(None);
    }
    // The model dimension that would be padded to the columns, if there is only one.
    let mut dimensions =
        hints.dimensions(weights.columns.saturating_sub(PADDING - 1)..=weights.columns);
    let inputs = dimensions.next().filter(|_| dimensions.next().is_none());
    let parameters = product(&[scales.stacked, scales.rows, inputs.unwrap_or(weights.columns)]);
    let packing = Packing::without_bits("higgs", "rows of scales × columns of weight");
    padded_if(inputs.is_none(), Solved::new(module, name, parameters, packing))
}
