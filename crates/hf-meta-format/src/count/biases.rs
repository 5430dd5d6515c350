//! The biases that quantizers add to modules without one.
//!
//! `AutoGPTQ` and Neural Compressor store a bias of zeros next to the packed weights of every module. They are no
//! parameters of the model, which only its configuration shows.

use super::names::TensorName;
use super::{AuxiliaryTensor, CountedAs, TensorGroup};
use crate::formats::TensorInfo;

/// The biases of a model. They are part of the total, but in no group yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Biases(Vec<ModuleBiases>);

/// The biases whose names have a common pattern.
#[derive(Clone, Debug)]
struct ModuleBiases {
    pattern: usize,
    /// The first of their modules, by name.
    module: String,
    group: TensorGroup,
    is_added: bool,
}

impl Biases {
    /// The maximum number of patterns. Models have a dozen.
    const MAX_PATTERNS: usize = 64;

    /// Adds a bias. Returns its group if it is none, or if there are too many.
    pub(super) fn add(
        &mut self,
        name: &TensorName<'_>,
        tensor: &TensorInfo,
        group: TensorGroup,
    ) -> Option<TensorGroup> {
        let is_stored = group.counted_as == CountedAs::AsStored && group.buffer.is_none();
        // The biases of experts are part of other sums.
        let found = name.biased_module().filter(|_| is_stored && name.experts(tensor).is_none());
        let Some((module, pattern)) = found else {
            return Some(group);
        };
        let has_room = self.0.len() < Self::MAX_PATTERNS;
        let is_like =
            |biases: &&mut ModuleBiases| biases.pattern == pattern && biases.group.is_like(&group);
        match self.0.iter_mut().find(is_like) {
            Some(biases) => {
                biases.group.count = biases.group.count.saturating_add(&group.count);
                if module < &*biases.module {
                    module.clone_into(&mut biases.module);
                }
            }
            None if has_room => {
                let module = module.to_owned();
                self.0.push(ModuleBiases { pattern, module, group, is_added: false });
            }
            None => return Some(group),
        }
        None
    }

    /// Returns whether a module is the first one with a bias of its pattern.
    pub(super) fn has(&self, module: &str) -> bool {
        self.0.iter().any(|biases| biases.module == module)
    }

    /// Leaves out the biases of a module and of those whose names differ only in numbers.
    pub(super) fn leave_out(&mut self, module: &str) {
        for biases in self.0.iter_mut().filter(|biases| biases.module == module) {
            biases.is_added = true;
        }
    }

    /// Returns the groups, with the new class of those that are left out.
    pub(super) fn finish(self) -> impl Iterator<Item = (TensorGroup, Option<CountedAs>)> {
        let class = CountedAs::AuxiliaryTensor(AuxiliaryTensor::Bias);
        self.0.into_iter().map(move |biases| (biases.group, biases.is_added.then_some(class)))
    }
}
