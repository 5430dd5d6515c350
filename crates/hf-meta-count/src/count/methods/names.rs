//! The names of components: those of all layouts, and the auxiliary tensors that occur next to any of them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::METHODS;
use super::layout::{Method, Need, PackedLayout};
use crate::count::AuxiliaryTensor::{self, ColumnOrder, Rotation, Scale, Shape, State, ZeroPoint};
use crate::count::module::{AuxiliaryNames, Component, PLAIN, Role, without_star};

/// The tensors that are auxiliary in every quantized model, even in modules without packed weights.
const ALWAYS_AUXILIARY: AuxiliaryNames = &[
    (Scale, &["weight_scale", "weight_scale_2", "weight_scale_inv", "weight_scale_second"]),
    // vLLM stores the scales of `experts.w13_weight` under this name.
    (Scale, &["*_weight_scale", "*_weight_scale_2"]),
    (Scale, &["weight_global_scale", "deq_scale", "qscale_weight", "scale_bf16_to_fp8"]),
    (Scale, &["input_scale", "input_scale_ub", "input_global_scale", "*_input_scale"]),
    (Scale, &["input_activation_scale", "output_activation_scale", "pre_quant_scale"]),
    (Scale, &["*_activation_scale", "input_absmax"]),
    (Scale, &["output_scale", "act_scale", "qscale_act", "scale_input"]),
    (Scale, &["q_scale", "k_scale", "v_scale", "kv_scale", "k_cache_scale", "v_cache_scale"]),
    (Scale, &["prob_scale"]),
    // ScaledActivation of AutoAWQ, and the scales of TensorRT-LLM.
    (Scale, &["act.scales", "activation_scaling_factor", "kv_cache_scaling_factor"]),
    (Scale, &["prequant_scaling_factor"]),
    (ZeroPoint, &["weight_zero_point", "weight_offset", "weight_offset_second"]),
    (ZeroPoint, &["input_zero_point", "input_offset", "quant_bias", "scale_bias"]),
    (ZeroPoint, &["k_zero_point", "v_zero_point"]),
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
const QUANTIZER_STATE: AuxiliaryNames = &[
    (Scale, &["weight_quantizer._amax", "input_quantizer._amax", "output_quantizer._amax"]),
    (Scale, &["weight_quantizer.0._amax", "weight_quantizer.1._amax"]),
    (Scale, &["weight_quantizer._global_amax", "input_quantizer._pre_quant_scale"]),
    (Scale, &["_amax", "_amax_pre", "_amax_post", "_global_amax"]),
    (Scale, &["_pre_quant_scale", "_double_scale", "_scale_zeros"]),
    (Scale, &["weight_quantizer._scale", "weight_quantizer.0._scale"]),
    (ZeroPoint, &["_bias_value"]),
    (State, &["_extra_state", "comfy_quant"]),
    // The tokenizers that `ComfyUI` stores with text encoders.
    (State, &["spiece_model", "tekken_model", "tokenizer_json"]),
    // Delayed scaling of float8 training in PyTorch.
    (State, &["fp8_amax_history_input", "fp8_amax_history_weight"]),
    (State, &["fp8_amax_input", "fp8_amax_weight", "fp8_scale_input", "fp8_scale_weight"]),
];

/// The names of auxiliary tensors that unquantized models also use, separated by spaces. `config.json` is not requested for
/// these names.
const AMBIGUOUS: &str = "weight.scale theta pairs channel_scales weight_format scale scale_weight *_scale *_scale_inv perm SU \
    SV Wscale codebook_id tables tables2 *_zero_point meta *_shape *_weight_shape *_g_idx su sv mcg mul1 *_global_scale global_scale *_scale_2 \
    weight_quantizer.svdquant_lora_a weight_quantizer.svdquant_lora_b act_global_scale \
    forward_hadamard_matrix backward_hadamard_matrix lora_A.weight lora_B.weight s s_channel s_group \
    workspace zero shape axis nbits group_size channel_wise packing compute_dtype unpack_view_dtype \
    view_as_float stores_quant_config offload_meta optimize round_zero quant_scale quant_zero biases scale_2 \
    zero_point_scale scale_zero_point zero_point zero_point_2 row_offsets luts \
    output_positions gaps split_positions";

/// The name of a component, its role, and its kind if it is auxiliary.
type NamedRole = (&'static str, Role, Option<AuxiliaryTensor>);

/// Returns the names of all components. Of several roles of a name, the first one holds.
pub(in crate::count) fn all_names() -> impl Iterator<Item = NamedRole> {
    let always = listed(ALWAYS_AUXILIARY).map(|(name, kind)| (name, Role::AlwaysAuxiliary, kind));
    let state = listed(QUANTIZER_STATE).map(|(name, kind)| (name, Role::QuantizerState, kind));
    let names = METHODS.iter().flat_map(Method::names);
    always.chain(state).chain(names.map(|(name, kind)| (name, role(name, kind), kind)))
}

/// Returns the role of a name that only some methods use.
fn role(name: &str, kind: Option<AuxiliaryTensor>) -> Role {
    match kind {
        None if PLAIN.contains(&name) => Role::PlainWeights,
        None => Role::PackedWeights,
        _ if AMBIGUOUS.split_ascii_whitespace().any(|other| other == name) => {
            Role::AmbiguousAuxiliary
        }
        _ => Role::Auxiliary,
    }
}

/// Returns all names in a table, with their kinds.
fn listed(table: AuxiliaryNames) -> impl Iterator<Item = (&'static str, Option<AuxiliaryTensor>)> {
    table.iter().flat_map(|(kind, names)| names.iter().map(|name| (*name, Some(*kind))))
}

impl Method {
    /// Returns the names of all components, with the kinds of those that are auxiliary.
    fn names(&self) -> impl Iterator<Item = (&'static str, Option<AuxiliaryTensor>)> {
        let parts = self.layouts.iter().flat_map(PackedLayout::parts);
        let parts = parts.filter(|part| part.need != Need::Absent);
        let parts = parts.flat_map(|part| part.names.iter().map(|name| (*name, part.kind)));
        parts.chain(listed(self.others))
    }

    /// Returns whether a component belongs to this method.
    pub(in crate::count) fn has(&self, component: &Component) -> bool {
        self.names().any(|(name, _)| without_star(name) == component.name)
    }

    /// Returns the names of the components in which this method stores weights.
    fn packed_names(&self) -> impl Iterator<Item = &'static str> {
        let names = self.layouts.iter().flat_map(|layout| layout.weights().names);
        names.map(|name| without_star(name))
    }
}

/// A map from the name of a component to the methods that store weights in it.
static METHODS_OF: LazyLock<HashMap<&str, Vec<&Method>>> = LazyLock::new(|| {
    let packing = |name| {
        let methods = METHODS.iter().filter(|method| method.packed_names().any(|own| own == name));
        (name, methods.collect())
    };
    METHODS.iter().flat_map(Method::packed_names).map(packing).collect()
});

/// Returns the methods whose weights may be in a component.
pub(in crate::count) fn methods_of(component: &Component) -> &'static [&'static Method] {
    METHODS_OF.get(component.name).map_or(&[], Vec::as_slice)
}
