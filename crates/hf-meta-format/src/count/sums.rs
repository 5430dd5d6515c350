//! Sums over the tensors of a model.

use std::collections::BTreeMap;

use super::experts::ExpertSums;
use super::methods::{Solved, is_known};
use super::module::{Component, Module, container_bits};
use super::shape_check::ShapeCheck;
use super::{
    Buffer, Configs, CountBreakdown, CountOverflow, CountedAs, DtypeCount, Evidence, ModuleKind,
    Packing, ParameterCount, RuleSet, TensorGroup, TiedOutput, UnresolvedModules, UnresolvedReason,
};
use crate::formats::{Dtype, TensorInfo};

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
    /// The integers that are counted as stored, and their bytes. Their names belong to no known method.
    integers: Option<(UnresolvedModules, u64)>,
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
    /// Adds a tensor whose elements are not packed.
    pub(super) fn add(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        class: CountedAs,
        buffer: Option<Buffer>,
    ) -> Result<(), CountOverflow> {
        let is_state = buffer == Some(Buffer::OptimizerState) && class == CountedAs::AsStored;
        let class = if is_state { CountedAs::OptimizerState } else { class };
        let overflow = || CountOverflow::new(name);
        let parameters = if class.is_counted() { tensor.elements() } else { Some(0) };
        let parameters = parameters.ok_or_else(overflow)?;
        let is_embedding =
            self.checked_add(name, tensor, (class, buffer), parameters).ok_or_else(overflow)?;
        // Only the sides of embeddings matter: a model may have more of them than of other weights.
        let parameters = if is_embedding { 0 } else { parameters };
        if class == CountedAs::AsStored {
            self.shapes.add(name, tensor, parameters);
        } else {
            self.shapes.add_packed(parameters);
        }
        Ok(())
    }

    /// Adds the weights of a module.
    pub(super) fn add_weights(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        solved: &Solved,
    ) -> Result<(), CountOverflow> {
        let is_as_stored = tensor.elements() == Some(solved.parameters);
        let class =
            if is_as_stored { CountedAs::AsStored } else { CountedAs::Unpacked(solved.packing) };
        if is_as_stored && container_bits(&tensor.dtype).is_none() {
            self.shapes.add(name, tensor, solved.parameters);
        } else {
            self.shapes.add_packed(solved.parameters);
        }
        let added = self.checked_add(name, tensor, (class, None), solved.parameters);
        added.map(|_| ()).ok_or_else(|| CountOverflow::new(name))
    }

    /// Returns whether the tensor is an embedding; `None` if a sum overflows.
    fn checked_add(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        (class, buffer): (CountedAs, Option<Buffer>),
        parameters: u64,
    ) -> Option<bool> {
        let count = DtypeCount {
            tensors: 1,
            counted: u64::from(class.is_counted()),
            parameters,
            elements: if tensor.is_scalar() { 0 } else { tensor.elements()? },
            scalars: u64::from(tensor.is_scalar()),
            bytes: tensor.byte_length(),
        };
        // The total bounds every group, so no other sum can overflow.
        self.total = self.total.checked_add(&count)?;
        let is_embedding = self.experts.add(name, tensor, class, &count);
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
        Some(is_embedding)
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

    /// Adds integers that are counted as stored, although they may be packed.
    #[cold]
    pub(super) fn add_integers(&mut self, name: &str, tensor: &TensorInfo) {
        let new = || (UnresolvedModules::new(UnresolvedReason::SuspectedPacking), 0);
        let (found, bytes) = self.integers.get_or_insert_with(new);
        found.add(name, tensor.elements().unwrap_or_default());
        *bytes = bytes.saturating_add(tensor.byte_length());
    }

    /// Records weights that may be packed: integers under unknown names that are too many and too large for tables and
    /// masks, and floats of unexpected shapes.
    pub(super) fn doubt_packing(&mut self) {
        const MIN_TENSORS: u64 = 4;
        const MIN_SHARE: u64 = 4;

        // Each bit may be a weight.
        let is_large =
            |bytes: u64| bytes.saturating_mul(8).saturating_mul(MIN_SHARE) > self.total.parameters;
        let integers = self.integers.take();
        let integers = integers
            .filter(|(found, bytes)| found.modules >= MIN_TENSORS && is_large(*bytes))
            .map(|(found, _)| found);
        for found in [integers, std::mem::take(&mut self.shapes).finish()].into_iter().flatten() {
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

    /// Returns whether any module is unresolved for this reason.
    pub(super) fn has_unresolved(&self, reason: UnresolvedReason) -> bool {
        self.unresolved.contains_key(&reason)
    }

    /// Returns true if any tensor belongs to routed experts.
    pub(super) fn has_experts(&self) -> bool {
        self.experts.has_experts()
    }

    /// Returns true if any tensor may belong to a router.
    pub(super) fn has_router(&self) -> bool {
        self.experts.has_router()
    }

    /// Finds an output embedding that is stored although it is tied. Removes it from the count if `counts_once` is set
    /// and both embeddings have the same size.
    fn find_tied_output(&mut self, counts_once: bool) -> Option<TiedOutput> {
        let (input, output) = self.experts.embeddings()?;
        let is_copy = counts_once && input.count.parameters == output.count.parameters;
        let parameters = output.count.parameters;
        let left_out = is_copy.then_some(parameters);
        let found = TiedOutput { tensor: output.name.clone(), input: input.name.clone(), left_out };
        if is_copy {
            let counted = DtypeCount { counted: 1, parameters, ..DtypeCount::default() };
            let copy = output.count.saturating_sub(&counted);
            let key = (output.dtype.clone(), output.class, None);
            let copies = self.groups.entry((output.dtype.clone(), CountedAs::TiedCopy, None));
            let copies = copies.or_default();
            *copies = copies.saturating_add(&copy);
            if let Some(group) = self.groups.get_mut(&key) {
                *group = group.saturating_sub(&output.count);
                if group.tensors == 0 {
                    self.groups.remove(&key);
                }
            }
            self.total = self.total.saturating_sub(&counted);
            self.experts.remove_output();
        }
        Some(found)
    }

    /// Returns the results. `counts_once` applies to a tied embedding that is stored twice.
    pub(super) fn finish(
        mut self,
        configs: &Configs,
        counts_once: bool,
    ) -> (ParameterCount, CountBreakdown) {
        self.flush();
        let tied_output = if configs.is_tied { self.find_tied_output(counts_once) } else { None };
        self.kinds.sort_unstable_by(|one, other| {
            (&one.packing, &one.components).cmp(&(&other.packing, &other.components))
        });
        let moe = self.experts.mixture(&configs.experts, self.total.parameters);
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
        let method = named.or(largest).map(str::to_owned);
        let unresolved = self.unresolved.into_values().collect();
        let breakdown = CountBreakdown {
            rules: RuleSet::CURRENT,
            method,
            unknown_method,
            groups: groups.collect(),
            module_kinds,
            unresolved,
            moe: moe.ok().flatten(),
            moe_unknown: moe.err(),
            tied_output,
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
}
