//! Sums over the tensors of a model.

use std::collections::BTreeMap;

use super::expert_sums::ExpertSums;
use super::methods::is_known;
use super::module::{Module, Solved};
use super::part::PartId;
use super::{
    Buffer, Configs, CountBreakdown, CountOverflow, CountedAs, DtypeCount, ModuleKind, Packing,
    ParameterCount, RuleSet, TensorGroup, UnresolvedModules, UnresolvedReason,
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
    kinds: Vec<(KindKey, KindSum)>,
    /// The index of the last module's kind.
    last_kind: Option<usize>,
    unresolved: BTreeMap<UnresolvedReason, UnresolvedModules>,
}

/// The number of recent groups. A model has few groups, and searching them linearly is faster than a map.
const MOST_RECENT: usize = 8;

/// A group's dtype, class and kind of buffer.
type GroupKey = (Dtype, CountedAs, Option<Buffer>);

/// A module's packing and parts.
type KindKey = (Packing, Vec<(PartId, Dtype)>);

#[derive(Clone, Debug, Default)]
struct KindSum {
    modules: u64,
    /// The stored elements of the weights.
    elements: u64,
    parameters: u64,
    /// The stored elements of each part, without scalars.
    part_elements: Vec<u64>,
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
        let parameters = if class.is_counted() { tensor.elements() } else { Some(0) };
        let added = parameters
            .and_then(|parameters| self.checked_add(name, tensor, (class, buffer), parameters));
        added.ok_or_else(|| CountOverflow::new(name))
    }

    /// Adds a tensor without parameters; `None` if a sum does not fit in 64 bits.
    pub(super) fn add_uncounted(&mut self, tensor: &TensorInfo, class: CountedAs) -> Option<()> {
        self.checked_add("", tensor, (class, None), 0)
    }

    /// Adds the weights of a module.
    pub(super) fn add_weights(
        &mut self,
        module: &Module<'_>,
        solved: &Solved,
        tensor: &TensorInfo,
    ) -> Result<(), CountOverflow> {
        let is_as_stored = tensor.elements() == Some(solved.parameters);
        let class =
            if is_as_stored { CountedAs::AsStored } else { CountedAs::Unpacked(solved.packing) };
        let name = solved.weights.tensor_name(module.name);
        let added = self.checked_add(&name, tensor, (class, None), solved.parameters);
        added.ok_or_else(|| CountOverflow::new(&name))
    }

    fn checked_add(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        (class, buffer): (CountedAs, Option<Buffer>),
        parameters: u64,
    ) -> Option<()> {
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
        self.experts.add(name, tensor, parameters);
        let is_group = |(key, _): &&mut (GroupKey, DtypeCount)| {
            (key.1, key.2) == (class, buffer) && key.0 == tensor.dtype
        };
        if let Some((_, sum)) = self.recent.iter_mut().find(is_group) {
            *sum = sum.saturating_add(&count);
        } else {
            if self.recent.len() == MOST_RECENT {
                self.flush();
            }
            self.recent.push(((tensor.dtype.clone(), class, buffer), count));
        }
        Some(())
    }

    /// Moves the recent groups to the map.
    fn flush(&mut self) {
        for (key, count) in self.recent.drain(..) {
            let group = self.groups.entry(key).or_default();
            *group = group.saturating_add(&count);
        }
    }

    pub(super) fn add_kind(&mut self, module: &Module<'_>, solved: &Solved) {
        let Some(kind) = self.kind(module, solved) else { return };
        kind.modules += 1;
        for ((part, tensor), sum) in module.parts.iter().zip(&mut kind.part_elements) {
            let elements = tensor.elements().filter(|_| !tensor.is_scalar()).unwrap_or_default();
            *sum = sum.saturating_add(elements);
            if *part == solved.weights {
                kind.elements = kind.elements.saturating_add(elements);
            }
        }
        kind.parameters = kind.parameters.saturating_add(solved.parameters);
    }

    /// Returns the sum of a module's kind; `None` if there are too many kinds.
    fn kind(&mut self, module: &Module<'_>, solved: &Solved) -> Option<&mut KindSum> {
        let is_kind = |((packing, parts), _): &(KindKey, KindSum)| {
            let found = module.parts.iter().map(|(part, tensor)| (part, &tensor.dtype));
            *packing == solved.packing && parts.iter().map(|(part, dtype)| (part, dtype)).eq(found)
        };
        // Consecutive modules are usually of the same kind.
        let at = match self.last_kind.filter(|&at| is_kind(&self.kinds[at])) {
            Some(at) => at,
            None => match self.kinds.iter().position(is_kind) {
                Some(at) => at,
                None if self.kinds.len() == CountBreakdown::MOST_KINDS => return None,
                None => {
                    let parts =
                        module.parts.iter().map(|(part, tensor)| (*part, tensor.dtype.clone()));
                    let part_elements = vec![0; module.parts.len()];
                    let sum = KindSum { part_elements, ..KindSum::default() };
                    self.kinds.push(((solved.packing, parts.collect()), sum));
                    self.kinds.len() - 1
                }
            },
        };
        self.last_kind = Some(at);
        Some(&mut self.kinds[at].1)
    }

    /// Records a module with an uncertain size.
    pub(super) fn add_unresolved(&mut self, module: &str, reason: UnresolvedReason, elements: u64) {
        let found = self.unresolved.entry(reason).or_insert_with(|| UnresolvedModules::new(reason));
        found.modules += 1;
        found.elements = found.elements.saturating_add(elements);
        if found.examples.len() < UnresolvedModules::MAX_EXAMPLES {
            found.examples.push(clip(module));
        }
    }

    /// Returns whether any module is unresolved for this reason.
    pub(super) fn has_unresolved(&self, reason: UnresolvedReason) -> bool {
        self.unresolved.contains_key(&reason)
    }

    /// Returns true if any tensor belongs to routed experts.
    pub(super) fn has_experts(&self) -> bool {
        self.experts.has_experts()
    }

    /// Returns the number of tensors.
    #[cfg(test)]
    pub(super) fn tensors(&self) -> u64 {
        self.total.tensors
    }

    /// Returns the results.
    pub(super) fn finish(mut self, configs: &Configs) -> (ParameterCount, CountBreakdown) {
        self.flush();
        self.kinds.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (moe, moe_unknown) = match self.experts.mixture(&configs.experts, self.total.parameters)
        {
            Ok(moe) => (moe, None),
            Err(reason) => (None, Some(reason)),
        };
        let rows = self.groups.iter().map(|((dtype, ..), count)| (dtype, *count));
        let parameters = ParameterCount::from_rows(rows, self.total);
        let groups = self.groups.into_iter().map(|((dtype, counted_as, buffer), count)| {
            TensorGroup { dtype, counted_as, buffer, count }
        });
        let rules = &configs.huggingface_js;
        let kinds = self.kinds.into_iter().map(|((packing, parts), sum)| ModuleKind {
            huggingface_js: rules.module_parameters(&packing, &parts, &sum.part_elements),
            packing,
            parts: parts.into_iter().map(|(part, dtype)| (part.name(), dtype)).collect(),
            modules: sum.modules,
            elements: sum.elements,
            parameters: sum.parameters,
        });
        let module_kinds: Vec<_> = kinds.collect();
        let largest = module_kinds.iter().filter(|kind| kind.parameters > kind.elements);
        let largest = largest.max_by_key(|kind| kind.parameters).map(|kind| kind.packing.layout);
        let named = configs.quantization.method();
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
            moe,
            moe_unknown,
        };
        (parameters, breakdown)
    }
}
