//! The view of a module that solvers get.

use super::Packing;
pub(super) use super::UnresolvedReason;
use super::part::PartId;
use crate::formats::{Dtype, TensorInfo};

/// A module and its parts, collected from all files.
#[derive(Clone, Copy)]
pub(super) struct Module<'a> {
    /// The name of the module, without any part name.
    pub(super) name: &'a str,
    pub(super) parts: &'a [(PartId, TensorInfo)],
}

impl<'a> Module<'a> {
    /// Returns the part with a name.
    pub(super) fn get(&self, name: &str) -> Option<&'a TensorInfo> {
        self.parts.iter().find(|(part, _)| part.name() == name).map(|(_, tensor)| tensor)
    }

    /// Returns whether the module has a part.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the first of the named parts that exists.
    pub(super) fn first(&self, names: &[&str]) -> Option<&'a TensorInfo> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns a part as a matrix.
    pub(super) fn matrix(&self, name: &str) -> Option<Matrix<'a>> {
        Matrix::new(self.get(name)?)
    }

    /// Returns the part with the name that unquantized models use for weights: `weight`, or the bare module name.
    pub(super) fn plain_weight(&self) -> Option<(PartId, &'a TensorInfo)> {
        let (part, tensor) = self.parts.iter().find(|(part, _)| part.is_plain())?;
        Some((*part, tensor))
    }

    /// Returns the plain weight as a matrix.
    pub(super) fn plain_matrix(&self) -> Option<(PartId, Matrix<'a>)> {
        let (part, tensor) = self.plain_weight()?;
        Some((part, Matrix::new(tensor)?))
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

/// The result of a solver: `Ok(None)` if the parts do not belong to its method.
pub(super) type Solution = Result<Option<Solved>, UnresolvedReason>;

/// The logical size of a module's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solved {
    /// The part that contains the weights.
    pub(super) weights: PartId,
    /// The number of weights.
    pub(super) parameters: u64,
    pub(super) packing: Packing,
    /// True if the packer may have padded the weights by an unknown amount.
    pub(super) is_padded: bool,
}

impl Solved {
    /// Creates the solution for weights in the named part.
    pub(super) fn new(
        module: &Module<'_>,
        weights: &str,
        parameters: Option<u64>,
        packing: Packing,
    ) -> Solution {
        let Some((weights, _)) = module.parts.iter().find(|(part, _)| part.name() == weights)
        else {
            return Ok(None);
        };
        let parameters = parameters.ok_or(UnresolvedReason::ImplausibleSize)?;
        Ok(Some(Self { weights: *weights, parameters, packing, is_padded: false }))
    }

    /// Returns whether a byte contains at most 32 weights. No method packs more densely.
    pub(super) fn is_plausible(&self, module: &Module<'_>) -> bool {
        const MOST_WEIGHTS_PER_BYTE: u64 = 32;

        let weights = module.parts.iter().find(|(part, _)| *part == self.weights);
        let bits = weights.and_then(|(_, tensor)| {
            Some(u128::from(tensor.elements()?) * u128::from(tensor.dtype.bits()?))
        });
        let most = bits.map(|bits| bits / 8 * u128::from(MOST_WEIGHTS_PER_BYTE));
        most.is_some_and(|most| u128::from(self.parameters) <= most)
    }
}

/// Marks a solution as an upper bound, because of padding of an unknown amount.
pub(super) fn padded(solution: Solution) -> Solution {
    solution.map(|solved| solved.map(|solved| Solved { is_padded: true, ..solved }))
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
pub(super) fn container_bits(dtype: &Dtype) -> Option<u64> {
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
    use crate::count::part::split;

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

    /// The densest packing in use is AQLM, at a quarter of a bit per weight.
    #[test]
    fn a_byte_holds_at_most_32_weights() {
        let part = split("m.weight").1;
        let cases = [(Dtype::U8, 3, 96), (Dtype::I32, 3, 4 * 96), (Dtype::F4, 2, 32)];
        for (dtype, elements, most) in cases {
            let parts = [(part, TensorInfo::new(dtype, vec![elements], (0, 0)))];
            let module = Module { name: "m", parts: &parts };
            let packing = Packing::without_bits("any", "any");
            let is_plausible = |parameters| {
                let solved = Solved::new(&module, "weight", Some(parameters), packing);
                solved.unwrap().unwrap().is_plausible(&module)
            };
            assert_eq!([most, most + 1].map(is_plausible), [true, false]);
        }
    }

    #[test]
    fn a_quotient_has_no_remainder() {
        let cases = [(12, 4, Some(3)), (13, 4, None), (0, 4, Some(0)), (4, 0, None), (0, 0, None)];
        for (number, divisor, quotient) in cases {
            assert_eq!(divide(number, divisor), quotient, "{number} / {divisor}");
        }
    }
}
