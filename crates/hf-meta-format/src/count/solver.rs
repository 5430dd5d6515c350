//! Solves modules and adds them to the sums.

use std::collections::VecDeque;

use super::hints::Hints;
use super::metadata::MetadataShapes;
use super::methods::{ModuleSolution, SolvedModule, is_of_named_method, solve};
use super::module::{Module, container_bits};
use super::part::{PartId, PartRole};
use super::sums::CountSums;
use super::waiting::WaitingTensors;
use super::{AuxiliaryTensor, Configs, CountOverflow, CountedAs, UnresolvedReason};
use crate::formats::TensorInfo;

/// Solves modules and adds their tensors to the sums.
pub(super) struct Solver<'a> {
    hints: Hints<'a>,
    sums: CountSums,
    /// Tensors whose class depends on whether the model is quantized.
    open: WaitingTensors,
    /// True if the configuration describes a quantization or a module with packed weights was found.
    is_quantized: bool,
    /// Recent solutions that do not depend on the module's name, with the parts they apply to.
    recent: VecDeque<(Vec<(PartId, TensorInfo)>, ModuleSolution)>,
}

/// The number of recent solutions to reuse. Experts have two or three kinds of modules.
const MOST_RECENT: usize = 4;

impl<'a> Solver<'a> {
    /// Creates a solver that adds to `sums`.
    pub(super) fn new(configs: &'a Configs, shapes: &'a MetadataShapes, sums: CountSums) -> Self {
        Self {
            hints: Hints::new(&configs.quantization, shapes),
            sums,
            open: WaitingTensors::default(),
            is_quantized: !configs.quantization.is_empty(),
            recent: VecDeque::new(),
        }
    }

    /// Solves a module, or reuses the solution of a module with the same part shapes, because models have many equal
    /// layers and experts.
    fn solve(&mut self, module: &Module<'_>) -> ModuleSolution {
        let is_equal = |parts: &[(PartId, TensorInfo)]| {
            parts.len() == module.parts.len()
                && parts.iter().zip(module.parts).all(|((part, one), (other_part, other))| {
                    part == other_part && one.shape == other.shape && one.dtype == other.dtype
                })
        };
        if let Some((_, solution)) = self.recent.iter().find(|(parts, _)| is_equal(parts)) {
            return *solution;
        }
        let (solution, holds_for_others) = self.hints.solve(|hints| solve(module, hints));
        if holds_for_others {
            self.recent.truncate(MOST_RECENT - 1);
            self.recent.push_front((module.parts.to_vec(), solution));
        }
        solution
    }

    /// Adds the tensors of a module.
    pub(super) fn add_module(&mut self, module: &Module<'_>) -> Result<(), CountOverflow> {
        // A tensor is stored twice, so no part of the module can be trusted.
        if module.parts.windows(2).any(|parts| parts[0].0 == parts[1].0) {
            return self.add_unresolved(module, UnresolvedReason::ConflictingComponents);
        }
        match self.solve(module) {
            Ok(Some(_)) if self.hints.is_exhausted() => {
                self.add_unresolved(module, UnresolvedReason::TooComplex)
            }
            Ok(Some(solved)) => self.add_solved(module, &solved),
            Ok(None) if has_packed_part(module) && self.is_packed(module) => {
                self.add_unresolved(module, UnresolvedReason::UnknownComponents)
            }
            Err(reason) if self.is_packed(module) => self.add_unresolved(module, reason),
            Ok(None) | Err(_) => module
                .parts
                .iter()
                .try_for_each(|(part, tensor)| self.add_unsolved(module, *part, tensor)),
        }
    }

    /// Returns whether an unsolved module is quantized. Unquantized models also have tensors named `B` or `codes`.
    /// Scalars are no evidence, because they do not [need the configuration](super::needs_config).
    fn is_packed(&self, module: &Module<'_>) -> bool {
        module.parts.iter().any(|(part, tensor)| match part.role() {
            _ if tensor.is_scalar() => false,
            PartRole::Weights => {
                container_bits(&tensor.dtype).is_some()
                    || !part.is_plain() && is_of_named_method(*part, &self.hints)
            }
            PartRole::Auxiliary(_) => part.asks(),
            PartRole::AuxiliaryAnywhere(_) => false,
        })
    }

