//! The role of a tensor in a model, from its name. It decides which values are normal.
//!
//! A trained matrix of a layer is neither constant nor zero, and no trained parameter is infinite. Everything else may be:
//! embeddings, heads and the second factor of an adapter begin with zeros, tokens that never occur have rows of zeros, and
//! bounds and masks are infinite.

/// The ends of names of scales. A `scale` alone may be the weight of a norm, and `logit_scale` may be negative.
const SCALES: [&str; 11] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "input_scale",
    "input_scale_2",
    "scales",
    "_scales",
    "q_scale",
    "k_scale",
    "v_scale",
    "output_scale",
];

/// Scales whose writers choose the sign, so that the value with the largest magnitude is exact: MLX (`quantize` in
/// `mlx/backend/cpu/quantized.cpp`), and `AutoRound` (`quant_tensor_sym` in `data_type/int.py`), which writes them in the
/// layouts of GPTQ and AWQ, too, and declares them as such (`export_to_autogptq/export.py`).
const SIGNED_SCALES: [&str; 2] = ["scales", "_scales"];

/// The last segments of the names of weights: of a layer, of JAX (`kernel` in Flax, `w` in Haiku), of weight normalization,
/// and of stacked experts.
const WEIGHTS: [&str; 11] = [
    "weight",
    "_weight",
    "kernel",
    "w",
    "proj",
    "_proj",
    "weight_v",
    "original1",
    "w1",
    "w2",
    "w3",
];

/// The last segments of the names of other parameters.
const PARAMETERS: [&str; 8] =
    ["bias", "_bias", "gamma", "beta", "a_log", "scale", "_scale", "sinks"];

/// Parts of the names of parameters without a `weight`.
const PARAMETER_PARTS: [&str; 6] = ["token", "tokens", "embed", "embedding", "embeddings", "lora"];

/// Parts of the last segment of buffers that may be infinite: bounds of clipped and observed values, and masks.
const BOUNDS: [&str; 9] =
    ["min", "max", "mask", "masks", "masked", "causal", "alibi", "triu", "tril"];

/// The ends of the names of biases that are added to scores of attention, and may be masks.
const SCORE_BIASES: [&str; 2] = ["attention_bias", "attn_bias"];

/// Words in the names of matrices that are zero, or of one number, before a training: norms, positions and tokens, the
/// second factor of an adapter, and the last layer of a branch or head.
///
/// Source: `_init_weights` of the classes of transformers 5.23, such as `sampling_offsets` and `bbox_embed` in
/// `modeling_deformable_detr.py`; `zero_module` in the classes of diffusers; the layers of PEFT and `LyCORIS`; and
/// `init_weights_vit_jax` in timm (`head`).
const ZERO_AT_START: [&str; 42] = [
    "norm",
    "embed",
    "pos_",
    "position",
    "lora_b",
    "lora_up",
    "lora.up",
    "hada_",
    "lokr_",
    "lily_b",
    "oft_r",
    "oft_embedding",
    "peanut_b",
    "shadow_up",
    "zero_conv",
    "zero_module",
    "controlnet",
    "_to_ctrl",
    "ctrl_to_",
    "control_to_",
    ".input_block.",
    "input_hint_block",
    "proj_out",
    "adaln",
    "modulation",
    "final_layer",
    "final_linear",
    "sampling_offsets",
    "attention_weights",
    "bbox",
    "class_",
    "classifier",
    "gate_preact",
    "proj_up_gate",
    "gateway.gate",
    "router.gate",
    ".head.",
    "_head.",
    "heads.",
    ".score.",
    "layer_scale",
    "rel_pos",
];

/// The ends of the names of embeddings of tokens. They are zero neither before nor after a training.
const TOKENS: [&str; 9] = [
    ".embed_tokens.weight",
    ".word_embeddings.weight",
    ".tok_embeddings.weight",
    ".embed_in.weight",
    ".embed_out.weight",
    ".wte.weight",
    ".token_embd.weight",
    ".lm_head.weight",
    ".shared.weight",
];

