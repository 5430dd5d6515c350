//! Adding up tensors by the rules, and what came of it.

use std::collections::BTreeMap;

use super::experts::ExpertSums;
use super::{Buffer, Classifier, Configs, CountBreakdown, CountedAs, RuleSet, TensorGroup};
use crate::count::{DtypeCount, ParameterCount};
use crate::formats::{Dtype, TensorInfo};

/// Adds up tensors one by one, in whatever order, and keeps none of them.
#[derive(Clone, Debug, Default)]
pub struct MergingCounter {
    count: ParameterCount,
    groups: BTreeMap<(Dtype, CountedAs, Option<Buffer>), DtypeCount>,
    experts: ExpertSums,
}

impl MergingCounter {
    /// Adds a tensor; `None` when a sum leaves 64 bits, after which the tally is of no more use.
    pub fn add(&mut self, rules: &Classifier<'_>, name: &str, info: &TensorInfo) -> Option<()> {
        let reason = rules.judge(name, info);
        let parameters = if info.is_scalar() { 0 } else { reason.parameters(info.elements()?)? };
        let counted = if reason.is_counted() { Some(parameters) } else { None };
        let count = DtypeCount::of(info, counted)?;
        self.count.add_row(&info.dtype, count)?;
        let key = (info.dtype.clone(), reason, Buffer::from_tensor(name, info));
        let group = self.groups.entry(key).or_default();
        *group = group.checked_add(count)?;
        self.experts.add(&super::module_part::ModulePart::new(name, info), parameters);
        Some(())
    }

    /// Adds another tally by the same rules; `None` when a sum leaves 64 bits.
    pub fn merge(&mut self, other: Self) -> Option<()> {
        self.count.merge(&other.count)?;
        for (key, count) in other.groups {
            let group = self.groups.entry(key).or_default();
            *group = group.checked_add(count)?;
        }
        self.experts.merge(&other.experts);
        Some(())
    }

    /// What the tensors amount to, and how that was counted.
    #[must_use]
    pub fn finish(self, rules: &Classifier<'_>) -> (ParameterCount, CountBreakdown) {
        let groups = self.groups.into_iter();
        let groups = groups.map(|((dtype, counted_as, buffer), count)| TensorGroup {
            dtype,
            counted_as,
            buffer,
            count,
        });
        let counting = CountBreakdown {
            rules: RuleSet::CURRENT,
            method: rules.configs.and_then(Configs::method).map(str::to_owned),
            groups: groups.collect(),
            moe: self
                .experts
                .mixture(rules.configs.and_then(|configs| configs.experts), self.count.total()),
        };
        (self.count, counting)
    }
}
