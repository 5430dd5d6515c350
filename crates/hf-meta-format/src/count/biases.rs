//! The biases that quantizers add to modules without one.
//!
//! `AutoGPTQ` and Neural Compressor store a bias of zeros next to the packed weights of every module. They are no
//! parameters of the model, which only its configuration shows. Without it, they are suspected if only packed modules have
//! a bias, and all of them.

use super::names::TensorName;
use super::{AuxiliaryTensor, CountedAs, TensorGroup};
use crate::formats::TensorInfo;

/// The biases of a model. They are part of the total, but in no group yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Biases {
    patterns: Vec<ModuleBiases>,
    /// The number of all biases.
    stored: u64,
    /// The number of all packed modules.
    pub(super) packed_modules: u64,
}

/// The bias of a module, according to the configuration and the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelBias {
    Unknown,
    /// The architecture has it.
    Present,
    /// The configuration excludes it.
    Excluded,
}

/// The biases whose names have a common pattern.
#[derive(Clone, Debug)]
struct ModuleBiases {
    pattern: usize,
    /// The first of their modules, by name.
    module: String,
    group: TensorGroup,
    /// True if they belong to packed modules of a layout whose writers add biases.
    is_packed: bool,
    model: ModelBias,
}

impl Biases {
    /// The layouts whose writers add biases.
    const LAYOUTS: [&str; 2] = ["gptq", "neural-compressor"];

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
        self.stored += u64::from(is_stored);
        // The biases of experts are part of other sums.
        let found = name.biased_module().filter(|_| is_stored && name.experts(tensor).is_none());
        let Some((module, pattern)) = found else {
            return Some(group);
        };
        let has_room = self.patterns.len() < Self::MAX_PATTERNS;
        let is_like =
            |biases: &&mut ModuleBiases| biases.pattern == pattern && biases.group.is_like(&group);
        match self.patterns.iter_mut().find(is_like) {
            Some(biases) => {
                biases.group.count = biases.group.count.saturating_add(&group.count);
                if module < &*biases.module {
                    module.clone_into(&mut biases.module);
                }
            }
            None if has_room => {
                let module = module.to_owned();
                self.patterns.push(ModuleBiases {
                    pattern,
                    module,
                    group,
                    is_packed: false,
                    model: ModelBias::Unknown,
                });
            }
            None => return Some(group),
        }
        None
    }

    /// Returns whether a module is the first one with a bias of its pattern.
    pub(super) fn has(&self, module: &str) -> bool {
        self.patterns.iter().any(|biases| biases.module == module)
    }

    /// Records what is known about the bias of a packed module and of those whose names differ only in numbers.
    pub(super) fn set_packed(&mut self, module: &str, layout: &str, model: ModelBias) {
        for biases in self.patterns.iter_mut().filter(|biases| biases.module == module) {
            (biases.is_packed, biases.model) = (Self::LAYOUTS.contains(&layout), model);
        }
    }

    /// Returns whether only packed modules have a bias, and all of them, as if the packer had added it. A single module
    /// shows nothing.
    fn follow_packing(&self) -> bool {
        let packed = self.patterns.iter().filter(|biases| biases.is_packed);
        let packed: u64 = packed.map(|biases| biases.group.count.tensors).sum();
        packed > 1 && [self.packed_modules, self.stored] == [packed; 2]
    }

    /// Returns the first module whose bias may be the packer's.
    pub(super) fn doubt(&self) -> Option<&str> {
        let mut unknown = self.patterns.iter().filter(|biases| biases.model == ModelBias::Unknown);
        unknown.next().filter(|_| self.follow_packing()).map(|biases| &*biases.module)
    }

    /// Returns the groups, with the new class of those that are left out.
    pub(super) fn finish(self) -> impl Iterator<Item = (TensorGroup, Option<CountedAs>)> {
        let class = CountedAs::AuxiliaryTensor(AuxiliaryTensor::Bias);
        self.patterns.into_iter().map(move |biases| {
            let is_added = biases.model == ModelBias::Excluded;
            (biases.group, is_added.then_some(class))
        })
    }
}