    fn add_solved(
        &mut self,
        module: &Module<'_>,
        found: &SolvedModule,
    ) -> Result<(), CountOverflow> {
        self.is_quantized = true;
        let solved = &found.solved;
        self.sums.add_kind(module, solved);
        let mut has_weights = false;
        for (part, tensor) in module.parts {
            if *part == solved.weights && !has_weights {
                has_weights = true;
                self.sums.add_weights(module, solved, tensor)?;
            } else if let Some(kind) = found.auxiliary(*part) {
                self.add_auxiliary(module, *part, tensor, kind)?;
            } else {
                self.add_unsolved(module, *part, tensor)?;
            }
        }
        if solved.is_padded {
            self.sums.add_unresolved(module.name, UnresolvedReason::Padded, 0);
        }
        Ok(())
    }

    fn add_auxiliary(
        &mut self,
        module: &Module<'_>,
        part: PartId,
        tensor: &TensorInfo,
        kind: AuxiliaryTensor,
    ) -> Result<(), CountOverflow> {
        let class =
            if tensor.is_scalar() { CountedAs::Scalar } else { CountedAs::AuxiliaryTensor(kind) };
        self.add(module.name, part, tensor, class)
    }

    /// Adds a packed module of unknown size.
    fn add_unresolved(
        &mut self,
        module: &Module<'_>,
        reason: UnresolvedReason,
    ) -> Result<(), CountOverflow> {
        self.is_quantized = true;
        let mut elements = 0_u64;
        for (part, tensor) in module.parts {
            match part.role() {
                PartRole::Auxiliary(kind) | PartRole::AuxiliaryAnywhere(kind) => {
                    self.add_auxiliary(module, *part, tensor, kind)?;
                }
                PartRole::Weights => {
                    elements = elements.saturating_add(tensor.elements().unwrap_or_default());
                    self.add(module.name, *part, tensor, unresolved_class(tensor))?;
                }
            }
        }
        self.sums.add_unresolved(module.name, reason, elements);
        Ok(())
    }

    /// Adds a part of a module without packed weights.
    fn add_unsolved(
        &mut self,
        module: &Module<'_>,
        part: PartId,
        tensor: &TensorInfo,
    ) -> Result<(), CountOverflow> {
        let may_be_packed = part.is_plain() || part.asks();
        let is_integer = may_be_packed && container_bits(&tensor.dtype).is_some();
        if is_integer || matches!(part.role(), PartRole::AuxiliaryAnywhere(_)) {
            let pushed = self.open.push(module.name, part, tensor);
            return pushed.ok_or_else(|| CountOverflow::new(module.name));
        }
        self.add(module.name, part, tensor, class_as_stored(tensor))
    }

    fn add(
        &mut self,
        module: &str,
        part: PartId,
        tensor: &TensorInfo,
        class: CountedAs,
    ) -> Result<(), CountOverflow> {
        if !class.is_counted() {
            let added = self.sums.add_uncounted(tensor, class);
            return added.ok_or_else(|| CountOverflow::new(&part.tensor_name(module)));
        }
        let name = part.tensor_name(module);
        self.sums.add(&name, tensor, class, None)
    }

    /// Classifies the open tensors, now that it is known whether the model is quantized.
    pub(super) fn finish(mut self) -> Result<CountSums, CountOverflow> {
        let open = std::mem::take(&mut self.open);
        open.for_each_module(|module, parts| {
            parts.iter().try_for_each(|(part, tensor)| self.add_open(module, *part, tensor))
        })?;
        Ok(self.sums)
    }

