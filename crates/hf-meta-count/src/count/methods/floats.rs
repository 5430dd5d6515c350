//! Floats of 4 to 8 bits whose scales cover 16 or 32 weights.

use super::prelude::*;

/// NVFP4, MXFP4 and MXFP6 in rows of bytes. Experts stacked in one tensor may be packed along the rows.
///
/// MX formats have one exponent byte per 32 weights as the scale, and NVFP4 has one 8-bit float per 16 weights. Written
/// by modelopt, compressed-tensors, Quark and, for experts, DeepSeek. Source: `modelopt/torch/export/quant_utils.py`,
/// `compressed_tensors/compressors/nvfp4` and `mxfp4`, and the block sizes of the OCP Microscaling specification.
pub(super) const SCALED_BYTES: Method = Method {
    names: &[
        "bfl",
        "deepseek_v4_fp8",
        "fp8",
        "minimax_m3_nvfp4",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "mxfp4",
        "mxfp_w4a8",
        "nvfp4",
        "petit_nvfp4",
        "quark",
        "quark_mxfp4",
    ],
    layouts: &[
        scaled_bytes("nvfp4", FLOAT_8, &[4], &[16], IN_ROWS).recipes(NVFP4_RECIPES),
        scaled_bytes("nvfp4", FLOAT_8, &[4], &[16], IN_COLUMNS).recipes(NVFP4_RECIPES),
        scaled_bytes("fp4", FLOAT_8, &[4], &[32], IN_ROWS).recipes(NONE),
        scaled_bytes("fp4", FLOAT_8, &[4], &[32], IN_COLUMNS).recipes(NONE),
        scaled_bytes("mxfp4", EXPONENT_OR_BYTE, &[4], &[32], IN_ROWS).recipes(MXFP4_RECIPES),
        scaled_bytes("mxfp4", EXPONENT_OR_BYTE, &[4], &[32], IN_COLUMNS).recipes(MXFP4_RECIPES),
        scaled_bytes("mxfp6", EXPONENT_OR_BYTE, &[6], &[32], IN_ROWS).recipes(NONE),
        scaled_bytes("mxfp6", EXPONENT_OR_BYTE, &[6], &[32], IN_COLUMNS).recipes(NONE),
        layout("fp8", &[8], &PLAIN, NARROW, Sides(&[OUTPUTS, INPUTS]))
            .with(scale(&["weight_scale"], Sides(&[OUTPUTS, GROUPS])).dtypes(EXPONENT))
            .with(absent(&["comfy_quant"]))
            .flags(&[Shared])
            .in_whole_groups(Inputs, &[32])
            .recipes(&["modelopt:mxfp8"]),
    ],
    others: &[
        (Scale, &["?scale", "?*_scale", "?*_scale_2", "?*_scale_inv", "?*_global_scale"]),
        (LowRank, &["?weight_quantizer.svdquant_lora_a", "?weight_quantizer.svdquant_lora_b"]),
    ],
};

const NVFP4: &str = "compressed-tensors:nvfp4-pack-quantized";
const MODELOPT_NVFP4: &str = "modelopt:nvfp4";
const NVFP4_RECIPES: Words = &[NVFP4, MODELOPT_NVFP4];
const MXFP4_RECIPES: Words = &["compressed-tensors:mxfp4-pack-quantized", "modelopt:mxfp4"];

/// The shapes of the weights and of the scales. Stacks of experts may store all matrices transposed.
const IN_ROWS: [PartShape; 2] = [ROWS, Sides(&[OUTPUTS, GROUPS])];
const IN_COLUMNS: [PartShape; 2] = [Sides(&[Packed(Inputs), OUTPUTS]), Sides(&[GROUPS, OUTPUTS])];

