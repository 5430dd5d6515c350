//! Weights that are reshaped to groups or tiles before packing, and tensor subclasses of `PyTorch`, which are saved as
//! one tensor per field.

use super::prelude::*;

/// HQQ: 3-bit values are packed into words, others into bytes, which may be viewed as floats. With axis 1, each row of
/// `W_q` is a group; with axis 0, each column is one. Source: `hqq/core/quantize.py` 0.2.8.
pub(super) const HQQ: Method = Method {
    names: &["hqq"],
    layouts: &[
        hqq(&[3], WORD_OR_FLOAT, HQQ_ROWS).recipes(&["hqq:axis_1"]),
        hqq(&[3], WORD_OR_FLOAT, HQQ_COLUMNS).recipes(&["hqq:axis_0"]),
        hqq(&[1, 2, 4, 8], BYTE_OR_FLOAT, HQQ_ROWS).word(Some(8)).recipes(&["hqq:axis_1"]),
        hqq(&[1, 2, 4, 8], BYTE_OR_FLOAT, HQQ_COLUMNS).word(Some(8)).recipes(&["hqq:axis_0"]),
    ],
    others: &[
        (Shape, &["?shape"]),
        (State, &["?axis", "?nbits", "?group_size", "?channel_wise", "?packing", "?compute_dtype"]),
        (State, &["?unpack_view_dtype", "?view_as_float", "?stores_quant_config", "?offload_meta"]),
        (State, &["?optimize", "?round_zero", "?quant_scale", "?quant_zero"]),
    ],
};

const WORD_OR_FLOAT: Dtypes = |dtype| WORD(dtype) || *dtype == Dtype::F32;
const BYTE_OR_FLOAT: Dtypes = |dtype| BYTE(dtype) || FLOAT(dtype);

/// The shapes of the weights and of the scales.
const HQQ_ROWS: [PartShape; 2] =
    [Sides(&[Whole(Groups), Viewed(Members)]), Sides(&[GROUPS, Constant(1)])];
const HQQ_COLUMNS: [PartShape; 2] =
    [Sides(&[Whole(Members), Viewed(Groups)]), Sides(&[Constant(1), GROUPS])];

const fn hqq(bits: BitChoices, dtypes: Dtypes, [weights, group]: [PartShape; 2]) -> PackedLayout {
    layout("hqq", bits, &["W_q"], dtypes, weights)
        .with(scale(&["?scale"], group))
        .with(zeros(&["?zero"], group).need(Written))
        .size(&[Groups, Members])
        .stated(&[(Members, Key::GroupSize)])
        .flags(&[NeverStacked])
        .keys(&[Key::Axis, Key::Bits, Key::ViewAsFloat])
}

/// SINQ: `W_q` as in HQQ, with one zero point per group, which may be quantized, too. Source: `sinq/sinqlinear_hf.py` and
/// `sinq/quantizer.py` 0.2.
pub(super) const SINQ: Method = Method {
    names: &["sinq"],
    layouts: &[sinq(&[3], WORD), sinq(&[1, 2, 4, 8], BYTE)],
    others: &[
        (Scale, &["meta.scale", "meta.scale.x", "meta.scale.s", "meta.scale.m", "meta.scale2"]),
        (ZeroPoint, &["meta.zero.s", "meta.zero.m"]),
    ],
};

const fn sinq(bits: BitChoices, dtypes: Dtypes) -> PackedLayout {
    layout("sinq", bits, &["W_q"], dtypes, Sides(&[Whole(Groups), MEMBERS]))
        .with(zeros(&["meta.zero.x", "meta.zero"], Elements(GROUPS)).need(Required))
        .size(&[Groups, Members])
        .flags(&[WithoutBits])
}

/// quanto: 8 bits as they are; 2 and 4 bits packed along the first dimension of the groups. The weights of convolutions
/// have four dimensions. Source: `optimum/quanto/tensor` 0.2.7.
pub(super) const QUANTO: Method = Method {
    names: &["quanto"],
    layouts: &[
        layout("quanto", &[8], &["weight._data"], ANY, Elements(WEIGHTS))
            .with(scale(&["weight._scale"], UNCHECKED))
            .size(&[Weights]),
        quanto(Rows(&[PackedUp(Groups), MEMBERS]), Rows(&[GROUPS, Constant(1)])),
        quanto(Rows(&[Packed(Members), GROUPS]), Rows(&[Constant(1), GROUPS]))
            .flags(&[NeedsRecipe]),
    ],
    others: &[(ZeroPoint, &["weight._shift"])],
};

const fn quanto(data: PartShape, scales: PartShape) -> PackedLayout {
    layout("quanto", &[2, 4], &["weight._data._data"], ANY, data)
        .with(scale(&["weight._scale"], scales))
        .size(&[Groups, Members])
        .word(Some(8))
}

