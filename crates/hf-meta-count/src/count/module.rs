//! Quantized modules: the tensors that belong together, their names and roles, and the view that solvers get.

use super::AuxiliaryTensor;
use hf_meta_format::formats::{Dtype, TensorInfo};

/// The names of components in the order of precedence, as [`PartName::parse`] reads them.
pub(super) type Names = &'static [&'static str];

/// A name in a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    /// The name without its marks.
    pub(super) text: &'static str,
    /// True for the end of the last segment of a tensor name, such as `*_packed` of `experts.up_proj_packed`.
    pub(super) is_suffix: bool,
    /// True if unquantized models use the name, too, such as `?scale`. The name alone then proves nothing, and does not
    /// cause a request for `config.json`.
    pub(super) is_ambiguous: bool,
}

impl PartName {
    /// Reads a name with its marks: `?` before an ambiguous name, then `*` before a suffix.
    pub(super) fn parse(declared: &'static str) -> Self {
        let unmarked = declared.strip_prefix('?');
        let text = unmarked.unwrap_or(declared);
        let suffix = text.strip_prefix('*');
        Self {
            text: suffix.unwrap_or(text),
            is_suffix: suffix.is_some(),
            is_ambiguous: unmarked.is_some(),
        }
    }
}

/// The names of auxiliary tensors, by kind.
pub(super) type AuxiliaryNames = &'static [(AuxiliaryTensor, Names)];

/// The names that unquantized models use for weights: `weight`, and the bare module name.
pub(super) const PLAIN: [&str; 2] = ["weight", ""];

/// A name that quantizers give to a tensor of a module.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Component {
    /// The position among all components, which identifies and orders them. It is compared first.
    pub(super) index: u16,
    /// The last segments of the tensor name, or a suffix of the last segment. Empty if the tensor has the name of the
    /// module.
    pub(crate) name: &'static str,
    pub(super) is_suffix: bool,
    pub(crate) role: Role,
    /// The kind of a tensor that contains no weights.
    pub(super) kind: Option<AuxiliaryTensor>,
}

/// The role of a component in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The weights, under a name that unquantized models use: `weight`, or the bare module name.
    PlainWeights,
    /// The weights, with several in one element.
    PackedWeights,
    /// A tensor that is needed to unpack the weights.
    Auxiliary,
    /// A tensor that is needed to unpack the weights, under a name that unquantized models use, too.
    AmbiguousAuxiliary,
    /// A tensor that is auxiliary in every quantized model, even in modules without packed weights.
    AlwaysAuxiliary,
    /// A tensor that only quantizers store, even next to weights that are not packed.
    QuantizerState,
}

