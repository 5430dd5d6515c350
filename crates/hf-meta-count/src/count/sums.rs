//! Sums over the tensors of a model.

use std::collections::BTreeMap;

use super::biases::Biases;
use super::counted_as::TensorUse;
use super::doubts::{Integers, ShapeCheck};
use super::expected_weights::ExpectedWeights;
use super::experts::ExpertSums;
use super::methods::{Solved, is_known};
use super::module::{Module, container_bits, is_packed_integer};
use super::names::Embedding;
use super::names::{TensorName, module_of};
use super::{
    AuxiliaryTensor, Buffer, Configs, CountBreakdown, CountOverflow, CountedAs, DtypeCount,
    ModuleKind, ParameterCount, RuleSet, TensorGroup, TiedOutput, UnresolvedModules,
    UnresolvedReason,
};
use hf_meta_format::base::sort::sort_by;
use hf_meta_format::formats::{TensorInfo, clip};

/// Sums over the classified tensors.
#[derive(Clone, Debug, Default)]
pub(super) struct CountSums {
    total: DtypeCount,
    /// The groups in the order of the tensors. A group may be listed several times.
    groups: Vec<TensorGroup>,
    experts: ExpertSums,
    shapes: ShapeCheck,
    /// The shapes of EMA copies.
    copies: ShapeCheck,
    kinds: Vec<ModuleKind>,
    unresolved: BTreeMap<UnresolvedReason, UnresolvedModules>,
    integers: Integers,
    pub(super) biases: Biases,
    /// The largest input embedding and the largest output embedding, whose class is decided last. They are part of the
    /// total, but not of `groups`.
    input: Option<StoredEmbedding>,
    output: Option<StoredEmbedding>,
}

/// The number of groups that are compared with a tensor. A model has few, and later tensors usually share them.
const MAX_RECENT: usize = 8;

/// An embedding outside of all layers.
#[derive(Clone, Debug)]
struct StoredEmbedding {
    name: String,
    group: TensorGroup,
}

impl StoredEmbedding {
    /// Keeps the larger of two embeddings, and returns the group of the other one. Of equal ones, the first is kept.
    fn keep_larger(
        largest: &mut Option<Self>,
        name: &TensorName<'_>,
        group: TensorGroup,
    ) -> Option<TensorGroup> {
        let is_smaller = |known: &Self| known.group.count.parameters < group.count.parameters;
        if !largest.as_ref().is_none_or(is_smaller) {
            return Some(group);
        }
        let found = Self { name: clip(name.name), group };
        largest.replace(found).map(|smaller| smaller.group)
    }
}

impl CountSums {
    /// Adds a tensor that is not counted, so that its name does not matter; `None` if a sum overflows.
    pub(super) fn add_uncounted(&mut self, tensor: &TensorInfo, used: TensorUse) -> Option<()> {
        let group = self.add_to_total(tensor, used)?;
        self.add_to_groups(group);
        Some(())
    }

    /// Adds a tensor.
    pub(super) fn add(
        &mut self,
        name: &TensorName<'_>,
        tensor: &TensorInfo,
        used: TensorUse,
    ) -> Result<(), CountOverflow> {
        let group = self.add_to_total(tensor, used);
        let group = group.ok_or_else(|| CountOverflow::new(name.name))?;
        let (class, parameters) = (group.counted_as, group.count.parameters);
        let is_copy = group.buffer == Some(Buffer::EmaCopy);
        if !is_copy {
            self.experts.add(name, tensor, parameters);
        }
        let embedding = if parameters > 0 && !name.is_draft() { name.embedding() } else { None };
        let is_weights = matches!(used, TensorUse::Weights(..));
        let is_integer = class == CountedAs::AsStored && container_bits(&tensor.dtype).is_some();
        // Only the sides of embeddings matter: a model may have more of them than of other weights.
        let sided = if embedding.is_some() && !is_weights { 0 } else { parameters };
        if class != CountedAs::AsStored || is_integer && is_weights {
            self.shapes.add_packed(sided);
        } else if is_copy {
            self.copies.add(name.name, tensor, sided);
        } else {
            self.shapes.add(name.name, tensor, sided);
        }
        // SDNQ stores the bits of `weight` in words of 64 bits.
        let may_be_packed = || {
            let (_, component) = name.split();
            is_packed_integer(&tensor.dtype) || component.is_plain() && !component.is_bare()
        };
        if is_integer && !is_weights && group.buffer.is_none() && may_be_packed() {
            self.integers.add(name.name, tensor);
        }
        // Biases and other vectors next to an embedding, such as `head.probe` in SigLIP, have the bare name of a module.
        let embedding = match embedding {
            Some(_) if name.split().1.is_bare() => None,
            embedding => embedding,
        };
        let decided = match embedding {
            Some(Embedding::Input) => StoredEmbedding::keep_larger(&mut self.input, name, group),
            Some(Embedding::Output) => StoredEmbedding::keep_larger(&mut self.output, name, group),
            _ if name.is_bias() => self.biases.add(name, tensor, group),
            _ => Some(group),
        };
        if let Some(group) = decided {
            self.add_to_groups(group);
        }
        Ok(())
    }

