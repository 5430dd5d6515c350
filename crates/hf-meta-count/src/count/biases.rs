//! The biases that quantizers add to modules without one.
//!
//! `AutoGPTQ` and Neural Compressor store a bias of zeros next to the packed weights of every module. They are no
//! parameters of the model, which only its configuration shows. Without it, they are suspected if only packed modules have
//! a bias, and all of them. Each stack of layers is judged alone: a vision tower has separate biases.

use super::expected_weights::ExpectedWeights;
use super::names::TensorName;
use super::{CountedAs, TensorGroup};
use hf_meta_format::formats::TensorInfo;

/// The biases of a model. They are part of the total, but in no group yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Biases {
    patterns: Vec<ModuleBiases>,
    stacks: Vec<StackSums>,
    /// The index of the stack that was found last. The next module mostly belongs to it, too.
    last: usize,
}

/// The numbers of all biases and of all packed modules in a stack of layers.
#[derive(Clone, Debug)]
struct StackSums {
    stack: Box<str>,
    stored: u64,
    packed_modules: u64,
}

/// Returns the stack of layers that contains a module: its name up to the first number, or nothing.
fn stack_of(module: &str) -> &str {
    let mut start = 0;
    while let Some(rest) = module.get(start..).filter(|rest| !rest.is_empty()) {
        if begins_with_number(rest) {
            return &module[..start];
        }
        start += rest.bytes().take_while(|&byte| byte != b'.').count() + 1;
    }
    ""
}

/// Returns whether the first part of a name is a number.
fn begins_with_number(name: &str) -> bool {
    let mut rest = name.bytes().skip_while(u8::is_ascii_digit);
    name.starts_with(|first: char| first.is_ascii_digit())
        && rest.next().is_none_or(|byte| byte == b'.')
}

/// The biases whose names have a common pattern.
#[derive(Clone, Debug)]
struct ModuleBiases {
    pattern: usize,
    /// The first of their modules, by name.
    module: String,
    tensors: u64,
    /// The totals over the biases; `None` if they belong to routed experts, and are part of other sums.
    group: Option<TensorGroup>,
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

    /// The maximum number of stacks of layers. Models have a few.
    const MAX_STACKS: usize = 64;

    /// Returns the sums of the stack that contains a module; `None` if there are too many stacks.
    fn stack(&mut self, module: &str) -> Option<&mut StackSums> {
        let is_in_last = |sums: &StackSums| {
            !sums.stack.is_empty()
                && module.strip_prefix(&*sums.stack).is_some_and(begins_with_number)
        };
        if !self.stacks.get(self.last).is_some_and(is_in_last) {
            let stack = stack_of(module);
            self.last = match self.stacks.iter().position(|sums| *sums.stack == *stack) {
                Some(known) => known,
                None if self.stacks.len() == Self::MAX_STACKS => return None,
                None => {
                    self.stacks.push(StackSums {
                        stack: stack.into(),
                        stored: 0,
                        packed_modules: 0,
                    });
                    self.stacks.len() - 1
                }
            };
        }
        self.stacks.get_mut(self.last)
    }

    /// Adds a bias. Returns its group if it is none, if it belongs to routed experts, or if there are too many.
    pub(super) fn add(
        &mut self,
        name: &TensorName<'_>,
        tensor: &TensorInfo,
        group: TensorGroup,
    ) -> Option<TensorGroup> {
        let is_stored = group.counted_as == CountedAs::AsStored && group.buffer.is_none();
        if !is_stored {
            return Some(group);
        }
        if let Some(stack) = self.stack(name.name) {
            stack.stored += 1;
        }
        let Some((module, pattern)) = name.biased_module() else { return Some(group) };
        let of_experts = name.experts(tensor).is_some();
        let is_like = |biases: &&mut ModuleBiases| {
            biases.pattern == pattern
                && biases.group.as_ref().map_or(of_experts, |known| known.is_like(&group))
        };
        if let Some(biases) = self.patterns.iter_mut().find(is_like) {
            biases.tensors += 1;
            if module < &*biases.module {
                module.clone_into(&mut biases.module);
            }
            if let Some(sums) = &mut biases.group {
                sums.count = sums.count.saturating_add(&group.count);
                return None;
            }
            return Some(group);
        }
        if self.patterns.len() == Self::MAX_PATTERNS {
            return Some(group);
        }
        let (module, is_packed, are_own, tensors) = (module.to_owned(), false, None, 1);
        let (own, rest) = if of_experts { (None, Some(group)) } else { (Some(group), None) };
        self.patterns.push(ModuleBiases {
            pattern,
            module,
            tensors,
            group: own,
            is_packed,
            are_own,
        });
        rest
    }

    /// Adds a packed module, and what is known about its bias and those of modules whose names differ only in numbers.
    pub(super) fn add_packed(
        &mut self,
        module: &str,
        layout: &str,
        expected: Option<&ExpectedWeights<'_>>,
    ) {
        if let Some(stack) = self.stack(module) {
            stack.packed_modules += 1;
        }
        for biases in self.patterns.iter_mut().filter(|biases| biases.module == module) {
            biases.is_packed = Self::LAYOUTS.contains(&layout);
            biases.are_own = expected.and_then(|expected| expected.has_bias(module));
        }
    }

    /// Returns whether only packed modules of a stack have a bias, and all of them, as if the packer had added it. A single
    /// module shows nothing.
    fn follow_packing(&self, stack: &str) -> bool {
        let packed = self.patterns.iter();
        let packed = packed.filter(|biases| biases.is_packed && stack_of(&biases.module) == stack);
        let packed: u64 = packed.map(|biases| biases.tensors).sum();
        let sums = self.stacks.iter().find(|sums| *sums.stack == *stack);
        packed > 1 && sums.is_some_and(|sums| [sums.packed_modules, sums.stored] == [packed; 2])
    }

    /// Returns the first module by name whose bias may be the packer's: files arrive in any order. The biases of experts are
    /// counted, even if the model has none.
    pub(super) fn doubt(&self) -> Option<&str> {
        let is_doubtful = |biases: &&ModuleBiases| match biases.are_own {
            Some(are_own) => !are_own && biases.is_packed && biases.group.is_none(),
            None => self.follow_packing(stack_of(&biases.module)),
        };
        self.patterns.iter().filter(is_doubtful).map(|biases| &*biases.module).min()
    }

    /// Returns the groups, with `true` for those that the packer added.
    pub(super) fn finish(self) -> impl Iterator<Item = (TensorGroup, bool)> {
        let patterns = self.patterns.into_iter();
        patterns.filter_map(|biases| Some((biases.group?, biases.are_own == Some(false))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_before_the_first_number() {
        for (module, stack) in [
            ("model.language_model.layers.7.mlp.up_proj", "model.language_model.layers."),
            ("visual.blocks.0.attn.qkv.bias", "visual.blocks."),
            ("0.linear", ""),
            ("layers.7", "layers."),
            ("layers.7b.2.up_proj", "layers.7b."),
            ("lm_head", ""),
            ("", ""),
        ] {
            assert_eq!(stack_of(module), stack, "{module}");
        }
    }
}
