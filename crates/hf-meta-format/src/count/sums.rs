//! Sums over the tensors of a model.

use std::collections::BTreeMap;

use super::counted_as::TensorUse;
use super::doubts::{Integers, ShapeCheck};
use super::experts::ExpertSums;
use super::methods::{Solved, is_known};
use super::module::{Component, Module, container_bits};
use super::names::TensorName;
use super::position::Embedding;
use super::{
    Buffer, Configs, CountBreakdown, CountOverflow, CountedAs, DtypeCount, Evidence, ModuleKind,
    Packing, ParameterCount, RuleSet, TensorGroup, TiedOutput, UnresolvedModules, UnresolvedReason,
};
use crate::formats::{Dtype, TensorInfo, clip};

/// Sums over the classified tensors.
#[derive(Clone, Debug, Default)]
pub(super) struct CountSums {
    total: DtypeCount,
    groups: BTreeMap<GroupKey, DtypeCount>,
    /// The groups of recent tensors, which later tensors usually share. They are not in `groups` yet.
    recent: Vec<(GroupKey, DtypeCount)>,
    experts: ExpertSums,
    shapes: ShapeCheck,
    kinds: Vec<KindSum>,
    unresolved: BTreeMap<UnresolvedReason, UnresolvedModules>,
    pub(super) integers: Integers,
    /// The largest input embedding.
    input: Option<StoredEmbedding>,
    /// The largest output embedding, which is not in the sums yet.
    output: Option<StoredEmbedding>,
}

/// An embedding outside of all layers.
#[derive(Clone, Debug)]
struct StoredEmbedding {
    name: String,
    parameters: u64,
    used: TensorUse,
    tensor: TensorInfo,
}

/// The number of recent groups. A model has few groups, and searching them linearly is faster than a map.
const MAX_RECENT: usize = 8;

/// A group's dtype, class and kind of buffer.
type GroupKey = (Dtype, CountedAs, Option<Buffer>);

/// Sums over the modules with the same packing and components.
#[derive(Clone, Debug)]
struct KindSum {
    packing: Packing,
    evidence: Evidence,
    components: Vec<(&'static Component, Dtype)>,
    modules: u64,
    /// The stored elements of the weights.
    elements: u64,
    parameters: u64,
}

impl KindSum {
    fn new(module: &Module<'_>, solved: &Solved) -> Self {
        let components = module.tensors.iter();
        Self {
            packing: solved.packing,
            evidence: solved.evidence,
            components: components.map(|(found, tensor)| (*found, tensor.dtype.clone())).collect(),
            modules: 0,
            elements: 0,
            parameters: 0,
        }
    }

    /// Returns whether a module is of this kind.
    fn is_kind_of(&self, module: &Module<'_>, packing: Packing) -> bool {
        let components = self.components.iter().map(|(component, dtype)| (*component, dtype));
        let found = module.tensors.iter().map(|(component, tensor)| (*component, &tensor.dtype));
        self.packing == packing && components.eq(found)
    }

    fn add(&mut self, module: &Module<'_>, solved: &Solved) {
        self.modules += 1;
        let weights = module.tensors.iter().filter(|(component, _)| *component == solved.weights);
        for (_, tensor) in weights.filter(|(_, tensor)| !tensor.is_scalar()) {
            self.elements = self.elements.saturating_add(tensor.elements().unwrap_or_default());
        }
        self.parameters = self.parameters.saturating_add(solved.parameters);
    }