    /// Adds a tensor to the total, and returns a group with only this tensor; `None` if a sum overflows.
    fn add_to_total(&mut self, tensor: &TensorInfo, used: TensorUse) -> Option<TensorGroup> {
        let (counted_as, elements) = (used.class(tensor), tensor.elements()?);
        let is_scalar = tensor.is_scalar();
        let count = DtypeCount {
            tensors: 1,
            counted: u64::from(counted_as.is_counted()),
            parameters: match used {
                TensorUse::Weights(parameters, _) => parameters,
                _ if counted_as.is_counted() => elements,
                _ => 0,
            },
            elements: if is_scalar { 0 } else { elements },
            scalars: u64::from(is_scalar),
            bytes: tensor.byte_length(),
        };
        // The total bounds every group, so no other sum can overflow.
        self.total = self.total.checked_add(&count)?;
        let (dtype, buffer) = (tensor.dtype.clone(), used.buffer());
        Some(TensorGroup { dtype, counted_as, buffer, count })
    }

    fn add_to_groups(&mut self, added: TensorGroup) {
        let mut recent = self.groups.iter_mut().rev().take(MAX_RECENT);
        match recent.find(|group| group.is_like(&added)) {
            Some(group) => group.count = group.count.saturating_add(&added.count),
            None => self.groups.push(added),
        }
    }

    /// Adds a solved module to the sums of its kind, unless there are too many kinds.
    pub(super) fn add_kind(&mut self, module: &Module<'_>, solved: &Solved) {
        let is_kind = |kind: &ModuleKind| {
            let known = kind.components.iter().map(|(name, dtype)| (*name, dtype));
            let stored = module.tensors.iter().map(|(part, tensor)| (part.name, &tensor.dtype));
            kind.packing == solved.packing && known.eq(stored)
        };
        let index = self.kinds.iter().position(is_kind).unwrap_or(self.kinds.len());
        if index == CountBreakdown::MAX_MODULE_KINDS {
            return;
        }
        if index == self.kinds.len() {
            let Solved { packing, evidence, .. } = *solved;
            let components = module.tensors.iter();
            let components = components.map(|(part, tensor)| (part.name, tensor.dtype.clone()));
            let (components, modules, elements, parameters) = (components.collect(), 0, 0, 0);
            let kind = ModuleKind { packing, evidence, components, modules, elements, parameters };
            self.kinds.push(kind);
        }
        let kind = &mut self.kinds[index];
        kind.modules += 1;
        let weights = module.tensors.iter().filter(|(component, _)| *component == solved.weights);
        for (_, tensor) in weights.filter(|(_, tensor)| !tensor.is_scalar()) {
            kind.elements = kind.elements.saturating_add(tensor.elements().unwrap_or_default());
        }
        kind.parameters = kind.parameters.saturating_add(solved.parameters);
    }

    /// Records a module with an uncertain size.
    pub(super) fn add_unresolved(&mut self, module: &str, reason: UnresolvedReason, elements: u64) {
        let found = self.unresolved.entry(reason).or_insert_with(|| UnresolvedModules::new(reason));
        found.add(module, elements);
    }

