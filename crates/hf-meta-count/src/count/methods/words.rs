//! Integers in words of 16 or 32 bits: GPTQ, AWQ, Marlin, compressed-tensors, MLX and their relatives.

use super::prelude::*;

/// GPTQ: `qweight` contains the transposed weights, packed along the inputs into words of 8 to 64 bits. AutoRound,
/// ParoQuant and GPTQModel use the same layout.
///
/// Source: `QuantLinear.pack` of AutoGPTQ 0.7 and GPTQModel, which rounds the rows up. Without an order of the inputs,
/// AutoRound pads them to whole groups.
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
    layouts: &[layout(
        "gptq",
        ALL_BITS,
        &["qweight"],
        INTEGER,
        Sides(&[PackedUp(Inputs), OUTPUTS]),
    )
    .with(scale(&["scales"], Sides(&[GROUPS, OUTPUTS])))
    .with(zeros(&["qzeros"], Sides(&[GROUPS, PackedUp(Outputs)])).dtypes(INTEGER).need(Written))
    .with(part(ColumnOrder, &["g_idx"], Sides(&[INPUTS])).optional())
    .grouped(Inputs, &[])
    .pads(&[Pad { unless: Some("g_idx"), plausible: Some(1), ..Pad::new(Inputs, None) }])
    .recipes(&[
        "gptq",
        "auto_gptq",
        "gptqmodel",
        "gptq:gptq",
        "gptq:gptq_v2",
        "auto-round:auto_round:auto_gptq",
        "auto-round:auto_gptq",
    ])],
    others: &[(LowRank, &["?lora_A.weight", "?lora_B.weight"])],
};

/// AWQ: 4-bit weights, packed along the outputs into words of 32 or 16 bits. `gemv` packs along the inputs and pads the
/// groups.
///
/// Source: `awq/modules/linear` of AutoAWQ 0.2, and `awq/quantize/qmodule.py` of llm-awq. ParoQuant adds rotations.
pub(super) const AWQ: Method = Method {
    names: &["awq", "auto_awq", "awq_marlin", "paroquant"],
    layouts: &[
        layout("awq", &[4], &["qweight"], HALF_WORD, Sides(&[Packed(Outputs), INPUTS]))
            .with(scale(&["scales"], Sides(&[Anything, OUTPUTS])))
            .with(zeros(&["qzeros", "scaled_zeros"], Sides(&[Anything, OUTPUTS])))
            .recipes(&["awq:gemv_fast", "awq:llm-awq"]),
        layout("awq", &[4], &["qweight"], WORD, TILES)
            .with(scale(&["scales"], Sides(&[GROUPS, OUTPUTS])))
            .with(absent(&["qzeros"]))
            .grouped(Inputs, &[])
            .flags(&[NeedsMethod])
            .recipes(&["awq:marlin"]),
        layout("awq", ALL_BITS, &["qweight"], WORD, Sides(&[INPUTS, Packed(Outputs)]))
            .with(scale(&["scales"], Sides(&[GROUPS, OUTPUTS])))
            .with(
                zeros(&["qzeros"], Sides(&[GROUPS, Packed(Outputs)]))
                    .need(Required)
                    .stored(If(Key::ZeroPoint)),
            )
            .grouped(Inputs, &[])
            .recipes(&["awq", "awq:gemm", "auto-round:auto_round:auto_awq", "auto-round:auto_awq"]),
        layout("awq", &[4], &["qweight"], WORD, ROWS)
            .with(scale(&["scales"], Sides(&[OUTPUTS, GROUPS])))
            .with(zeros(&["qzeros"], Sides(&[OUTPUTS, Packed(Groups)])).need(Required))
            .flags(&[NeedsMethod])
            .recipes(&["awq:gemv"]),
    ],
    others: &[(Rotation, &["?theta", "?pairs"]), (Scale, &["?channel_scales"])],
};

/// Neural Compressor, packed along the inputs or the outputs into words of 8 to 64 bits. Source: `WeightOnlyLinear` in
/// `adaptor/torch_utils/model_wrapper.py` 2.6, with `use_optimum_format=False`.
pub(super) const NEURAL_COMPRESSOR: Method = Method {
    names: &["intel/neural-compressor", "neural_compressor"],
    layouts: &[
        compressor_words(Sides(&[OUTPUTS, Whole(Inputs)]), Sides(&[OUTPUTS, Whole(Groups)])),
        // Bytes of 8 bits are the same in both orders.
        compressor_words(Sides(&[Whole(Outputs), INPUTS]), Sides(&[Whole(Outputs), GROUPS]))
            .only_if(|problem, bits| {
                let words = problem.module.first(&["qweight"]);
                let are_bytes = words.is_some_and(|(_, words)| words.dtype.bits() == Some(8));
                Ok(!are_bytes || bits.is_some_and(|bits| bits < 8))
            }),
    ],
    others: &[],
};