    fn finish(self) -> ModuleKind {
        let components = self.components.into_iter();
        ModuleKind {
            packing: self.packing,
            evidence: self.evidence,
            components: components.map(|(component, dtype)| (component.name, dtype)).collect(),
            modules: self.modules,
            elements: self.elements,
            parameters: self.parameters,
        }
    }
}

impl CountSums {
    /// Adds a tensor.
    pub(super) fn add(
        &mut self,
        name: &TensorName<'_>,
        tensor: &TensorInfo,
        used: TensorUse,
    ) -> Result<(), CountOverflow> {
        let class = used.class(tensor);
        let parameters = used.parameters(tensor).ok_or_else(|| CountOverflow::new(name.name))?;
        self.experts.add(name, tensor, parameters);
        let embedding = name.embedding().filter(|_| parameters > 0 && !name.is_draft());
        let is_weights = matches!(used, TensorUse::Weights(..));
        // Only the sides of embeddings matter: a model may have more of them than of other weights.
        let sided = if embedding.is_some() && !is_weights { 0 } else { parameters };
        let is_packed = is_weights && container_bits(&tensor.dtype).is_some();
        if class == CountedAs::AsStored && !is_packed {
            self.shapes.add(name.name, tensor, sided);
        } else {
            self.shapes.add_packed(sided);
        }
        // Biases and other vectors next to an embedding, such as `head.probe` in SigLIP, have the bare name of a module.
        let named = embedding.filter(|_| !name.split().1.is_bare());
        let known = match named {
            Some(Embedding::Input) => &mut self.input,
            Some(Embedding::Output) => &mut self.output,
            Some(Embedding::LookupTable) | None => {
                return self.add_to_group(name.name, tensor, used);
            }
        };
        let is_input = named == Some(Embedding::Input);
        if known.as_ref().is_some_and(|known| known.parameters >= parameters) {
            return self.add_to_group(name.name, tensor, used);
        }
        let found =
            StoredEmbedding { name: clip(name.name), parameters, used, tensor: tensor.clone() };
        let previous = known.replace(found);
        if is_input {
            return self.add_to_group(name.name, tensor, used);
        }
        // The class of the largest output embedding is decided last.
        previous.map_or(Ok(()), |last| self.add_to_group(&last.name, &last.tensor, last.used))
    }

    /// Adds a tensor to the sums of its group, without regard to its position in the model.
    pub(super) fn add_to_group(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        used: TensorUse,
    ) -> Result<(), CountOverflow> {
        let class = used.class(tensor);
        let buffer = if let TensorUse::Stored(buffer) = used { buffer } else { None };
        let overflow = || CountOverflow::new(name);
        let elements = if tensor.is_scalar() { Some(0) } else { tensor.elements() };
        let count = DtypeCount {
            tensors: 1,
            counted: u64::from(class.is_counted()),
            parameters: used.parameters(tensor).ok_or_else(overflow)?,
            elements: elements.ok_or_else(overflow)?,
            scalars: u64::from(tensor.is_scalar()),
            bytes: tensor.byte_length(),
        };
        // The total bounds every group, so no other sum can overflow.
        self.total = self.total.checked_add(&count).ok_or_else(overflow)?;
        let is_group = |(key, _): &&mut (GroupKey, DtypeCount)| {
            (key.1, key.2) == (class, buffer) && key.0 == tensor.dtype
        };
        if let Some((_, sum)) = self.recent.iter_mut().find(is_group) {
            *sum = sum.saturating_add(&count);
        } else {
            if self.recent.len() == MAX_RECENT {
                self.flush();
            }
            self.recent.push(((tensor.dtype.clone(), class, buffer), count));
        }
        Ok(())
    }

    /// Moves the recent groups to the map.
    fn flush(&mut self) {
        for (key, count) in self.recent.drain(..) {
            let group = self.groups.entry(key).or_default();
            *group = group.saturating_add(&count);
        }
    }

    /// Adds a solved module to the sums of its kind, unless there are too many kinds.
    pub(super) fn add_kind(&mut self, module: &Module<'_>, solved: &Solved) {
        let is_kind = |kind: &KindSum| kind.is_kind_of(module, solved.packing);
        let index = self.kinds.iter().position(is_kind).unwrap_or(self.kinds.len());
        if index == CountBreakdown::MAX_MODULE_KINDS {
            return;
        }
        if index == self.kinds.len() {
            self.kinds.push(KindSum::new(module, solved));
        }
        self.kinds[index].add(module, solved);
    }

    /// Records weights that may be packed: integers under unknown names, and floats of unexpected shapes.
    pub(super) fn doubt_packing(&mut self) {
        // A copy that is not counted is stored, too.
        let is_copy = |output: &&StoredEmbedding| matches!(output.used, TensorUse::TiedCopy);
        let copy = self.output.as_ref().filter(is_copy).map_or(0, |output| output.parameters);
        let stored = self.total.parameters.saturating_add(copy);
        let integers = std::mem::take(&mut self.integers).finish(stored);
        for found in integers.into_iter().chain(self.shapes.finish()) {
            self.unresolved.entry(found.reason).or_insert(found);
        }
    }

