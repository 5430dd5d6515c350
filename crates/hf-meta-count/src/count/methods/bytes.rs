//! One or more weights per byte, next to scales: FP8, INT8, bitsandbytes, modelopt, BitNet, Gemma and SDNQ.

use super::prelude::*;

/// bitsandbytes: 4-bit values in a column of any dtype, next to `absmax` and `quant_map`; 8-bit values next to `SCB`,
/// or to `weight_scb` in Moshi. Source: `Params4bit` and `Int8Params` of bitsandbytes 0.50, with
/// `bnb_4bit_quant_storage`, and `moshi/utils/quantize.py`.
pub(super) const BITSANDBYTES: Method = Method {
    names: &["bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"],
    layouts: &[
        layout("bitsandbytes", &[8], &PLAIN, ANY, Elements(WEIGHTS))
            .with(scale(ROW_MAXIMA, UNCHECKED))
            .size(&[Weights])
            .only_if(|problem, _| Ok(problem.first(ROW_MAXIMA).is_some())),
        layout("bitsandbytes", &[4], &PLAIN, ANY, Elements(Packed(Weights)))
            .with(scale(&["weight.absmax", "absmax"], Elements(GROUPS)).stored(If(Key::LoadIn4Bit)))
            .with(
                part(LookupTable, &["weight.quant_map", "quant_map"], Sides(&[Constant(16)]))
                    .optional()
                    .stored(If(Key::LoadIn4Bit)),
            )
            .size(&[Weights])
            .grouped(Weights, &[32, 64, 128, 256, 512, 1024, 2048, 4096]),
    ],
    others: &[
        (Scale, &["weight.nested_absmax", "nested_absmax"]),
        (LookupTable, &["weight.nested_quant_map", "nested_quant_map"]),
        (State, &["weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"]),
        (State, &["quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"]),
        (State, &["?weight_format"]),
    ],
};

const ROW_MAXIMA: Names = &["SCB", "weight_scb", "*_scb"];

/// FP8, INT8, and INT4 in bytes. Written by EETQ, FBGEMM, DeepSeek, modelopt, Quark and compressed-tensors. The recipe
/// of DeepSeek and transformers states the blocks of the scales.
///
/// Two weights per signed byte are the integers of `ChatGLM` and of W4AFP8 in `SGLang`, the experts of DeepSeek-V4, and
/// `ConvRot` of `ComfyUI`. Source: `transformers/integrations/finegrained_fp8.py` 5.23.
pub(super) const BYTES: Method = Method {
    names: &[
        "ascend",
        "auto-round-int8",
        "bfl",
        "blockwise_int8",
        "chatglm",
        "deepseek_v4_fp8",
        "eetq",
        "fbgemm_fp8",
        "int8",
        "modelopt_fp8",
        "modelopt_mxfp8",
        "modelslim",
        "mxfp8",
        "w4afp8",
        "w8a8_fp8",
        "w8a8_int8",
    ],
    layouts: &[
        layout("fp8", &[8], &PLAIN, NARROW, Sides(&[OUTPUTS, INPUTS]))
            .with(scale(FP8_SCALES, BLOCKS).stored(If(Key::BlockRows)))
            .recipes(&["fp8"]),
        layout("fp4", &[4], &PLAIN, FLOAT_4, Elements(WEIGHTS)).size(&[Weights]).recipes(NONE),
        with_stated_scales(&layout("fp8", &[8], &PLAIN, NARROW, Elements(WEIGHTS)))
            .size(&[Weights]),
        // Modules whose weight is an object with several fields.
        layout(
            "int8",
            &[8],
            &["weight.qweight", "qweight"],
            SIGNED_BYTE,
            Sides(&[OUTPUTS, INPUTS]),
        )
        .with(scale(&["?weight.scale", "?scale"], OneOf(SCALE_PER_OUTPUT)))
        .recipes(NONE),
        weights_in_bytes("int8", &[8], ONE_PER_BYTE)
            .grouped(Inputs, &[])
            .only_if(|problem, bits| Ok(weights_per_byte(problem, bits)? == 1)),
        weights_in_bytes("int4", &[4], TWO_PER_BYTE)
            .in_whole_groups(Inputs, &[])
            .only_if(|problem, bits| Ok(weights_per_byte(problem, bits)? == 2)),
    ],
    others: &[(Scale, BYTE_SCALES)],
};

/// The names of scales of blocks. The loader renames the last two, of DeepSeek-V4 and Mistral Large 4. Source:
/// `update_weight_conversions` in `transformers/quantizers/quantizer_finegrained_fp8.py` 5.24.
const FP8_SCALES: Names = &["weight_scale_inv", "?*_scale_inv", "?scale", "qscale_weight"];

