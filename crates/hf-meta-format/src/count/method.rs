//! The definition of a quantization method, and the result of its solver.

use super::config::Hints;
use super::module::{Component, Module};
use super::{AuxiliaryTensor, Packing, UnresolvedReason};

/// A quantization method. After an initial `*`, the name of a component is a suffix of the last segment of a tensor
/// name, such as `*_packed` of `experts.up_proj_packed`.
pub(super) struct Method {
    /// The values of `quant_method` that select this method.
    pub(super) names: &'static [&'static str],
    /// The names of the components that may contain the weights.
    pub(super) weights: &'static [&'static str],
    /// The auxiliary tensors with names that only quantizers use. The ones in
    /// [`ALWAYS_AUXILIARY`](super::methods::ALWAYS_AUXILIARY) need no entry.
    pub(super) auxiliary: AuxiliaryNames,
    /// The auxiliary tensors with names that unquantized models use, too, such as `scale`. They are no reason to
    /// request `config.json`.
    pub(super) ambiguous: AuxiliaryNames,
    /// Derives the number of weights of a module.
    pub(super) solve: fn(&Module<'_>, &Hints<'_>) -> Solution,
}

/// The names of auxiliary tensors, by kind.
pub(super) type AuxiliaryNames = &'static [(AuxiliaryTensor, &'static [&'static str])];

/// The names that unquantized models use for weights: the bare module name, and `weight`.
pub(super) const PLAIN: [&str; 2] = ["", "weight"];

impl Method {
    /// Returns whether the weights of a module may be in a component.
    pub(super) fn has_weights_in(&self, component: &Component) -> bool {
        self.weights.iter().any(|name| without_star(name) == component.name)
    }

    /// Returns whether a component is an auxiliary tensor of this method.
    pub(super) fn has_auxiliary(&self, component: &Component) -> bool {
        let mut names = [self.auxiliary, self.ambiguous].into_iter().flatten();
        let is_component = |name: &&str| without_star(name) == component.name;
        names.any(|(_, names)| names.iter().any(is_component))
    }
}

/// Returns the name of a component without the mark of a suffix.
pub(super) fn without_star(name: &str) -> &str {
    name.strip_prefix('*').unwrap_or(name)
}

/// The result of a solver: `Ok(None)` if the components do not belong to its method.
pub(super) type Solution = Result<Option<Solved>, UnresolvedReason>;

/// The logical size of a module's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solved {
    /// The component that contains the weights.
    pub(super) weights: &'static Component,
    /// The number of weights.
    pub(super) parameters: u64,
    pub(super) packing: Packing,
    /// True if the packer may have padded the weights by an unknown amount.
    pub(super) is_padded: bool,
}

impl Solved {
    /// Creates the solution for weights in the named component.
    pub(super) fn new(
        module: &Module<'_>,
        weights: &str,
        parameters: Option<u64>,
        packing: Packing,
    ) -> Solution {
        let Some((weights, _)) = module.find(weights) else { return Ok(None) };
        let parameters = parameters.ok_or(UnresolvedReason::ImplausibleSize)?;
        Ok(Some(Self { weights, parameters, packing, is_padded: false }))
    }

    /// Returns whether a byte contains at most 32 weights. No method packs more densely.
    pub(super) fn is_plausible(&self, module: &Module<'_>) -> bool {
        const MAX_WEIGHTS_PER_BYTE: u128 = 32;

        let bits = module.find(self.weights.name).and_then(|(_, tensor)| {
            Some(u128::from(tensor.elements()?) * u128::from(tensor.dtype.bits()?))
        });
        bits.is_some_and(|bits| u128::from(self.parameters) <= bits / 8 * MAX_WEIGHTS_PER_BYTE)
    }
}

/// Marks a solution as an upper bound if the weights may be padded by an unknown amount.
pub(super) fn padded_if(is_padded: bool, solution: Solution) -> Solution {
    solution.map(|solved| solved.map(|solved| Solved { is_padded, ..solved }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::name_index::split;
    use crate::formats::{Dtype, TensorInfo};

    /// The densest packing in use is AQLM, at a quarter of a bit per weight.
    #[test]
    fn a_byte_holds_at_most_32_weights() {
        let weight = split("m.weight").1;
        let cases = [(Dtype::U8, 3, 96), (Dtype::I32, 3, 4 * 96), (Dtype::F4, 2, 32)];
        for (dtype, elements, most) in cases {
            let tensors = [(weight, TensorInfo::new(dtype, vec![elements], (0, 0)))];
            let module = Module { name: "m", tensors: &tensors };
            let packing = Packing::without_bits("any", "any");
            let is_plausible = |parameters| {
                let solved = Solved::new(&module, "weight", Some(parameters), packing);
                solved.unwrap().unwrap().is_plausible(&module)
            };
            assert_eq!([most, most + 1].map(is_plausible), [true, false]);
        }
    }
}