    /// Records modules whose size is derived but uncertain.
    pub(super) fn add_doubts(&mut self, doubts: impl IntoIterator<Item = UnresolvedModules>) {
        for found in doubts {
            self.unresolved.entry(found.reason).or_insert(found);
        }
    }

    /// Returns the output embedding if it is tied. It is not counted if `counts_once` is set and the input embedding has
    /// the same size.
    fn tied_output(&mut self, counts_once: bool) -> Option<TiedOutput> {
        let (input, output) = (self.input.as_ref()?, self.output.as_mut()?);
        let parameters = output.group.count.parameters;
        let is_copy = counts_once && input.group.count.parameters == parameters;
        let left_out = is_copy.then_some(parameters);
        if is_copy {
            output.group.buffer = None;
            leave_out(&mut output.group, CountedAs::TiedCopy, &mut self.total);
        }
        Some(TiedOutput { tensor: output.name.clone(), input: input.name.clone(), left_out })
    }

    /// Returns whether anything suggests that weights are packed. Shapes alone prove nothing: models without a quantizer have
    /// tables of any shape.
    fn has_sign_of_quantizer(&self, configs: &Configs) -> bool {
        let is_auxiliary =
            |group: &TensorGroup| matches!(group.counted_as, CountedAs::AuxiliaryTensor(_));
        !configs.quantization.is_empty()
            || !self.kinds.is_empty()
            || !self.unresolved.is_empty()
            || self.groups.iter().any(|group| {
                is_auxiliary(group) || group.buffer.is_none() && group.dtype.is_narrow_float()
            })
    }

    /// Leaves out the EMA copies of weights that are counted, too. Copies without the weights are the model.
    fn leave_out_copies(&mut self) {
        let copies = self.groups.iter_mut().filter(|group| group.buffer == Some(Buffer::EmaCopy));
        let copies: Vec<_> = copies.filter(|group| group.counted_as.is_counted()).collect();
        let parameters: u64 = copies.iter().map(|group| group.count.parameters).sum();
        let is_stored = parameters <= self.total.parameters - parameters;
        if is_stored && self.shapes.has_matrices_of(&self.copies) {
            for group in copies {
                leave_out(group, CountedAs::EmaCopy, &mut self.total);
            }
        }
    }

    /// Leaves out rotary frequencies and IDs in a checkpoint of SINQ, which stores the buffers that models compute, too.
    /// Source: `BaseSINQHFModel.serialize_weights` in `sinq/patch_model.py` 0.2.
    fn leave_out_computed(&mut self, configs: &Configs) {
        const SINQ: &str = "sinq";

        let is_written = self.kinds.iter().any(|kind| kind.packing.layout == SINQ);
        if !is_written && configs.method() != Some(SINQ) {
            return;
        }
        let is_computed = |group: &&mut TensorGroup| {
            let is_computed = [Buffer::RotaryFrequencies, Buffer::Ids].map(Some);
            is_computed.contains(&group.buffer) && group.counted_as.is_counted()
        };
        for group in self.groups.iter_mut().filter(is_computed) {
            group.buffer = None;
            let class = CountedAs::AuxiliaryTensor(AuxiliaryTensor::State);
            leave_out(group, class, &mut self.total);
        }
    }

    /// Adds the embeddings to the groups. Returns the number of parameters in an input embedding that is not the output
    /// embedding. Their sizes may differ, because one of them may be padded.
    fn add_embeddings(&mut self) -> u64 {
        let (input, output) = (self.input.take(), self.output.take());
        let is_separate = output.as_ref().is_some_and(|output| output.group.count.counted > 0);
        let table = if is_separate { input.as_ref() } else { None };
        let table = table.map_or(0, |input| input.group.count.parameters);
        input.into_iter().chain(output).for_each(|embedding| self.add_to_groups(embedding.group));
        table
    }

    /// Adds the doubts about integers and about shapes that look packed.
    fn add_shape_doubts(&mut self, configs: &Configs) {
        let integers = std::mem::take(&mut self.integers).finish(self.total.parameters);
        self.add_doubts(integers);
        if self.has_sign_of_quantizer(configs) {
            self.add_doubts(self.shapes.finish());
        }
    }

