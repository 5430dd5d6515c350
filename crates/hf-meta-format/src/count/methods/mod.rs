//! Quantization methods: how each packs the weights of a module into components.
//!
//! A method is a [`Method`] constant: the names of its components, and a solver that derives the number of weights from
//! the shapes of two or more of them. A file contains one method, or a family with a common layout. To add a method,
//! write its constant and add it to [`METHODS`].

mod awq;
mod bitsandbytes;
mod byte_weights;
mod codebooks;
mod comfy;
mod compressed_tensors;
mod exllama;
mod fp4;
mod gptq;
mod hqq;
mod mlx;
mod nunchaku;
mod plain_integers;
mod tensor_subclasses;
mod variable_size;

use self::prelude::{ColumnOrder, Rotation, Scale, Shape, State, ZeroPoint};
use super::method::{AuxiliaryNames, Method};

/// Everything that the file of a method needs.
mod prelude {
    pub(super) use crate::count::AuxiliaryTensor::{
        ColumnOrder, LookupTable, LowRank, Rotation, Scale, Shape, State, ZeroPoint,
    };
    pub(super) use crate::count::Packing;
    pub(super) use crate::count::UnresolvedReason::{
        self, AmbiguousScheme, ConflictingComponents, ImplausibleSize, MissingComponents,
    };
    pub(super) use crate::count::config::{Hints, Side};
    pub(super) use crate::count::method::{Method, PLAIN, Solution, Solved, padded_if};
    pub(super) use crate::count::module::{Matrix, Module, container_bits, divide, product};
    pub(super) use crate::formats::{Dtype, TensorInfo};
}

/// All methods. The methods that the configuration names are tried first, then all others in this order.
pub(super) const METHODS: &[Method] = &[
    gptq::GPTQ,
    awq::AWQ,
    gptq::MARLIN,
    compressed_tensors::PACKED,
    fp4::SCALED_BYTES,
    fp4::BLOCKS,
    mlx::MLX,
    bitsandbytes::BITSANDBYTES,
    comfy::COMFY,
    byte_weights::BYTES,
    plain_integers::MODELOPT,
    plain_integers::QUARK,
    plain_integers::BITNET,
    codebooks::AQLM,
    exllama::EXLLAMA,
    hqq::HQQ,
    tensor_subclasses::QUANTO,
    codebooks::VPTQ,
    nunchaku::SVDQUANT,
    variable_size::BITMASK,
    variable_size::DFLOAT11,
    gptq::BITBLAS,
    gptq::GGUF,
    fp4::FP_QUANT,
    plain_integers::GEMMA,
    codebooks::HIGGS,
    variable_size::SPQR,
    codebooks::QUIP,
    tensor_subclasses::TORCHAO,
    plain_integers::SDNQ,
    hqq::SINQ,
];

/// The tensors that are auxiliary in every quantized model, even in modules without packed weights.
pub(super) const ALWAYS_AUXILIARY: AuxiliaryNames = &[
    (Scale, &["weight_scale", "weight_scale_2", "weight_scale_inv", "weight_scale_second"]),
    (Scale, &["weight_global_scale", "deq_scale", "qscale_weight"]),
    (Scale, &["input_scale", "input_scale_ub", "input_global_scale", "*_input_scale"]),
    (Scale, &["input_activation_scale", "output_activation_scale", "pre_quant_scale"]),
    (Scale, &["*_activation_scale"]),
    (Scale, &["output_scale", "act_scale", "qscale_act", "scale_input"]),
    (Scale, &["q_scale", "k_scale", "v_scale", "kv_scale", "k_cache_scale", "v_cache_scale"]),
    // ScaledActivation of AutoAWQ, and the scales of TensorRT-LLM.
    (Scale, &["act.scales", "activation_scaling_factor", "kv_cache_scaling_factor"]),
    (Scale, &["prequant_scaling_factor"]),
    (ZeroPoint, &["weight_zero_point", "weight_offset", "weight_offset_second"]),
    (ZeroPoint, &["input_zero_point", "input_offset", "quant_bias", "scale_bias"]),
    (Shape, &["weight_shape"]),
    (ColumnOrder, &["weight_g_idx"]),
    (State, &["scaled_fp8"]),
    // The transforms of SpinQuant and QuIP in compressed-tensors: a name of the recipe, and the place of the transform.
    (Rotation, &["R1_input.weight", "R2_output.weight", "R3_q_attn.weight", "R3_k_cache.weight"]),
    (Rotation, &["R4_input.weight", "R4_output.weight", "v_input.weight", "v_output.weight"]),
    (Rotation, &["u_input.weight", "u_output.weight"]),
    // FlatQuant in ModelSlim.
    (Rotation, &["left_trans", "right_trans"]),
    (Scale, &["clip_ratio"]),
];

/// The tensors that are auxiliary in every model, because only quantizers store them. They also occur next to weights
/// that are not packed: modelopt and Transformer Engine simulate low precision. The quantizers of modelopt have many
/// names, such as `gate_up_proj_input_quantizer`. The quantizers of one linear layer are parts of its module.
pub(super) const QUANTIZER_STATE: AuxiliaryNames = &[
    (Scale, &["weight_quantizer._amax", "input_quantizer._amax", "output_quantizer._amax"]),
    (Scale, &["weight_quantizer.0._amax", "weight_quantizer.1._amax"]),
    (Scale, &["weight_quantizer._global_amax", "input_quantizer._pre_quant_scale"]),
    (Scale, &["_amax", "_amax_pre", "_amax_post", "_global_amax"]),
    (Scale, &["_pre_quant_scale", "_double_scale", "_scale_zeros"]),
    (Scale, &["weight_quantizer._scale", "weight_quantizer.0._scale"]),
    (ZeroPoint, &["_bias_value"]),
    (State, &["_extra_state", "comfy_quant"]),
    // Delayed scaling of float8 training in PyTorch.
    (State, &["fp8_amax_history_input", "fp8_amax_history_weight"]),
    (State, &["fp8_amax_input", "fp8_amax_weight", "fp8_scale_input", "fp8_scale_weight"]),
];

/// The values of `quant_method` that select an option of vLLM 0.33 or `SGLang` 0.5.23, and no layout.
const ENGINE_OPTIONS: [&str; 9] = [
    "experts_int8",
    "fp8_per_block",
    "fp8_per_channel",
    "fp8_per_tensor",
    "humming",
    "int8_per_channel_weight_only",
    "nvfp4_online",
    "nvfp4_per_token",
    "online",
];

/// Returns whether a method or an option with this lowercase name exists.
pub(super) fn is_known(name: &str) -> bool {
    ENGINE_OPTIONS.contains(&name) || METHODS.iter().any(|method| method.names.contains(&name))
}