/// `weights_scaling_factor` and `per_channel_scale` are names of TensorRT-LLM.
const BYTE_SCALES: Names = &[
    "weight_scale",
    "weight_scale_inv",
    "weight_scales",
    "weight_quantizer._scale",
    "weights_scaling_factor",
    "per_channel_scale",
    "?scale",
    "?scale_weight",
    "*_weight_scale",
    "?*_scale",
    "?*_scale_inv",
];

const BLOCKS: PartShape =
    Sides(&[Blocks(Outputs, Key::BlockRows), Blocks(Inputs, Key::BlockColumns)]);

/// The shapes of scales next to one weight per byte.
const ONE_PER_BYTE: &[PartShape] = &[
    Elements(Constant(1)),
    Sides(&[INPUTS]),
    Sides(&[AtMost(Outputs), AtMost(Inputs)]),
    Sides(&[OUTPUTS, GROUPS]),
    Sides(&[OUTPUTS]),
];

/// One scale per output.
const SCALE_PER_OUTPUT: &[PartShape] = &[Sides(&[OUTPUTS, Constant(1)]), Sides(&[OUTPUTS])];

/// The shapes of scales next to two weights per byte.
const TWO_PER_BYTE: &[PartShape] = &[Sides(&[OUTPUTS, GROUPS]), Sides(&[OUTPUTS])];

const fn weights_in_bytes(
    name: &'static str,
    bits: BitChoices,
    scales: &'static [PartShape],
) -> PackedLayout {
    const SHAPES: &[PartShape] = &[ROWS, Elements(Packed(Weights))];

    let weights = layout(name, bits, &PLAIN, BYTE, OneOf(SHAPES));
    with_stated_scales(&weights.with(scale(BYTE_SCALES, OneOf(scales))))
}

/// Adds the parts of compressed-tensors and modelopt that the recipe demands or excludes.
const fn with_stated_scales(layout: &PackedLayout) -> PackedLayout {
    layout
        .with(scale(&["weight_scale", "*_weight_scale"], UNCHECKED).need(Written))
        .with(zeros(&["weight_zero_point"], UNCHECKED).stored(Unless(Key::Symmetric)))
        .with(
            scale(&["input_scale", "*_input_scale"], UNCHECKED)
                .optional()
                .stored(Unless(Key::Dynamic)),
        )
        .recipes(&[
            "compressed-tensors:float-quantized",
            "compressed-tensors:int-quantized",
            "modelopt:fp8",
        ])
}

/// Returns how many weights a byte holds; 0 for more than two. Only the method, the metadata of the file or a dimension
/// of the model distinguishes one from two.
fn weights_per_byte(problem: &Problem<'_>, bits: Option<u64>) -> Result<u64, UnresolvedReason> {
    // Unsigned bytes usually contain several weights.
    if problem.first(&PLAIN).is_some_and(|weights| weights.dtype == Dtype::U8) {
        return Ok(u64::from(bits == Some(8)));
    }
    if problem.is_method(&["w4afp8"]) || problem.known.is_packed_by_metadata(problem.module.name) {
        return Ok(2);
    }
    if bits == Some(4) {
        let is_packed = problem.is_method(&["chatglm", "deepseek_v4_fp8", "fp8"]);
        let is_known = is_packed || problem.is_method(&["compressed-tensors", "int8", "quark"]);
        return if is_known { Ok(1 + u64::from(is_packed)) } else { Err(AmbiguousScheme) };
    }
    let shape = |names| problem.first(names).map_or(&[][..], |tensor| &tensor.shape);
    let scales = shape(BYTE_SCALES);
    if scales.iter().all(|&length| length == 1) {
        return Ok(1);
    }
    // KTransformers stores the bytes of a matrix as a vector, next to the configuration of the source.
    let [.., rows, columns] = shape(&PLAIN) else { return Err(AmbiguousScheme) };
    // Groups of n bytes could hold n or 2 · n weights. Two-dimensional blocks leave no such choice.
    let has_groups = matches!(scales, [.., outputs, groups] if outputs == rows && *groups > 1);
    let is_side = |number: u64| problem.known.is_side(columns.saturating_mul(number));
    let is_open = bits.is_none() && (has_groups || is_side(2) && !is_side(1));
    if is_open { Err(AmbiguousScheme) } else { Ok(1) }
}

