//! From the parts of modules to sums.

use super::hints::Hints;
use super::metadata::MetadataShapes;
use super::methods::{SolvedModule, solve};
use super::module::{Module, container_bits};
use super::part::{PartId, PartRole};
use super::sums::CountSums;
use super::waiting::WaitingTensors;
use super::{AuxiliaryTensor, Configs, CountOverflow, CountedAs, UnresolvedReason};
use crate::formats::TensorInfo;

/// Solves modules, and adds their tensors to the sums.
pub(super) struct Solver<'a> {
    hints: Hints<'a>,
    sums: CountSums,
    /// Tensors whose class depends on whether the model is quantized.
    open: WaitingTensors,
    /// True if the configuration says so, or a module with packed weights was found.
    is_quantized: bool,
}

impl<'a> Solver<'a> {
    /// Creates a solver that adds to some sums.
    pub(super) fn new(configs: &'a Configs, shapes: &'a MetadataShapes, sums: CountSums) -> Self {
        Self {
            hints: Hints::new(&configs.quantization, shapes),
            sums,
            open: WaitingTensors::default(),
            is_quantized: !configs.quantization.is_empty(),
        }
    }

    /// Adds the tensors of a module.
    pub(super) fn add_module(&mut self, module: &Module<'_>) -> Result<(), CountOverflow> {
        match solve(module, &self.hints) {
            Ok(Some(_)) if self.hints.is_exhausted() => {
                self.add_unresolved(module, UnresolvedReason::TooManyChoices)
            }
            Ok(Some(solved)) => self.add_solved(module, &solved),
            Ok(None) => module
                .parts
                .iter()
                .try_for_each(|(part, tensor)| self.add_unsolved(module, *part, tensor)),
            Err(reason) => self.add_unresolved(module, reason),
        }
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

    /// Adds a module that is packed, and whose size is not known.
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
        let is_integer = part.is_plain() && container_bits(&tensor.dtype).is_some();
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

    /// Classifies the remaining tensors, now that it is known if the model is quantized.
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
            // Integers under other names are tables or masks as often as weights.
            PartRole::Weights
                if part == PartId::WHOLE && !(self.is_quantized && is_matrix(tensor)) =>
            {
                CountedAs::AsStored
            }
            PartRole::Weights if self.is_quantized => {
                self.open_weights(module, tensor, UnresolvedReason::UnknownParts)
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
    tensor.shape.len() > 1 && container_bits(&tensor.dtype).is_some_and(|bits| bits <= 32)
}

/// Returns whether a tensor has the sides of a weight matrix. A table of expert ids, as DeepSeek has, is narrow.
fn is_matrix(tensor: &TensorInfo) -> bool {
    const SMALLEST_SIDE: u64 = 32;

    tensor.shape.iter().rev().take(2).all(|&side| side >= SMALLEST_SIDE)
}

fn unresolved_class(tensor: &TensorInfo) -> CountedAs {
    match class_as_stored(tensor) {
        CountedAs::AsStored => CountedAs::Unresolved,
        class => class,
    }
}

/// Returns the class of a tensor that is no part of a quantized module.
pub(super) fn class_as_stored(tensor: &TensorInfo) -> CountedAs {
    match AuxiliaryTensor::from_dtype(&tensor.dtype) {
        Some(kind) => CountedAs::AuxiliaryTensor(kind),
        None if tensor.is_scalar() => CountedAs::Scalar,
        None => CountedAs::AsStored,
    }
}