const fn compressor_words(words: PartShape, zero_words: PartShape) -> PackedLayout {
    layout("neural-compressor", &[2, 4, 8], &["qweight"], INTEGER, words)
        .with(scale(&["scales"], Sides(&[OUTPUTS, GROUPS])).dtypes(FLOAT))
        .with(zeros(&["qzeros"], zero_words).dtypes(INTEGER))
        .with(part(ColumnOrder, &["g_idx"], Sides(&[INPUTS])).optional())
        .grouped(Inputs, &[])
        .recipes(NONE)
}

/// Marlin and QQQ: tiles of 16 inputs. Marlin-2:4 of GPTQ stores half of the weights. Source: `marlin/__init__.py` of
/// IST-DASLab, `QQQ/gptq/qlinear/qlinear_marlin.py`, GPTQModel, and `gptq_marlin_24.py` of vLLM 0.4.3.
pub(super) const MARLIN: Method = Method {
    names: &["marlin", "qqq"],
    layouts: &[
        layout("marlin", &[2, 4, 8], &["B"], WORD, TILES)
            .with(scale(&["?s", "?s_channel"], Sides(&[GROUPS, OUTPUTS]))),
        layout("marlin-24", &[4, 8], &["B_24"], WORD, SPARSE_TILES)
            .with(scale(&["?s"], Sides(&[GROUPS, OUTPUTS])))
            .with(part(Shape, &["B_meta"], Sides(&[Split(Inputs, 32), Times(Outputs, 2)])))
            .recipes(&["gptq:marlin_24"]),
    ],
    others: &[(Scale, &["?s_group"]), (State, &["?workspace"]), (ColumnOrder, &["?perm"])],
};

/// Tiles of 16 inputs, as Marlin stores them.
const TILES: PartShape = Sides(&[Split(Inputs, 16), Tiled(Outputs, 16)]);

/// compressed-tensors. Bits and group sizes come from the configuration if they fit the shapes. Up to version 0.13,
/// values of 3, 5, 6 and 7 bits did not cross words. Marlin-2:4 stores half of the weights, in tiles of 16 rows.
/// `weight_shape` stores the shape as tensor data, which a header does not contain.
///
/// Source: `compressed_tensors/compressors` 0.9 to 0.20.
pub(super) const PACKED: Method = Method {
    names: &["compressed-tensors"],
    layouts: &[
        layout("marlin-24", &[4, 8], &["weight_packed"], WORD, SPARSE_TILES)
            .with(scale(&["scale_packed"], Sides(&[GROUPS, OUTPUTS])))
            .recipes(&["compressed-tensors:marlin-24"]),
        packed_words(Sides(&[OUTPUTS, PackedUp(Inputs)]), Sides(&[PackedUp(Outputs), GROUPS])),
        packed_words(Sides(&[OUTPUTS, Whole(Inputs)]), Sides(&[Whole(Outputs), GROUPS])),
    ],
    others: &[(Shape, &["?meta", "?*_shape", "?*_weight_shape"])],
};

const SPARSE_TILES: PartShape = Sides(&[Split(Inputs, 32), Tiled(Outputs, 16)]);

const PACKED_NAMES: Names = &["weight_packed", "*_weight_packed", "*_packed"];

/// Creates the layout of words in rows. There is one scale per group, per block of rows and columns, or in total.
const fn packed_words(words: PartShape, zero_words: PartShape) -> PackedLayout {
    let scales =
        &[Sides(&[OUTPUTS, GROUPS]), Sides(&[AtMost(Outputs), Anything]), Elements(Constant(1))];
    layout("pack-quantized", ALL_BITS, PACKED_NAMES, WORD, words)
        .with(absent(&["scale_packed"]))
        .with(scale(&["weight_scale", "*_weight_scale", "?*_scale"], OneOf(scales)))
        .with(
            zeros(&["weight_zero_point", "?*_zero_point"], zero_words)
                .dtypes(WORD)
                .stored(Unless(Key::Symmetric)),
        )
        .with(part(ColumnOrder, &["weight_g_idx", "?*_g_idx"], Elements(INPUTS)).optional())
        .with(part(Shape, &["weight_shape"], Sides(&[Constant(2)])).optional())
        .grouped(Inputs, &[])
        .flags(&[NeedsRecipe])
        .recipes(&["compressed-tensors:pack-quantized"])
}

/// MLX, and the Metal kernels of transformers. The shapes determine the product of bits and group size. The affine mode
/// has biases.
///
/// Source: `mlx.core.quantize` 0.32 and `transformers/integrations/metal_quantization.py`.
pub(super) const MLX: Method = Method {
    names: &["mlx", "mlx_q4", "mlx_q8", "metal"],
    layouts: &[layout("mlx", &[1, 2, 3, 4, 5, 6, 8], &PLAIN, WORD, ROWS)
        .with(scale(&["scales"], Sides(&[OUTPUTS, GROUPS])))
        .with(zeros(&["?biases", "qbiases"], Sides(&[OUTPUTS, GROUPS])).stored(If(Key::Affine)))
        .in_whole_groups(Inputs, &[16, 32, 64, 128])],
    others: &[(Scale, &["?global_scale"])],
};