const fn scaled_bytes(
    name: &'static str,
    scales: Dtypes,
    bits: BitChoices,
    group: &'static [u64],
    [weights, scale_shape]: [PartShape; 2],
) -> PackedLayout {
    const BYTES: Names = &["weight_packed", "*_weight_packed", "*_packed", "weight", ""];
    const SCALES: Names = &[
        "weight_scale",
        "weight_scale_inv",
        "?scale",
        "*_weight_scale",
        "?*_scale",
        "?*_scale_inv",
    ];

    layout(name, bits, BYTES, BYTE, weights)
        .with(scale(SCALES, scale_shape).dtypes(scales))
        .with(scale(&["weight_global_scale"], Elements(Constant(1))).optional().stored(By(NVFP4)))
        .with(
            scale(&["weight_scale_2", "*_weight_scale_2"], UNCHECKED)
                .optional()
                .stored(By(MODELOPT_NVFP4)),
        )
        .in_whole_groups(Inputs, group)
        .flags(&[Shared])
}

/// MXFP4 of gpt-oss. Files by `OpenAI` use the segments `blocks` and `scales`. Source: `gpt_oss/torch/weights.py`,
/// `transformers/integrations/mxfp4.py`.
pub(super) const BLOCKS: Method = Method {
    names: &["mxfp4", "gpt_oss_mxfp4"],
    layouts: &[layout("mxfp4", &[4], &["*_blocks", "blocks"], ANY, HALF_GROUPS)
        .with(scale(&["*_scales", "scales"], Sides(&[OUTPUTS, GROUPS])))
        .in_whole_groups(Inputs, &[32])
        .recipes(&["mxfp4", "gpt_oss_mxfp4"])],
    others: &[],
};

/// A group of 32 weights takes 16 bytes.
const HALF_GROUPS: PartShape = Sides(&[OUTPUTS, GROUPS, Constant(16)]);

/// FP-Quant and Four Over Six: two FP4 weights per byte. For accuracy tests, FP-Quant stores the dequantized weights.
/// Source: `fp_quant/module/linear.py` 0.3.2, `fouroversix/model/modules/linear.py`.
pub(super) const FP_QUANT: Method = Method {
    names: &["fp_quant", "fouroversix"],
    layouts: &[
        layout("fp4", &[4], &["quantized_weight_values"], BYTE, ROWS)
            .with(scale(&["quantized_weight_scale_factors"], Elements(GROUPS)))
            .in_whole_groups(Weights, &[16, 32]),
        fp_quant(&[16]),
        fp_quant(&[32]),
        layout("unpacked", &[8], &["dqweight"], ANY, Elements(WEIGHTS))
            .with(absent(&["qweight"]))
            .size(&[Weights])
            .flags(&[WithoutBits]),
    ],
    others: &[
        (Scale, &["quantized_weight_amax", "?act_global_scale"]),
        (State, &["quantized_weight_metadata"]),
        (Rotation, &["?forward_hadamard_matrix", "?backward_hadamard_matrix"]),
    ],
};

const fn fp_quant(group: &'static [u64]) -> PackedLayout {
    layout("fp4", &[4], &["qweight"], UNSIGNED_BYTE, ROWS)
        .with(scale(&["scales"], Sides(&[OUTPUTS, GROUPS])).dtypes(UNSIGNED_BYTE))
        .with(absent(&["qzeros"]))
        .in_whole_groups(Inputs, group)
}

