//! Vector quantization, with codes that index a codebook with groups of weights, and encodings whose size depends on the
//! values of the weights.

use super::prelude::*;

/// AQLM: codes that index one or more codebooks.
pub(super) const AQLM: Method = Method {
    names: &["aqlm"],
    layouts: &[layout("aqlm", &[8], &["codes"], ANY, CODES)
        .with(part(LookupTable, &["codebooks"], CODEBOOK).need(Distinctive))
        .with(scale(&["scales"], OneOf(CODE_SCALES)))
        .size(&[OutputGroups, InputGroups, OutputsPerGroup, InputsPerGroup])
        .stated(&[
            (Codebooks, Key::Codebooks),
            (OutputsPerGroup, Key::OutGroupSize),
            (InputsPerGroup, Key::InGroupSize),
        ])
        .flags(&[NeverStacked, WithoutBits])],
    others: &[],
};

const OUTPUT_GROUPS: Term = Length(OutputGroups);
const CODEBOOKS: Term = Length(Codebooks);
const OUTPUTS_PER_GROUP: Term = Length(OutputsPerGroup);
const INPUTS_PER_GROUP: Term = Length(InputsPerGroup);

const CODES: PartShape = Sides(&[OUTPUT_GROUPS, Length(InputGroups), CODEBOOKS]);
const CODEBOOK: PartShape =
    Sides(&[CODEBOOKS, Entries(Key::CodebookBits), OUTPUTS_PER_GROUP, INPUTS_PER_GROUP]);
const CODE_SCALES: &[PartShape] =
    &[Sides(&[OUTPUT_GROUPS, Anything, Anything, Anything]), Sides(&[OUTPUT_GROUPS])];

/// VPTQ: the configuration lists the size of each module. Source: `vptq/layers/vqlinear.py` 0.0.5.
pub(super) const VPTQ: Method = Method {
    names: &["vptq"],
    layouts: &[layout("vptq", &[8], &["indices"], ANY, INDICES)
        .with(part(LookupTable, &["centroids.weight"], UNCHECKED).need(Distinctive))
        .with(part(ColumnOrder, &["?perm"], Elements(INPUTS)).optional())
        .stated(&[(Outputs, Key::OutFeatures), (Inputs, Key::InFeatures)])
        .flags(&[NeverStacked, NeedsRecipe, WithoutBits])],
    others: &[
        (LookupTable, &["res_centroids.weight", "outlier_centroids.weight"]),
        (LookupTable, &["res_indices", "outlier_indices"]),
        (ZeroPoint, &["weight_bias"]),
    ],
};

const INDICES: PartShape = Sides(&[Anything, Blocks(Outputs, Key::VectorLength), Anything]);

/// QuIP#: codes with one sign vector per side. Source: `lib/linear/quantized_linear.py`.
pub(super) const QUIP: Method = Method {
    names: &["quip", "quip#"],
    layouts: &[layout("quip#", &[8], &["Qidxs"], ANY, Sides(&[OUTPUTS, GROUPS]))
        .with(part(Rotation, &["?SU"], Elements(INPUTS)))
        .with(part(Rotation, &["?SV"], Elements(OUTPUTS)))
        .in_whole_groups(Inputs, &[4, 8, 16, 32, 64])
        .flags(&[NeverStacked, WithoutBits])],
    others: &[(Scale, &["?Wscale"]), (State, &["?codebook_id"])],
};

/// QTIP: a row of `trellis` contains a tile of 16 × 16 weights. Only some codes have a lookup table. Source:
/// `lib/linear/quantized_linear.py` of Cornell-RelaxML.
pub(super) const QTIP: Method = Method {
    names: &["qtip"],
    layouts: &[layout("qtip", ALL_BITS, &["trellis"], HALF_WORD, TILE_ROWS)
        .with(part(Rotation, &["?SU"], Sides(&[INPUTS])))
        .with(part(Rotation, &["?SV"], Sides(&[OUTPUTS])))
        .with(part(LookupTable, &["tlut"], UNCHECKED).optional())
        .flags(&[NeverStacked])],
    others: &[(State, &["rcp", "tp_rank"])],
};

const TILE_ROWS: PartShape = Sides(&[Split(Weights, 256), Bits(16)]);

/// HIGGS: tiles of inputs that are padded to 1,024. Only the dimensions of the model give the inputs, because the sizes
/// in `tune_metadata` are padded. Source: `transformers/integrations/higgs.py` 5.23.
pub(super) const HIGGS: Method = Method {
    names: &["higgs"],
    layouts: &[layout("higgs", &[8], &PLAIN, HALF_WORD, Sides(&[Anything, INPUTS]))
        .with(scale(&["scales"], Sides(&[OUTPUTS, Anything])))
        .with(part(LookupTable, &["?tables"], UNCHECKED))
        .pads(&[Pad { trusts_sole: true, ..Pad::new(Inputs, Some(1024)) }])
        .flags(&[WithoutBits])],
    others: &[(LookupTable, &["?tables2"])],
};

/// SpQR: 16 weights of a tile per word, and outliers that `row_offsets` index. Source: `spqr_quant/inference.py`.
pub(super) const SPQR: Method = Method {
    names: &["spqr"],
    layouts: &[layout("spqr", &[3], &["dense_weights"], ANY, Elements(Split(Weights, 16)))
        .with(part(Shape, &["?row_offsets"], Elements(Plus(Outputs, 1))))],
    others: &[(State, &["col_vals"]), (ColumnOrder, &["in_perm"])],
};

/// Sparse weights of compressed-tensors: one bit per weight in `bitmask`, and the nonzero weights in `compressed`. Source:
/// `compressed_tensors/compressors/sparse_compressors` 0.12.
pub(super) const BITMASK: Method = Method {
    names: &["compressed-tensors"],
    layouts: &[layout("bitmask", &[8], &["compressed"], ANY, NONZERO)
        .with(part(Shape, &["bitmask"], Sides(&[OUTPUTS, Split(Inputs, 8)])).need(Distinctive))
        .flags(&[WithoutBits])],
    others: &[(Shape, &["?shape", "?row_offsets"])],
};

const NONZERO: PartShape = OneOf(&[Sides(&[OUTPUTS, AtMost(Inputs)]), Elements(AtMost(Weights))]);

/// DFloat11: lossless BF16, with sign and mantissa in a byte and the exponents compressed. Source: `dfloat11.py` 0.5.
pub(super) const DFLOAT11: Method = Method {
    names: &["dfloat11"],
    layouts: &[layout("dfloat11", &[11], &["sign_mantissa"], ANY, Elements(WEIGHTS))
        .with(part(State, &["encoded_exponent"], UNCHECKED))
        .size(&[Weights])],
    others: &[
        (LookupTable, &["?luts"]),
        (State, &["?output_positions", "?gaps", "?split_positions"]),
    ],
};