    fn add_open(
        &mut self,
        module: &str,
        part: PartId,
        tensor: &TensorInfo,
    ) -> Result<(), CountOverflow> {
        let stored = class_as_stored(tensor);
        let class = match part.role() {
            _ if stored != CountedAs::AsStored => stored,
            PartRole::AuxiliaryAnywhere(kind) if self.is_quantized => {
                CountedAs::AuxiliaryTensor(kind)
            }
            // Integers with other names are as likely to be tables or masks as weights.
            PartRole::Weights
                if part == PartId::WHOLE
                    && !(is_matrix(tensor) && (self.is_quantized || is_stack(tensor))) =>
            {
                CountedAs::AsStored
            }
            // Auxiliary parts are packed zero points without their weights.
            PartRole::Weights | PartRole::Auxiliary(_) if self.is_quantized => {
                self.open_weights(module, tensor, UnresolvedReason::UnknownComponents)
            }
            PartRole::Weights if may_be_packed(tensor) => {
                self.open_weights(module, tensor, UnresolvedReason::SuspectedPacking)
            }
            _ => CountedAs::AsStored,
        };
        self.add(module, part, tensor, class)
    }

    fn open_weights(
        &mut self,
        module: &str,
        tensor: &TensorInfo,
        reason: UnresolvedReason,
    ) -> CountedAs {
        self.sums.add_unresolved(module, reason, tensor.elements().unwrap_or_default());
        CountedAs::Unresolved
    }
}

/// Returns whether integers of an unquantized model look packed.
fn may_be_packed(tensor: &TensorInfo) -> bool {
    const SMALLEST: u64 = 1024;

    let is_large = tensor.shape.len() > 1 || tensor.elements() >= Some(SMALLEST);
    is_large && container_bits(&tensor.dtype).is_some_and(|bits| bits <= 32)
}

/// Returns whether a module has a weights part that only quantizers write.
fn has_packed_part(module: &Module<'_>) -> bool {
    module.parts.iter().any(|(part, _)| part.role() == PartRole::Weights && !part.is_plain())
}

/// Returns whether a tensor is large enough for a weight matrix. A table of expert IDs, as in DeepSeek, is narrow.
fn is_matrix(tensor: &TensorInfo) -> bool {
    const SMALLEST_SIDE: u64 = 32;

    match &tensor.shape[..] {
        [.., rows, columns] if is_stack(tensor) => {
            rows.saturating_mul(*columns) >= SMALLEST_SIDE * SMALLEST_SIDE
        }
        sides => sides.iter().all(|&side| side >= SMALLEST_SIDE),
    }
}

/// Returns whether a tensor is a stack of several matrices. The first dimension of masks is 1.
fn is_stack(tensor: &TensorInfo) -> bool {
    matches!(tensor.shape[..], [stacked, _, _, ..] if stacked > 1)
}

fn unresolved_class(tensor: &TensorInfo) -> CountedAs {
    match class_as_stored(tensor) {
        CountedAs::AsStored => CountedAs::Unresolved,
        class => class,
    }
}

/// Returns the class of a tensor outside of quantized modules.
pub(super) fn class_as_stored(tensor: &TensorInfo) -> CountedAs {
    // Exponents without a mantissa can only scale other values.
    if tensor.dtype.is_exponent() {
        CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale)
    } else if tensor.is_scalar() {
        CountedAs::Scalar
    } else {
        CountedAs::AsStored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::part::split;

    /// Earlier answers may have been wrong, too.
    #[test]
    fn nothing_is_certain_without_steps() {
        let (configs, shapes) = (Configs::default(), MetadataShapes::default());
        let tensors: [(_, _, &[u64]); 3] = [
            ("m.qweight", "I32", &[8, 16]),
            ("m.qzeros", "I32", &[1, 2]),
            ("m.scales", "F16", &[1, 16]),
        ];
        let parts = tensors.map(|(name, dtype, shape)| {
            (split(name).1, TensorInfo::new(dtype.into(), shape.to_vec(), (0, 0)))
        });
        let is_uncertain = |has_steps: bool| {
            let mut solver = Solver::new(&configs, &shapes, CountSums::default());
            if !has_steps {
                solver.hints.exhaust();
            }
            solver.add_module(&Module { name: "m", parts: &parts }).unwrap();
            solver.finish().unwrap().has_unresolved(UnresolvedReason::TooComplex)
        };
        assert_eq!([true, false].map(is_uncertain), [false, true]);
    }
}