    /// Records a module with an uncertain size.
    pub(super) fn add_unresolved(&mut self, module: &str, reason: UnresolvedReason, elements: u64) {
        let found = self.unresolved.entry(reason).or_insert_with(|| UnresolvedModules::new(reason));
        found.add(module, elements);
    }

    /// Records modules whose size is derived but uncertain.
    pub(super) fn add_doubt(&mut self, found: Option<UnresolvedModules>) {
        self.unresolved.extend(found.map(|found| (found.reason, found)));
    }

    /// Returns true if any tensor belongs to routed experts.
    pub(super) fn has_experts(&self) -> bool {
        self.experts.has_experts()
    }

    /// Returns true if any tensor may belong to a router.
    pub(super) fn has_router(&self) -> bool {
        self.experts.has_router()
    }

    /// Adds the output embedding, and returns it if it is tied. It is not counted if `counts_once` is set and the input
    /// embedding has the same size.
    pub(super) fn add_output(
        &mut self,
        is_tied: bool,
        counts_once: bool,
    ) -> Result<Option<TiedOutput>, CountOverflow> {
        let Some(output) = &mut self.output else { return Ok(None) };
        let mut tied = None;
        if let Some(input) = self.input.as_ref().filter(|_| is_tied) {
            let is_copy = counts_once && input.parameters == output.parameters;
            let (tensor, input) = (output.name.clone(), input.name.clone());
            tied =
                Some(TiedOutput { tensor, input, left_out: is_copy.then_some(output.parameters) });
            if is_copy {
                output.used = TensorUse::TiedCopy;
            }
        }
        let StoredEmbedding { name, tensor, used, .. } = output.clone();
        self.add_to_group(&name, &tensor, used)?;
        Ok(tied)
    }

    /// Returns the number of parameters in an input embedding that is not the output embedding. Their sizes may differ,
    /// because one of them may be padded.
    fn input_table(&self) -> u64 {
        let is_copy = |output: &StoredEmbedding| matches!(output.used, TensorUse::TiedCopy);
        let is_separate = self.output.as_ref().is_some_and(|output| !is_copy(output));
        self.input.as_ref().filter(|_| is_separate).map_or(0, |input| input.parameters)
    }

    /// Returns the results. All tensors must have been added.
    pub(super) fn finish(mut self, configs: &Configs) -> (ParameterCount, CountBreakdown) {
        self.flush();
        self.kinds.sort_unstable_by(|one, other| {
            (&one.packing, &one.components).cmp(&(&other.packing, &other.components))
        });
        let input = self.input_table();
        let moe = self.experts.mixture(&configs.experts, self.total.parameters, input);
        let rows = self.groups.iter().map(|((dtype, ..), count)| (dtype, *count));
        let parameters = ParameterCount::from_rows(rows, self.total);
        let groups = self.groups.into_iter().map(|((dtype, counted_as, buffer), count)| {
            TensorGroup { dtype, counted_as, buffer, count }
        });
        let module_kinds: Vec<_> = self.kinds.into_iter().map(KindSum::finish).collect();
        let largest = module_kinds.iter().filter(|kind| kind.parameters > kind.elements);
        let largest = largest.max_by_key(|kind| kind.parameters).map(|kind| kind.packing.layout);
        let named = configs.method();
        let unknown_method = named.filter(|name| !is_known(name)).map(str::to_owned);
        let breakdown = CountBreakdown {
            rules: RuleSet::CURRENT,
            method: named.or(largest).map(str::to_owned),
            unknown_method,
            groups: groups.collect(),
            module_kinds,
            unresolved: self.unresolved.into_values().collect(),
            moe: moe.ok().flatten(),
            moe_unknown: moe.err(),
            tied_output: None,
            config_total: None,
            contradicts_config: false,
            needs_config: false,
        };
        (parameters, breakdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;

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
