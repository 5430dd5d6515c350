//! Quantized modules: the tensors that belong together, their names and roles, and the view that solvers get.

use std::cmp::Ordering;

use super::AuxiliaryTensor;
use crate::formats::{Dtype, TensorInfo};

/// A name that quantizers give to a tensor of a module.
#[derive(Debug)]
pub(crate) struct Component {
    /// The position among all components, which identifies and orders them.
    pub(super) index: u16,
    /// The last segments of the tensor name, or a suffix of the last segment. Empty if the tensor has the name of the
    /// module.
    pub(crate) name: &'static str,
    pub(super) is_suffix: bool,
    pub(crate) role: Role,
    /// True if a tensor with this name is a reason to request `config.json`.
    pub(super) needs_config: bool,
    /// True if a [buffer](super::Buffer) may have this name.
    pub(super) may_be_buffer: bool,
}

/// The role of a component in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The weights, with several in one element.
    Weights,
    /// A tensor that is needed to unpack the weights.
    Auxiliary(AuxiliaryTensor),
    /// A tensor that is auxiliary in every quantized model, even in modules without packed weights.
    AlwaysAuxiliary(AuxiliaryTensor),
}

impl PartialEq for Component {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Component {}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Component {
    fn cmp(&self, other: &Self) -> Ordering {
        self.index.cmp(&other.index)
    }
}

impl Component {
    /// Returns whether the tensor has the bare name of the module.
    pub(crate) fn is_bare(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns whether unquantized models use the name for weights: `weight`, or the bare module name.
    pub(crate) fn is_plain(&self) -> bool {
        self.role == Role::Weights && !self.needs_config
    }

    /// Returns whether the tensor contains weights, packed or not.
    pub(crate) fn is_weights(&self) -> bool {
        self.role == Role::Weights
    }

    /// Returns whether only quantizers store a tensor with this name, even next to weights that are not packed.
    pub(super) fn is_quantizer_state(&self) -> bool {
        matches!(self.role, Role::AlwaysAuxiliary(_)) && !self.needs_config
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

/// A module and its tensors, collected from all files.
#[derive(Clone, Copy)]
pub(super) struct Module<'a> {
    /// The name of the module, without the name of any component.
    pub(super) name: &'a str,
    pub(super) tensors: &'a [ComponentTensor],
}

/// A tensor of a module.
pub(super) type ComponentTensor = (&'static Component, TensorInfo);

impl<'a> Module<'a> {
    /// Returns the component with a name, and its tensor.
    pub(super) fn find(&self, name: &str) -> Option<&'a ComponentTensor> {
        self.tensors.iter().find(|(component, _)| component.name == name)
    }

    /// Returns the tensor of a component.
    pub(super) fn get(&self, name: &str) -> Option<&'a TensorInfo> {
        self.find(name).map(|(_, tensor)| tensor)
    }

    /// Returns the number of elements of a component.
    pub(super) fn elements(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(TensorInfo::elements)
    }

    /// Returns whether the module has a component.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the first of the named components that exists.
    pub(super) fn first(&self, names: &[&str]) -> Option<&'a TensorInfo> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns a component as a matrix.
    pub(super) fn matrix(&self, name: &str) -> Option<Matrix<'a>> {
        Matrix::new(self.get(name)?)
    }

    /// Returns two components as matrices.
    pub(super) fn matrices(&self, names: [&str; 2]) -> Option<[Matrix<'a>; 2]> {
        Some([self.matrix(names[0])?, self.matrix(names[1])?])
    }

    /// Returns the tensor with a name that unquantized models use for weights, and the name of its component.
    pub(super) fn plain_weight(&self) -> Option<(&'static str, &'a TensorInfo)> {
        let (component, tensor) = self.tensors.iter().find(|(found, _)| found.is_plain())?;
        Some((component.name, tensor))
    }

    /// Returns the plain weight as a matrix.
    pub(super) fn plain_matrix(&self) -> Option<(&'static str, Matrix<'a>)> {
        let (name, tensor) = self.plain_weight()?;
        Some((name, Matrix::new(tensor)?))
    }
}

/// A tensor with two dimensions, or with more as a stack of matrices.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    /// The product of all dimensions before the last two.
    pub(super) stacked: u64,
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) dtype: &'a Dtype,
}

impl<'a> Matrix<'a> {
    /// Creates a matrix; `None` if the tensor has fewer than two dimensions or a dimension of 0.
    pub(super) fn new(tensor: &'a TensorInfo) -> Option<Self> {
        let [stacked @ .., rows, columns] = &tensor.shape[..] else { return None };
        let stacked = product(stacked)?;
        let is_empty = stacked == 0 || *rows == 0 || *columns == 0;
        let matrix = Self { stacked, rows: *rows, columns: *columns, dtype: &tensor.dtype };
        (!is_empty).then_some(matrix)
    }

    /// Returns the width in bits of an element that packs smaller values.
    pub(super) fn container(&self) -> Option<u64> {
        container_bits(self.dtype)
    }
}

/// Returns a product; `None` if it does not fit in 64 bits.
pub(super) fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1_u64, |product, &factor| product.checked_mul(factor))
}

/// Divides; `None` if there is a remainder, or the divisor is 0.
pub(super) fn divide(number: u64, divisor: u64) -> Option<u64> {
    (divisor > 0 && number.is_multiple_of(divisor)).then(|| number / divisor)
}

/// Returns the width in bits of a dtype that packs smaller values; `None` for any other dtype.
pub(crate) fn container_bits(dtype: &Dtype) -> Option<u64> {
    let is_container = matches!(
        dtype,
        Dtype::U8
            | Dtype::I8
            | Dtype::U16
            | Dtype::I16
            | Dtype::U32
            | Dtype::I32
            | Dtype::U64
            | Dtype::I64
    );
    if is_container { dtype.bits() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_a_stack_of_matrices() {
        let cases: [(&[u64], Option<[u64; 3]>); 7] = [
            (&[4, 5], Some([1, 4, 5])),
            (&[2, 3, 4, 5], Some([6, 4, 5])),
            (&[5], None),
            (&[0, 5], None),
            (&[4, 0], None),
            (&[0, 4, 5], None),
            (&[1 << 63, 2, 4, 5], None),
        ];
        for (shape, expected) in cases {
            let tensor = TensorInfo::new(Dtype::I32, shape.to_vec(), (0, 0));
            let found = Matrix::new(&tensor);
            let found = found.map(|Matrix { stacked, rows, columns, .. }| [stacked, rows, columns]);
            assert_eq!(found, expected, "{shape:?}");
        }
    }

    #[test]
    fn divide_rejects_remainders() {
        let cases = [(12, 4, Some(3)), (13, 4, None), (0, 4, Some(0)), (4, 0, None), (0, 0, None)];
        for (number, divisor, quotient) in cases {
            assert_eq!(divide(number, divisor), quotient, "{number} / {divisor}");
        }
    }
}