    /// Adds the groups of biases, and leaves out those that a quantizer added.
    fn add_biases(&mut self) {
        if let Some(module) = self.biases.doubt() {
            let module = module.to_owned();
            self.add_unresolved(&module, UnresolvedReason::UnknownBias, 0);
        }
        for (mut biases, is_added) in std::mem::take(&mut self.biases).finish() {
            if is_added {
                let class = CountedAs::AuxiliaryTensor(AuxiliaryTensor::Bias);
                leave_out(&mut biases, class, &mut self.total);
            }
            self.groups.push(biases);
        }
    }

    /// Sorts the groups, joins equal ones, and sorts the kinds of modules.
    fn sort(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        sort_by(&mut groups, Ord::cmp);
        for group in groups {
            self.add_to_groups(group);
        }
        sort_by(&mut self.kinds, |one, other| {
            (&one.packing, &one.components).cmp(&(&other.packing, &other.components))
        });
    }

    /// Returns whether the class of the model stores its output embedding, whatever the configuration ties.
    fn has_own_head(&self, expected: Option<&ExpectedWeights<'_>>) -> bool {
        let head = self.output.as_ref().zip(expected);
        head.is_some_and(|(head, expected)| expected.requires(module_of(&head.name)))
    }

    /// Returns the layout in which most parameters are packed.
    fn main_layout(&self) -> Option<&'static str> {
        let packed = self.kinds.iter().filter(|kind| kind.parameters > kind.elements);
        packed.max_by_key(|kind| kind.parameters).map(|kind| kind.packing.layout)
    }

    /// Returns the results. All tensors must have been added.
    pub(super) fn finish(
        mut self,
        configs: &Configs,
        expected: Option<ExpectedWeights<'_>>,
        needs_config: bool,
        is_self_describing: bool,
    ) -> (ParameterCount, CountBreakdown) {
        let has_own_head = self.has_own_head(expected.as_ref());
        let is_known_model = expected.is_some();
        if let Some(expected) = expected {
            self.shapes.compare_with(expected);
        }
        let is_confirmed = self.shapes.is_confirmed();
        if !is_self_describing {
            self.add_shape_doubts(configs);
        }
        // Some classes do not tie their head, whatever the key says.
        let is_tied = configs.is_tied && !has_own_head;
        let tied_output = if is_tied { self.tied_output(needs_config) } else { None };
        if let Some(TiedOutput { tensor, left_out: Some(parameters), .. }) = &tied_output
            && !is_known_model
        {
            self.add_unresolved(module_of(tensor), UnresolvedReason::UnknownHead, *parameters);
        }
        let table = self.add_embeddings();
        self.add_biases();
        self.leave_out_copies();
        self.leave_out_computed(configs);
        self.sort();
        let named = configs.method();
        let method = named.or_else(|| self.main_layout()).map(str::to_owned);
        let moe = self.experts.mixture(&configs.experts, self.total.parameters, table);
        // No row can overflow, because the total is larger and did not.
        let rows = self.groups.iter().map(|group| (&group.dtype, &group.count));
        let parameters = ParameterCount::new(rows);
        let breakdown = CountBreakdown {
            rules: RuleSet::CURRENT,
            method,
            unknown_method: named.filter(|name| !is_known(name)).map(str::to_owned),
            groups: self.groups,
            module_kinds: self.kinds,
            unresolved: self.unresolved.into_values().collect(),
            moe: moe.ok().flatten(),
            // Not every way to read has the configuration.
            moe_unknown: if needs_config || is_self_describing { moe.err() } else { None },
            tied_output,
            is_confirmed,
        };
        (parameters, breakdown)
    }
}