/// torchao: bytes, words of 32 bits, or tiles of a matrix padded to 8 × 1,024. The file metadata contains the shapes of
/// most tensors. Source: `torchao/prototype/safetensors` and `torchao/quantization/quantize_` 0.18.
pub(super) const TORCHAO: Method = Method {
    names: &["torchao"],
    layouts: &[
        torchao(&[4], WORD, Elements(Packed(Weights)), UNCHECKED)
            .size(&[Weights])
            .pads(&[Pad::new(Weights, Some(1))])
            .only_if(|problem, _| {
                Ok(torchao_data(problem).is_some_and(|data| data.shape.len() == 4))
            }),
        torchao(&[4], WORD_OR_BYTE, ROWS, Sides(&[GROUPS, OUTPUTS]))
            .only_if(|problem, _| Ok(is_grouped_by_rows(problem))),
        torchao_floats(FLOAT_8, &[16]),
        torchao_floats(EXPONENT_OR_BYTE, &[32]),
        torchao(&[8], ANY, Sides(&[OUTPUTS, INPUTS]), UNCHECKED).only_if(is_byte),
    ],
    others: &[
        (Scale, &["_weight_per_tensor_scale"]),
        (Scale, &["_weight_act_per_tensor_scale", "_weight_act_pre_scale"]),
        (ZeroPoint, &["_weight_zero_point"]),
    ],
};

const TORCHAO_SCALES: Names = &["_weight_scale", "_weight_scale_and_zero"];

const fn torchao(
    bits: BitChoices,
    dtypes: Dtypes,
    data: PartShape,
    scales: PartShape,
) -> PackedLayout {
    layout("torchao", bits, &["_weight_qdata"], dtypes, data).with(scale(TORCHAO_SCALES, scales))
}

const fn torchao_floats(scales: Dtypes, group: &'static [u64]) -> PackedLayout {
    layout("torchao", &[4], &["_weight_qdata"], UNSIGNED_BYTE, ROWS)
        .with(scale(TORCHAO_SCALES, Sides(&[Anything, GROUPS])).dtypes(scales))
        .in_whole_groups(Inputs, group)
}

fn torchao_data<'a>(problem: &Problem<'a>) -> Option<&'a TensorInfo> {
    problem.first(&["_weight_qdata"])
}

/// Returns whether the scales of groups have the outputs last, in contrast to `[outputs, groups]`.
fn is_grouped_by_rows(problem: &Problem<'_>) -> bool {
    let rows = |tensor: Option<&TensorInfo>| Some(*tensor?.shape.iter().rev().nth(1)?);
    rows(torchao_data(problem)) != rows(problem.first(TORCHAO_SCALES))
}

fn is_byte(problem: &Problem<'_>, _: Option<u64>) -> Result<bool, UnresolvedReason> {
    let data = torchao_data(problem).filter(|data| data.dtype.bits() == Some(8));
    data.map(|data| data.dtype != Dtype::U8).ok_or(ConflictingComponents)
}

/// `ExLlama`: EXL2 with the order of the inputs in `q_invperm`, and EXL3 with tiles of 16 × 16 weights in `trellis`. EXL2
/// pads the outputs to 32, EXL3 both sides to 128. Source: `exllamav2/conversion/adaptivegptq.py` 0.3.2 and
/// `exllamav3/modules/quant/exl3.py` 1.6.5.
pub(super) const EXLLAMA: Method = Method {
    names: &["exl2", "exl3"],
    layouts: &[
        layout("exl3", ALL_BITS, &["trellis"], HALF_WORD, TRELLIS)
            .with(part(Rotation, &["svh", "?sv"], UNCHECKED))
            .with(part(Rotation, &["svh"], Elements(OUTPUTS)).optional())
            .with(part(Rotation, &["suh"], Elements(INPUTS)).optional())
            .pads(&[Pad::new(Inputs, Some(128)), Pad::new(Outputs, Some(128))]),
        layout("exl2", &[8], &["q_weight"], ANY, Sides(&[Mixed(Inputs), OUTPUTS]))
            .with(part(ColumnOrder, &["q_invperm", "q_perm"], Elements(INPUTS)))
            .with(scale(&["q_scale_max"], Sides(&[GROUPS])).need(Written))
            .with(scale(&["q_scale"], Sides(&[GROUPS, Split(Outputs, 8)])).need(Written))
            .with(part(ColumnOrder, &["q_groups"], Sides(&[Times(Groups, 2)])).need(Written))
            .pads(&[Pad::new(Outputs, Some(32))])
            .flags(&[WithoutBits]),
    ],
    others: &[(ColumnOrder, &["q_group_map"]), (Rotation, &["?su"]), (State, &["?mcg", "?mul1"])],
};

const TRELLIS: PartShape = Sides(&[Split(Inputs, 16), Split(Outputs, 16), Bits(16)]);