impl Component {
    /// Returns whether the tensor has the bare name of the module.
    pub(crate) fn is_bare(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns whether unquantized models use the name for weights: `weight`, or the bare module name.
    pub(crate) fn is_plain(&self) -> bool {
        self.role == Role::PlainWeights
    }

    /// Returns whether the tensor contains weights, packed or not.
    pub(crate) fn is_weights(&self) -> bool {
        self.kind.is_none()
    }

    /// Returns whether quantizers store the tensor for each weight, and not for inputs, outputs and caches.
    pub(crate) fn is_stored_for_each_weight(&self) -> bool {
        /// Words in the names of tensors that belong to the values that flow through a module.
        const OF_VALUES: [&str; 8] =
            ["input", "output", "act_", "act.", "activation", "kv_", "cache", "clip_ratio"];
        const OF_ATTENTION: [&str; 3] = ["q_scale", "k_scale", "v_scale"];

        let is_of_values = OF_VALUES.iter().any(|word| self.name.contains(word))
            || OF_ATTENTION.contains(&self.name);
        !self.is_weights() && self.role != Role::QuantizerState && !is_of_values
    }

    /// Returns whether the tensor is the state of a quantizer of weights, as in modelopt.
    pub(crate) fn is_state_of_weight(&self) -> bool {
        self.role == Role::QuantizerState && self.name.starts_with("weight_quantizer.")
    }

    /// Returns whether all methods that use the name store the tensor next to weights.
    pub(crate) fn is_part_of_weights(&self) -> bool {
        self.role == Role::Auxiliary
            || self.role == Role::AlwaysAuxiliary && self.name.contains("weight")
            || self.is_state_of_weight()
    }

    /// Returns whether a tensor with this name is a reason to request `config.json`.
    pub(super) fn needs_config(&self) -> bool {
        matches!(self.role, Role::PackedWeights | Role::Auxiliary | Role::AlwaysAuxiliary)
    }

    /// Returns whether the tensor is auxiliary in every quantized model.
    pub(super) fn is_always_auxiliary(&self) -> bool {
        matches!(self.role, Role::AlwaysAuxiliary | Role::QuantizerState)
    }

    /// Returns the module of a tensor, or `None` if the tensor has a different name.
    pub(super) fn module_of<'a>(&self, tensor: &'a str) -> Option<&'a str> {
        let module = tensor.strip_suffix(self.name)?;
        if self.is_suffix {
            (!module.is_empty() && !module.ends_with('.')).then_some(module)
        } else if module.is_empty() || self.is_bare() {
            Some(module)
        } else {
            module.strip_suffix('.')
        }
    }

    /// Returns the end of the name of the tensor, after its module.
    pub(crate) fn name_in_module(&self) -> String {
        let dot = if self.is_suffix || self.is_bare() { "" } else { "." };
        format!("{dot}{}", self.name)
    }

    /// Writes the name of the tensor in a module. The inverse of [`module_of`](Self::module_of).
    pub(crate) fn write_tensor_name(&self, module: &str, name: &mut String) {
        name.clear();
        name.push_str(module);
        if !(module.is_empty() || self.is_suffix || self.is_bare()) {
            name.push('.');
        }
        name.push_str(self.name);
    }
}

/// A module and its tensors, collected from all files.
#[derive(Clone, Copy)]
pub(crate) struct Module<'a> {
    /// The name of the module, without the name of any component.
    pub(crate) name: &'a str,
    pub(crate) tensors: &'a [ComponentTensor],
}

/// A tensor of a module.
pub(crate) type ComponentTensor = (&'static Component, TensorInfo);

impl<'a> Module<'a> {
    /// Returns the first of the named components that is stored. A tensor without elements counts as missing.
    pub(super) fn first(&self, names: Names) -> Option<&'a ComponentTensor> {
        let mut stored = names.iter().filter_map(|name| self.find(PartName::parse(name).text));
        stored.find(|(_, tensor)| tensor.elements() != Some(0))
    }

    /// Returns the component with a name, and its tensor.
    pub(super) fn find(&self, name: &str) -> Option<&'a ComponentTensor> {
        self.tensors.iter().find(|(component, _)| component.name == name)
    }
}

/// Divides; `None` if there is a remainder, or the divisor is 0.
pub(super) fn divide(number: u64, divisor: u64) -> Option<u64> {
    (divisor > 0 && number.is_multiple_of(divisor)).then(|| number / divisor)
}

/// Returns the width in bits of a dtype that packs smaller values; `None` for any other dtype.
pub(crate) fn container_bits(dtype: &Dtype) -> Option<u64> {
    use Dtype::{I8, I16, I32, I64, U8, U16, U32, U64};

    let is_container = matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64);
    if is_container { dtype.bits() } else { None }
}

/// Returns whether a tensor may contain packed weights, if only its dtype speaks for it. Writers that use words of 64 bits
/// store scales, too.
pub(super) fn is_packed_integer(dtype: &Dtype) -> bool {
    container_bits(dtype).is_some_and(|bits| bits < 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divide_rejects_remainders() {
        let cases = [(12, 4, Some(3)), (13, 4, None), (0, 4, Some(0)), (4, 0, None), (0, 0, None)];
        for (number, divisor, quotient) in cases {
            assert_eq!(divide(number, divisor), quotient, "{number} / {divisor}");
        }
    }
}
