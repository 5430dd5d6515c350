//! The tensors that make up a quantized module: their names and roles.

use super::AuxiliaryTensor;

/// A name that quantizers give to a tensor of a module.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Component {
    /// The position among all components, which identifies and orders them.
    pub(super) index: u16,
    /// The last segments of the tensor name, or a suffix of the last segment. Empty if the tensor has the name of the
    /// module.
    pub(super) name: &'static str,
    pub(super) is_suffix: bool,
    pub(super) role: Role,
    /// True if a tensor with this name is a reason to request `config.json`.
    pub(super) needs_config: bool,
}

/// The role of a component in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The weights, with several in one element.
    Weights,
    /// A tensor that is needed to unpack the weights.
    Auxiliary(AuxiliaryTensor),
    /// A tensor that is auxiliary in every quantized model, even in modules without packed weights.
    AlwaysAuxiliary(AuxiliaryTensor),
}

impl Component {
    /// Returns whether the tensor has the bare name of the module.
    pub(super) fn is_bare(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns whether unquantized models use the name for weights: `weight`, or the bare module name.
    pub(super) fn is_plain(&self) -> bool {
        self.role == Role::Weights && !self.needs_config
    }

    /// Returns the module of a tensor, or `None` if the tensor has a different name.
    pub(super) fn module_of<'a>(&self, tensor: &'a str) -> Option<&'a str> {
        let module = tensor.strip_suffix(self.name)?;
        if self.is_suffix {
            (!module.is_empty() && !module.ends_with('.')).then_some(module)
        } else if module.is_empty() {
            Some(module)
        } else {
            module.strip_suffix('.')
        }
    }

    /// Writes the name of the tensor in a module. The inverse of [`module_of`](Self::module_of).
    pub(super) fn write_tensor_name(&self, module: &str, name: &mut String) {
        name.clear();
        name.push_str(module);
        if !(module.is_empty() || self.is_suffix || self.is_bare()) {
            name.push('.');
        }
        name.push_str(self.name);
    }
}