/// modelopt W4A16 and W4A8 (AWQ): two rows of weights per row of bytes. Compressed states, which are not exported, have
/// two weights per byte. `ModelSlim` of Ascend has signed bytes and `weight_offset`.
///
/// Source: `modelopt/torch/export/quant_utils.py` and `modelopt/torch/quantization/qtensor` 0.47, and
/// `modelslim/schemes` of `SGLang` 0.5.23.
pub(super) const MODELOPT: Method = Method {
    names: &["modelopt"],
    layouts: &[
        layout("modelopt", &[4], &PLAIN, UNSIGNED_BYTE, ROWS)
            .with(scale(
                &["weight_quantizer._scale", "weight_quantizer.0._scale"],
                Elements(GROUPS),
            ))
            .in_whole_groups(Weights, &[]),
        packed_rows(SIGNED_BYTE)
            .with(zeros(&["weight_offset"], Sides(&[Anything, Anything])).need(Required)),
        packed_rows(UNSIGNED_BYTE)
            .only_if(|problem, _| Ok(problem.is_configured || has_groups(problem))),
    ],
    others: &[],
};

const ROW_SCALES: Names = &["weight_scale", "weights_scaling_factor"];

const fn packed_rows(dtypes: Dtypes) -> PackedLayout {
    layout("modelopt", &[4], &PLAIN, dtypes, Sides(&[Packed(Outputs), INPUTS]))
        .with(scale(ROW_SCALES, Sides(&[OUTPUTS, GROUPS])))
        .in_whole_groups(Inputs, &[])
        .flags(&[Shared])
}

/// Returns whether the rows have several scales. A single scale for each of twice as many rows could also belong to
/// another format.
fn has_groups(problem: &Problem<'_>) -> bool {
    let groups = problem.first(ROW_SCALES).and_then(|scales| scales.shape.last());
    groups.is_some_and(|&groups| groups > 1)
}

/// BitNet: four ternary weights per byte. Source: `transformers/integrations/bitnet.py`.
pub(super) const BITNET: Method = Method {
    names: &["bitnet"],
    layouts: &[layout("bitnet", &[2], &PLAIN, UNSIGNED_BYTE, Sides(&[Packed(Outputs), INPUTS]))
        .with(scale(&["weight_scale"], Elements(Constant(1))))
        .flags(&[NeedsMethod])],
    others: &[],
};

/// Gemma with 2, 4 and 8 bits, and one scale per output. Only the configuration shows the bits of unsigned bytes. Source:
/// `transformers/integrations/gemma_quant.py` 5.23.
pub(super) const GEMMA: Method = Method {
    names: &["gemma"],
    layouts: &[
        gemma(&[8], SIGNED_BYTE),
        gemma(&[2, 4, 8], UNSIGNED_BYTE).flags(&[NeedsMethod, NeedsRecipe]),
    ],
    others: &[],
};

const fn gemma(bits: BitChoices, dtypes: Dtypes) -> PackedLayout {
    const SCALES: &[PartShape] = &[Sides(&[OUTPUTS, Anything]), Sides(&[OUTPUTS])];

    let names = &["embedding_quantized", "weight", ""];
    layout("gemma", bits, names, dtypes, ROWS)
        .with(scale(&["weight_scale", "embedding_scale"], OneOf(SCALES)))
        .flags(&[NeedsMethod])
}

/// SDNQ: `weight` contains the bits of all weights consecutively. 1-bit values are stored in words, eight per word.
/// Source: `sdnq` 0.2.8, `packed_int.py`.
pub(super) const SDNQ: Method = Method {
    names: &["sdnq", "sdnq_training"],
    layouts: &[
        layout("sdnq", &[8], &PLAIN, SIGNED_BYTE_OR_FLOAT, Elements(WEIGHTS))
            .with(scale(&["?scale"], UNCHECKED))
            .size(&[Weights])
            .flags(&[NeedsMethod]),
        layout("sdnq", ALL_BITS, &PLAIN, BYTE_OR_LONG, Elements(Packed(Weights)))
            .word(Some(8))
            .with(scale(&["?scale"], Elements(GROUPS)))
            .size(&[Weights])
            .in_whole_groups(Weights, &[])
            .flags(&[NeedsMethod, NeedsRecipe]),
    ],
    others: &[
        (Scale, &["?scale_2", "?zero_point_scale"]),
        (ZeroPoint, &["?scale_zero_point", "?zero_point", "?zero_point_2"]),
        (LowRank, &["svd_up", "svd_down"]),
    ],
};

const SIGNED_BYTE_OR_FLOAT: Dtypes = |dtype| SIGNED_BYTE(dtype) || NARROW(dtype);
const BYTE_OR_LONG: Dtypes = |dtype| matches!(dtype, Dtype::U8 | Dtype::I64);