/// BitBLAS: rows of bytes. Source: `bitblas.py` of vLLM and GPTQModel.
pub(super) const BITBLAS: Method = Method {
    names: &["bitblas"],
    layouts: &[layout("bitblas", ALL_BITS, &["qweight"], BYTE, ROWS)
        .with(scale(&["scales"], Sides(&[OUTPUTS, GROUPS])))
        .with(zeros(&["qzeros"], Sides(&[GROUPS, Packed(Outputs)])).dtypes(BYTE))
        .in_whole_groups(Inputs, &[])],
    others: &[],
};

/// Nunchaku (SVDQuant) with a low-rank branch. AWQ has four rows side by side. Source: `nunchaku/models/linear.py`.
pub(super) const SVDQUANT: Method = Method {
    names: &["svdquant", "nunchaku", "nunchaku_lite"],
    layouts: &[
        layout("svdquant", &[4], &["qweight"], BYTE, ROWS)
            .with(scale(&["wscales"], Sides(&[GROUPS, OUTPUTS])))
            .in_whole_groups(Inputs, &[]),
        layout("svdquant", &[4], &["qweight"], WORD, Sides(&[Split(Outputs, 4), Tiled(Inputs, 4)]))
            .with(scale(&["wscales"], Sides(&[GROUPS, OUTPUTS])))
            .in_whole_groups(Inputs, &[]),
    ],
    others: &[
        (Scale, &["wcscales", "wtscale"]),
        (Scale, &["smooth_factor", "smooth_factor_orig", "smooth", "smooth_orig"]),
        (ZeroPoint, &["wzeros"]),
        (LowRank, &["proj_down", "proj_up", "lora_down", "lora_up"]),
    ],
};

/// `QoQ` of `QServe`: rows of bytes with a scale per output. Groups have scales and zero points in bytes. Source:
/// `sglang/srt/layers/quantization/qoq.py` of `SGLang` 0.5.
pub(super) const QOQ: Method = Method {
    names: &["qoq"],
    layouts: &[layout("qoq", &[4], &["qweight"], SIGNED_BYTE, ROWS)
        .with(scale(&["s1_scales"], Sides(&[OUTPUTS])))
        .with(zeros(&["s1_szeros"], Sides(&[OUTPUTS])))
        .with(scale(&["s2_scales"], Sides(&[GROUPS, OUTPUTS])).optional())
        .with(zeros(&["s2_zeros"], Sides(&[GROUPS, OUTPUTS])))
        .in_whole_groups(Inputs, &[128])],
    others: &[],
};

/// Quark INT4 and INT8 in words, with a scale per group, per output, or in total. Values of 3 bits and floats of 4 bits are
/// packed into bytes without gaps. Only the scales of integers are transposed. Source:
/// `quark/torch/export/nn/modules/qparamslinear.py` and `quark/torch/utils/pack.py` 0.13.
pub(super) const QUARK: Method = Method {
    names: &["quark", "quark_int4fp8_moe"],
    layouts: &[
        layout("quark", &[1, 2, 4, 8, 16, 32], &PLAIN, WORD, Sides(&[INPUTS, Packed(Outputs)]))
            .with(scale(&["weight_scale"], Sides(&[GROUPS, OUTPUTS]))),
        layout("quark", &[1, 2, 4, 8, 16], &PLAIN, WORD, ROWS)
            .with(scale(&["weight_scale"], OneOf(&[Elements(Constant(1)), Elements(OUTPUTS)])))
            .flags(&[NeedsRecipe]),
        layout("quark", ALL_BITS, &PLAIN, BYTE, ROWS)
            .with(scale(&["weight_scale"], OneOf(QUARK_GROUPS)))
            .in_whole_groups(Inputs, &[])
            .flags(&[NeedsMethod, NeedsRecipe]),
    ],
    others: &[],
};

const QUARK_GROUPS: &[PartShape] = &[Sides(&[GROUPS, OUTPUTS]), Sides(&[OUTPUTS, GROUPS])];

/// GGUF blocks in rows of bytes, the last one padded. The configuration names the block type. Source:
/// `gptqmodel/nn_modules/qlinear/gguf.py`.
pub(super) const GGUF: Method = Method {
    names: &["gguf"],
    layouts: &[layout("gguf blocks", &[8], &["qweight"], BYTE, BLOCKS)
        .with(absent(&["scales"]))
        .pads(&[Pad::new(Inputs, None)])
        .flags(&[NeedsMethod, NeedsRecipe, WithoutBits])],
    others: &[],
};

const BLOCKS: PartShape = Sides(&[OUTPUTS, BlockBytes(Inputs)]);