/// Layouts of `ComfyUI`, which stores the tensors of a weight under its name: `weight`, `weight_scale`, and so on.
/// `comfy_quant` contains the name of the layout as JSON, but in the data, which a header does not contain.
///
/// Both sides are padded to 16 or 32, and the scales of NVFP4 and MXFP8 to tiles of 128 × 4. Nearly all dimensions are
/// multiples of 64, and few become one only by padding. Source: `comfy_kitchen/tensor` 0.2.40.
pub(super) const COMFY: Method = Method {
    names: &[],
    layouts: &[
        comfy_words(&[4, 6]).with(absent(&["weight_codebook", "weight_correction"])),
        // Only 4-bit weights have a codebook or a correction of their offset.
        comfy_words(&[4]).with(part(LookupTable, &["weight_codebook"], UNCHECKED)),
        comfy_words(&[4]).with(zeros(&["weight_correction"], UNCHECKED).need(Required)),
        comfy_transposed().with(scale(&["weight_smooth_factor"], Elements(INPUTS))),
        comfy_transposed().with(zeros(&["weight_zeros"], Sides(&[GROUPS, OUTPUTS])).need(Required)),
        layout("nvfp4", &[4], &PLAIN, UNSIGNED_BYTE, ROWS)
            .with(scale(&["weight_scale"], PADDED_SCALES).dtypes(FLOAT_8))
            .in_whole_groups(Inputs, &[16])
            .flags(&[Shared])
            .pads(&[
                Pad { plausible: Some(64), ..Pad::new(Outputs, Some(16)) },
                Pad { plausible: Some(64), ..Pad::new(Inputs, Some(16)) },
            ]),
        layout("mxfp8", &[8], &PLAIN, NARROW, Sides(&[OUTPUTS, INPUTS]))
            .with(scale(&["weight_scale"], PADDED_SCALES).dtypes(EXPONENT))
            .in_whole_groups(Inputs, &[32])
            .flags(&[Shared])
            .pads(&[Pad::new(Outputs, Some(32)), Pad::new(Inputs, Some(32))]),
        convrot(&[8]).only_if(|problem, _| is_convrot_of(1, problem)),
        convrot(&[4]).only_if(|problem, _| is_convrot_of(2, problem)),
        layout("mxfp8", &[8], &PLAIN, NARROW, Sides(&[OUTPUTS, INPUTS]))
            .with(scale(&["weight_scale"], Sides(&[Anything, Anything])).dtypes(EXPONENT))
            .with(part(State, &["comfy_quant"], UNCHECKED))
            .pads(&[Pad::new(Outputs, Some(32)), Pad::new(Inputs, Some(32))]),
    ],
    others: &[(Scale, &["weight_s_channel"]), (LowRank, &["weight_proj_down", "weight_proj_up"])],
};

const PADDED_SCALES: PartShape = Sides(&[RoundUp(Outputs, 128), RoundUp(Groups, 4)]);

const COMFY_GROUPS: &[u64] =
    &[4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];

const fn comfy_words(bits: BitChoices) -> PackedLayout {
    layout("w4a8", bits, &PLAIN, SIGNED_BYTE, ROWS)
        .with(scale(&["weight_s_rel"], Sides(&[OUTPUTS, GROUPS])))
        .in_whole_groups(Inputs, COMFY_GROUPS)
}

const fn comfy_transposed() -> PackedLayout {
    layout("svdquant", &[4], &PLAIN, SIGNED_BYTE, ROWS)
        .with(scale(&["weight_scale"], Sides(&[GROUPS, OUTPUTS])))
        .in_whole_groups(Inputs, &[])
}

/// `ConvRot`: bytes with one scale per row.
const fn convrot(bits: BitChoices) -> PackedLayout {
    layout("convrot", bits, &PLAIN, SIGNED_BYTE, ROWS)
        .with(scale(&["weight_scale"], Sides(&[OUTPUTS])))
        .with(part(State, &["comfy_quant"], UNCHECKED))
}

/// Returns whether a byte of `ConvRot` holds `number` weights. Only a dimension of the model distinguishes one from two.
fn is_convrot_of(number: u64, problem: &Problem<'_>) -> Result<bool, UnresolvedReason> {
    if problem.known.is_packed_by_metadata(problem.module.name) {
        return Ok(false);
    }
    let columns = problem.first(&PLAIN).and_then(|weights| weights.shape.last()).copied();
    let columns = columns.unwrap_or_default();
    match [1, 2].map(|number| problem.known.is_dimension(columns.saturating_mul(number))) {
        [true, false] => Ok(number == 1),
        [false, true] => Ok(number == 2),
        _ => Err(AmbiguousScheme),
    }
}