/// Words in the names of matrices with rows of zeros: tokens that never occur, entries of a codebook that are not used, the
/// first factor of a padded adapter, and kernels that sample, whose channels are independent.
const ZERO_ROWS: [&str; 17] = [
    "wpe",
    "token",
    "vocab",
    ".output.weight",
    "output_layer",
    "codebook",
    "lora_a",
    "lora_down",
    "lora.down",
    "upscore",
    "upsampl",
    "bilinear",
    "deconv",
    "transpose",
    "resampl",
    "blur",
    "filter",
];

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueRole {
    /// A scale of a quantized weight.
    Scale,
    /// A matrix of a layer, whose values are neither all equal nor zero for 1,024 values.
    Layer,
    /// A matrix whose rows may be zero.
    Rows,
    /// A learned parameter that may be zero.
    Parameter,
    /// A buffer that may be infinite.
    Bound,
    /// A tensor with an unknown name.
    Unknown,
}

impl ValueRole {
    /// Returns the role of a tensor.
    pub(super) fn new(name: &str, shape: &[u64]) -> Self {
        // Words may begin with a dot.
        let name = &*format!(".{}", name.to_ascii_lowercase());
        let last = name.rsplit(['.', '/']).next().unwrap_or(name);
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let has_part = |parts: &[&str]| last.split('_').any(|part| parts.contains(&part));
        if ends_in(last, &SCALES) {
            return Self::Scale;
        }
        if ends_in(last, &WEIGHTS) {
            let is_tokens = TOKENS.iter().any(|end| name.ends_with(end));
            return match () {
                () if is_tokens => Self::Rows,
                () if has(&ZERO_AT_START) => Self::Parameter,
                () if has(&ZERO_ROWS) => Self::Rows,
                () => Self::Layer,
            };
        }
        // The mask of an attention layer in GPT-2 is a square `bias`.
        let is_square = matches!(shape, [.., rows, columns] if rows == columns && *rows > 1);
        let is_score = SCORE_BIASES.iter().any(|end| last.ends_with(end));
        match () {
            () if last == "bias" && is_square || is_score => Self::Bound,
            () if has_part(&PARAMETER_PARTS) => Self::Parameter,
            () if has_part(&BOUNDS) => Self::Bound,
            () if ends_in(last, &PARAMETERS) => Self::Parameter,
            () => Self::Unknown,
        }
    }

    /// Returns whether a matrix of this role is corrupt if all of its values are equal.
    pub(super) fn varies(self) -> bool {
        matches!(self, Self::Layer | Self::Rows)
    }
}

/// Returns whether the writers of a scale choose its sign. `AutoRound` writes the layouts of `compressed-tensors`, too
/// (`export_to_llmcompressor`); there, only the scales of integers have a sign.
pub(super) fn is_signed_scale(name: &str, has_integer_weights: bool) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or(&name);
    ends_in(last, &SIGNED_SCALES) || has_integer_weights && last == "weight_scale"
}

/// Returns whether a tensor has the name of a scale or of a router. Few of their values concern a large part of a model.
pub(super) fn is_influential(name: &str, shape: &[u64]) -> bool {
    /// A router has an output per expert.
    const MAX_EXPERTS: u64 = 1_024;
    const ROUTERS: [&str; 6] = ["gate", "router", "moe_gate", "moe_router", "wg", "ffn_gate_inp"];

    let name = name.to_ascii_lowercase();
    let mut segments = name.rsplit('.');
    let last = segments.next().unwrap_or(&name);
    let is_router = last == "weight"
        && segments.next().is_some_and(|module| ROUTERS.contains(&module))
        && shape.iter().min().is_some_and(|outputs| *outputs <= MAX_EXPERTS);
    ends_in(last, &SCALES) || is_router
}

/// Returns whether a segment is one of some words, or ends with one that begins with `_`.
fn ends_in(segment: &str, words: &[&str]) -> bool {
    words.iter().any(|word| match word.strip_prefix('_') {
        Some(end) => segment.strip_suffix(end).is_some_and(|rest| rest.ends_with('_')),
        None => segment == *word,
    })
}
