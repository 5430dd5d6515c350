//! Adding up tensors by the rules, and what came of it.

use std::collections::BTreeMap;

use super::experts::Experts;
use super::{Buffer, Classifier, CountedAs, MixtureOfExperts, RuleSet};
use crate::count::{DtypeCount, ParameterCount};
use crate::formats::{Dtype, TensorInfo};

/// Adds up tensors one by one, in whatever order, and keeps none of them.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    count: ParameterCount,
    groups: BTreeMap<(Dtype, CountedAs, Option<Buffer>), DtypeCount>,
    experts: Experts,
}

impl Counter {
    /// Adds a tensor; `None` when a sum leaves 64 bits, after which the tally is of no more use.
    pub fn add(&mut self, rules: &Classifier<'_>, name: &str, info: &TensorInfo) -> Option<()> {
        let reason = rules.judge(name, info);
        let parameters = if info.is_scalar() { 0 } else { reason.parameters(info.elements()?)? };
        let counted = if reason.is_counted() { Some(parameters) } else { None };
        let count = DtypeCount::of(info, counted)?;
        self.count.add_row(&info.dtype, count)?;
        let key = (info.dtype.clone(), reason, Buffer::of(name, info));
        let group = self.groups.entry(key).or_default();
        *group = group.checked_add(count)?;
        if let Some(counts) = rules.experts() {
            self.experts.add(counts, name, info, parameters);
        }
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
        let groups = groups.map(|((dtype, reason, buffer), count)| TensorGroup {
            dtype,
            reason,
            buffer,
            count,
        });
        let counting = CountBreakdown {
            rules: RuleSet::CURRENT,
            method: rules.method().map(str::to_owned),
            groups: groups.collect(),
            moe: self.experts.mixture(rules.experts(), self.count.total()),
        };
        (self.count, counting)
    }
}

/// How the parameters of a set of weights were counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CountBreakdown {
    /// The rules that were applied.
    pub rules: RuleSet,
    /// The quantization method, in lower case, where the configuration was asked for and names one.
    pub method: Option<String>,
    /// All tensors, in groups that were counted alike, ordered by dtype.
    pub groups: Vec<TensorGroup>,
    /// How many of the parameters work on one token; `None` for a model without routed experts, and
    /// where the configuration and the tensors leave it unclear.
    pub moe: Option<MixtureOfExperts>,
}

/// Tensors of one dtype that were counted alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorGroup {
    /// Their dtype.
    pub dtype: Dtype,
    /// Why they count as they do.
    pub reason: CountedAs,
    /// What they are, if they are no weights.
    pub buffer: Option<Buffer>,
    /// What they amount to.
    pub count: DtypeCount,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::ModelConfig;

    fn counting(
        config: &str,
        tensors: &[(&str, Dtype, &[u64])],
    ) -> Option<(ParameterCount, CountBreakdown)> {
        let config = ModelConfig::from_json(config.as_bytes()).unwrap();
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, dtype, shape)| {
                let shape = shape.to_vec();
                (*name, TensorInfo { dtype: dtype.clone(), shape, data_offsets: (0, 0) })
            })
            .collect();
        let rules =
            Classifier::new(Some(&config), tensors.iter().map(|(name, info)| (*name, info)));
        let mut tally = Counter::default();
        for (name, info) in &tensors {
            tally.add(&rules, name, info)?;
        }
        Some(tally.finish(&rules))
    }

    const GPTQ: &str = r#"{"quantization_config":{"quant_method":"gptq","bits":4},
        "num_experts":2,"num_experts_per_tok":1}"#;

    #[test]
    fn groups_with_their_reasons() {
        let (count, counting) = counting(
            GPTQ,
            &[
                ("h.0.experts.0.qweight", Dtype::I32, &[10]),
                ("h.0.experts.1.qweight", Dtype::I32, &[10]),
                ("h.0.qzeros", Dtype::I32, &[3]),
                ("h.0.scales", Dtype::F16, &[2]),
                ("norm.weight", Dtype::BF16, &[5]),
                ("attn.bias", Dtype::F32, &[1, 1, 4, 4]),
                ("attn.masked_bias", Dtype::F32, &[]),
            ],
        )
        .unwrap();
        let groups: Vec<_> = counting
            .groups
            .iter()
            .map(|group| {
                let DtypeCount { tensors, elements, parameters, .. } = group.count;
                let buffer = group.buffer.map_or_else(String::new, |buffer| format!(" ({buffer})"));
                let what = format!("{} {}{buffer}", group.dtype, group.reason);
                format!("{what}: {tensors}, {elements}, {parameters}")
            })
            .collect();
        assert_eq!(
            groups,
            [
                "F16 scale, not counted: 1, 2, 0",
                "BF16 as stored: 1, 5, 5",
                "I32 unpacked ×8: 2, 20, 160",
                "I32 zero point, not counted: 1, 3, 0",
                "F32 as stored (attention mask): 1, 16, 16",
                "F32 scalar, not counted (attention mask): 1, 0, 0",
            ]
        );
        let counted: Vec<_> = count.iter().map(|(dtype, n)| (dtype.as_str(), n)).collect();
        assert_eq!(counted, [("BF16", 5), ("I32", 160), ("F32", 16)]);
        assert_eq!(count.total(), 181);
        assert_eq!((counting.rules, counting.method.as_deref()), (RuleSet::CURRENT, Some("gptq")));
        assert_eq!(counting.moe.map(|moe| moe.active()), Some(101));
    }

    #[test]
    fn parameters_do_not_wrap_where_elements_do_not() {
        let huge = 1 << 61;
        assert!(counting(GPTQ, &[("qweight", Dtype::from("?"), &[huge - 1])]).is_some());
        assert!(counting(GPTQ, &[("qweight", Dtype::from("?"), &[huge])]).is_none());
    }
}
