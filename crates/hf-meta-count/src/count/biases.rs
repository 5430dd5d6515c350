//! The biases that quantizers add to modules without one.
//!
//! `AutoGPTQ` and Neural Compressor store a bias of zeros next to the packed weights of every module. They are no
//! parameters of the model, which only its configuration shows. Without it, they are suspected if only packed modules have
//! a bias, and all of them.

use super::expected_weights::ExpectedWeights;
use super::names::TensorName;
use super::{CountedAs, TensorGroup};
use hf_meta_format::formats::TensorInfo;

/// The biases of a model. They are part of the total, but in no group yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Biases {
    patterns: Vec<ModuleBiases>,
    /// The number of all biases.
    stored: u64,
    /// The number of all packed modules.
    packed_modules: u64,
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
    /// True if the model has them; `None` if it is unknown.
    are_own: Option<bool>,
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
        let is_like =
            |biases: &&mut ModuleBiases| biases.pattern == pattern && biases.group.is_like(&group);
        if let Some(biases) = self.patterns.iter_mut().find(is_like) {
            biases.group.count = biases.group.count.saturating_add(&group.count);
            if module < &*biases.module {
                module.clone_into(&mut biases.module);
            }
        } else if self.patterns.len() < Self::MAX_PATTERNS {
            let (module, is_packed, are_own) = (module.to_owned(), false, None);
            self.patterns.push(ModuleBiases { pattern, module, group, is_packed, are_own });
        } else {
            return Some(group);
        }
        None
    }

    /// Adds a packed module, and what is known about its bias and those of modules whose names differ only in numbers.
    pub(super) fn add_packed(
        &mut self,
        module: &str,
        layout: &str,
        expected: Option<&ExpectedWeights<'_>>,
    ) {
        self.packed_modules += 1;
        for biases in self.patterns.iter_mut().filter(|biases| biases.module == module) {
            biases.is_packed = Self::LAYOUTS.contains(&layout);
            biases.are_own = expected.and_then(|expected| expected.has_bias(module));
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
        let unknown = self.patterns.iter().find(|biases| biases.are_own.is_none());
        unknown.filter(|_| self.follow_packing()).map(|biases| &*biases.module)
    }

    /// Returns the groups, with `true` for those that the packer added.
    pub(super) fn finish(self) -> impl Iterator<Item = (TensorGroup, bool)> {
        self.patterns.into_iter().map(|biases| (biases.group, biases.are_own == Some(false)))
    }
}
