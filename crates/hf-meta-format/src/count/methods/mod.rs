//! Quantization methods: how each packs the weights of a module into components.
//!
//! A method is a [`Method`] constant: the names of its components, and a solver that derives the number of weights from
//! the shapes of two or more of them. A file contains one method, or a family with a common layout. To add a method,
//! write its constant and add it to [`METHODS`].

mod awq;
mod bitsandbytes;
mod byte_weights;
mod codebooks;
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

use self::prelude::{ColumnOrder, Scale, Shape, State, ZeroPoint};
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
    pub(super) use crate::count::config::Hints;
    pub(super) use crate::count::method::{Method, PLAIN, Solution, Solved, padded_if};
    pub(super) use crate::count::module::{Matrix, Module, divide, product};
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
    (Scale, &["output_scale", "act_scale", "qscale_act", "scale_input"]),
    (Scale, &["q_scale", "k_scale", "v_scale", "kv_scale"]),
    (ZeroPoint, &["weight_zero_point", "weight_offset", "weight_offset_second"]),
    (ZeroPoint, &["input_zero_point", "input_offset", "quant_bias", "scale_bias"]),
    (Shape, &["weight_shape"]),
    (ColumnOrder, &["weight_g_idx"]),
    (State, &["scaled_fp8"]),
];

/// Returns whether a method with this lowercase name exists.
pub(super) fn is_known(name: &str) -> bool {
    METHODS.iter().any(|method| method.names.contains(&name))
}
