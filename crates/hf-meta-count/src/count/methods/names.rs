//! The names of components: those of all layouts, and the auxiliary tensors that occur next to any of them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::METHODS;
use super::layout::{Method, Need, PackedLayout};
use crate::count::AuxiliaryTensor::{self, ColumnOrder, Rotation, Scale, Shape, State, ZeroPoint};
use crate::count::module::{AuxiliaryNames, Component, PLAIN, PartName, Role};

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

/// The name of a component, its role, and its kind if it is auxiliary.
type NamedRole = (PartName, Role, Option<AuxiliaryTensor>);

/// Returns the names of all components. Of several roles of a name, the first one holds.
pub(in crate::count) fn all_names() -> impl Iterator<Item = NamedRole> {
    let always = listed(ALWAYS_AUXILIARY).map(|(name, kind)| (name, Role::AlwaysAuxiliary, kind));
    let state = listed(QUANTIZER_STATE).map(|(name, kind)| (name, Role::QuantizerState, kind));
    let names = METHODS.iter().flat_map(Method::names);
    always.chain(state).chain(names.map(|(name, kind)| (name, role(name, kind), kind)))
}

/// Returns the role of a name that only some methods use.
fn role(name: PartName, kind: Option<AuxiliaryTensor>) -> Role {
    match kind {
        None if PLAIN.contains(&name.text) => Role::PlainWeights,
        None => Role::PackedWeights,
        _ if name.is_ambiguous => Role::AmbiguousAuxiliary,
        _ => Role::Auxiliary,
    }
}

/// Returns all names in a table, with their kinds.
fn listed(table: AuxiliaryNames) -> impl Iterator<Item = (PartName, Option<AuxiliaryTensor>)> {
    table
        .iter()
        .flat_map(|(kind, names)| names.iter().map(|name| (PartName::parse(name), Some(*kind))))
}

impl Method {
    /// Returns the names of all components, with the kinds of those that are auxiliary.
    fn names(&self) -> impl Iterator<Item = (PartName, Option<AuxiliaryTensor>)> {
        let parts = self.layouts.iter().flat_map(PackedLayout::parts);
        let parts = parts.filter(|part| part.need != Need::Absent);
        let parts =
            parts.flat_map(|part| part.names.iter().map(|name| (PartName::parse(name), part.kind)));
        parts.chain(listed(self.others))
    }

    /// Returns whether a component belongs to this method.
    pub(in crate::count) fn has(&self, component: &Component) -> bool {
        self.names().any(|(name, _)| name.text == component.name)
    }

    /// Returns the end of the name of the weights, after their module.
    fn end_of_weights(&self) -> Option<String> {
        let name = PartName::parse(self.layouts.first()?.weights().names.first()?);
        Some(if name.is_suffix { name.text.to_owned() } else { format!(".{}", name.text) })
    }

    /// Returns the names of the components in which this method stores weights.
    fn packed_names(&self) -> impl Iterator<Item = &'static str> {
        let names = self.layouts.iter().flat_map(|layout| layout.weights().names);
        names.map(|name| PartName::parse(name).text)
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

/// Returns the end of the name of the weights that belong to a part, if a method with the part stores one of `weights`.
pub(crate) fn packed_with<'c>(
    part: &Component,
    mut weights: impl Iterator<Item = &'c Component>,
) -> Option<String> {
    let method =
        weights.find_map(|weights| methods_of(weights).iter().find(|method| method.has(part)))?;
    method.end_of_weights()
}

/// Returns the end of the name of the weights of the first method that has all of these parts.
pub(crate) fn packed_by(parts: &[&Component]) -> Option<String> {
    let mut methods = METHODS.iter();
    methods.find(|method| parts.iter().all(|part| method.has(part)))?.end_of_weights()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::tests::page;

    /// The page has a row for each method. The test prints the row that is missing.
    #[test]
    fn each_method_is_in_the_page() {
        let page = page("src/docs/quantization.md");
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).collect();
        let shown =
            |name: PartName| format!("`{}{}`", if name.is_suffix { "…" } else { "" }, name.text);
        let mut missing = Vec::new();
        for layout in METHODS.iter().flat_map(|method| method.layouts) {
            let names =
                |names: &'static [&'static str]| names.iter().map(|name| PartName::parse(name));
            let mut weights = names(layout.weights().names);
            let is_listed = weights.clone().all(|name| {
                // Several methods store their weights under this name, and the page names their scales.
                PLAIN.contains(&name.text)
                    || rows.iter().any(|row| row.contains(&format!("{}`", name.text)))
            });
            if !is_listed && let Some(weights) = weights.next() {
                let scales = layout.parts().iter().skip(1).filter(|part| part.need != Need::Absent);
                let scales = scales.filter_map(|part| names(part.names).next());
                let parts: Vec<_> = [weights].into_iter().chain(scales).map(shown).collect();
                missing.push(format!("| {} | {} |", layout.name, parts.join(", ")));
            }
        }
        missing.dedup();
        assert!(missing.is_empty(), "add to src/docs/quantization.md:\n{}", missing.join("\n"));
    }
}