/// Takes a group out of a total.
fn leave_out(group: &mut TensorGroup, class: CountedAs, total: &mut DtypeCount) {
    total.parameters -= group.count.parameters;
    total.counted -= group.count.counted;
    group.count = DtypeCount { counted: 0, parameters: 0, ..group.count };
    group.counted_as = class;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;
    use hf_meta_format::formats::Dtype;

    type Tensor<'a> = (&'a str, &'a [u64]);

    fn count(config: &str, tensors: &[Tensor<'_>]) -> (u64, CountBreakdown) {
        let mut counter = Counter::new();
        for (name, shape) in tensors {
            counter.add(name, &TensorInfo::new(Dtype::BF16, shape.to_vec(), (0, 0))).unwrap();
        }
        counter.set_configs(Configs::from_config_json(config.as_bytes()).unwrap());
        let (parameters, breakdown) = counter.finish().unwrap();
        let groups = breakdown.groups.iter().map(|group| group.count);
        assert_eq!(groups.sum::<DtypeCount>(), *parameters.totals(), "{config}");
        (parameters.total(), breakdown)
    }

    #[test]
    fn a_copy_of_a_tied_embedding_is_counted_once() {
        const TIED: &str = r#"{"tie_word_embeddings":true,"num_experts_per_tok":1}"#;

        let experts = ("h.0.experts.w", &[2, 3, 4][..]);
        let input = ("model.embed_tokens.weight", &[8, 4][..]);
        let copy = ("lm_head.weight", &[8, 4][..]);
        let padded = ("lm_head.weight", &[9, 4][..]);
        let left_out = |breakdown: &CountBreakdown| Some(breakdown.tied_output.as_ref()?.left_out);
        for tensors in [[experts, input, copy], [copy, input, experts]] {
            let (total, breakdown) = count(TIED, &tensors);
            assert_eq!((total, left_out(&breakdown)), (24 + 32, Some(Some(32))));
            let moe = breakdown.moe.unwrap();
            assert_eq!(moe.active_without_lookup_tables(), 12 + 32);
        }
        // Padding makes it uncertain that one is a copy of the other.
        let (total, breakdown) = count(TIED, &[experts, input, padded]);
        assert_eq!((total, left_out(&breakdown)), (24 + 32 + 36, Some(None)));
        let (total, breakdown) = count(TIED, &[input, copy]);
        assert_eq!((total, left_out(&breakdown)), (64, Some(None)));
        let untied = TIED.replace("true", "false");
        let (total, breakdown) = count(&untied, &[experts, input, copy]);
        assert_eq!((total, left_out(&breakdown)), (24 + 64, None));
    }

    #[test]
    fn ema_copies_are_left_out_next_to_the_model() {
        let model = ("model.proj.weight", &[8, 4][..]);
        let copy = ("model_ema.proj.weight", &[8, 4][..]);
        let head = ("model.head.weight", &[2, 4][..]);
        let buffer = |tensors: &[Tensor<'_>]| {
            let (total, breakdown) = count("{}", tensors);
            let copies = breakdown.groups.iter().find(|group| group.buffer.is_some()).unwrap();
            (total, copies.counted_as, copies.count.elements)
        };
        assert_eq!(buffer(&[copy, model]), (32, CountedAs::EmaCopy, 32));
        assert_eq!(buffer(&[model, head, copy]), (40, CountedAs::EmaCopy, 32));
        assert_eq!(buffer(&[copy, head]), (40, CountedAs::AsStored, 32));
        assert_eq!(buffer(&[copy]), (32, CountedAs::AsStored, 32));
        // The only copy of another part of the model.
        let other = ("text.proj.weight", &[64, 4][..]);
        assert_eq!(buffer(&[other, copy]), (256 + 32, CountedAs::AsStored, 32));
    }

    #[test]
    fn the_input_embedding_is_a_lookup_table_unless_it_is_the_output() {
        let experts = ("h.0.experts.w", &[4, 10, 1][..]);
        let input = ("model.embed_tokens.weight", &[5, 10][..]);
        let config = r#"{"num_experts_per_tok":2}"#;
        let active = |tensors: &[Tensor<'_>]| {
            let moe = count(config, tensors).1.moe.unwrap();
            (moe.active(), moe.active_without_lookup_tables())
        };
        assert_eq!(active(&[experts, input]), (20 + 50, 20 + 50));
        assert_eq!(active(&[experts, input, ("lm_head.weight", input.1)]), (20 + 100, 20 + 50));
        assert_eq!(active(&[experts, input, ("lm_head.weight", &[6, 10])]), (20 + 110, 20 + 60));
    }
}
