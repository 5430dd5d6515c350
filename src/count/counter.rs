//! The counter that every path feeds.

use std::collections::BTreeMap;

use thiserror::Error;

use super::config_use::ConfigUse;
use super::configs::UNQUANTIZED;
use super::experts::ExpertSums;
use super::methods::Module;
use super::module_part::ModulePart;
use super::waiting::WaitingTensors;
use super::{
    Buffer, Configs, CountBreakdown, CountedAs, DtypeCount, ParameterCount, RuleSet, TensorGroup,
};
use crate::formats::{Dtype, TensorInfo, TensorTable, clip};

/// Counts the parameters of a set of weights, tensor by tensor.
///
/// The result does not depend on the order of the tensors, on their split into files, or on the moment at
/// which the configuration arrives. A tensor that no configuration could change is added to the sums at once. Any
/// other is stored in a compact form until [`set_configs`](Self::set_configs); where the method looks at
/// whole modules, it is stored until [`finish`](Self::finish).
///
/// ```
/// use hf_meta::SafetensorsFileHeader;
/// use hf_meta::count::{Configs, Counter};
///
/// let json = br#"{"q.qweight":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},
///     "norm.weight":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// let mut counter = Counter::new();
/// counter.add_table(header.tensors())?;
/// if counter.needs_config() {
///     let json = br#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#;
///     counter.set_configs(Configs::from_config_json(json)?);
/// }
/// let (parameters, breakdown) = counter.finish()?;
/// assert_eq!(parameters.total(), 2 * 8 + 4);
/// assert_eq!(breakdown.method.as_deref(), Some("gptq"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Counter {
    configs: Option<Configs>,
    needs_config: bool,
    waiting: WaitingTensors,
    sums: CountSums,
    /// The overflow of a tensor that waited.
    overflow: Option<CountOverflow>,
}

/// A sum or product that does not fit in 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the parameters do not fit in 64 bits, at tensor `{tensor}`")]
#[must_use]
pub struct CountOverflow {
    /// The name of the tensor that was added last, cut to 200 characters.
    pub tensor: String,
}

impl Counter {
    /// Creates a counter without tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    ///
    /// When a sum does not fit in 64 bits. The counter is of no use afterwards.
    pub fn add(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), CountOverflow> {
        let part = ModulePart::new(name, tensor);
        let ConfigUse { depends, asks } = ConfigUse::from_part(&part);
        self.needs_config |= asks;
        match if depends { self.configs.as_ref() } else { Some(&UNQUANTIZED) } {
            Some(configs) if !configs.needs_whole_modules() => {
                self.sums.add(&part, configs.classify(&part, &Module::default()))
            }
            _ => {
                self.waiting.push(&part);
                Ok(())
            }
        }
    }

    /// Adds the tensors of one file.
    ///
    /// # Errors
    ///
    /// When a sum does not fit in 64 bits. The counter is of no use afterwards.
    pub fn add_table(&mut self, tensors: &TensorTable) -> Result<(), CountOverflow> {
        tensors.try_for_each(|name, tensor| self.add(name, tensor))
    }

    /// Returns whether `config.json` could change the result. It stays `true` when the configuration has
    /// been set.
    #[must_use]
    pub fn needs_config(&self) -> bool {
        self.needs_config
    }

    /// Sets what the configuration files of the model say. Only the first call has an effect.
    pub fn set_configs(&mut self, configs: Configs) {
        if self.configs.is_some() {
            return;
        }
        if !configs.needs_whole_modules() {
            let waiting = std::mem::take(&mut self.waiting);
            let added = waiting.for_each(|name, tensor| {
                let part = ModulePart::new(name, tensor);
                self.sums.add(&part, configs.classify(&part, &Module::default()))
            });
            self.overflow = added.err();
        }
        self.configs = Some(configs);
    }

    /// Returns the parameters, and how they were counted. Without a configuration, every element is a
    /// parameter.
    ///
    /// # Errors
    ///
    /// When a sum does not fit in 64 bits.
    pub fn finish(mut self) -> Result<(ParameterCount, CountBreakdown), CountOverflow> {
        self.set_configs(Configs::default());
        if let Some(overflow) = self.overflow {
            return Err(overflow);
        }
        let (configs, mut sums) = (self.configs.unwrap_or_default(), self.sums);
        self.waiting.for_each_module(|parts| {
            let module = Module::from_sorted(parts);
            let add = |(name, tensor): &(String, TensorInfo)| {
                let part = ModulePart::new(name, tensor);
                sums.add(&part, configs.classify(&part, &module))
            };
            parts.iter().try_for_each(add)
        })?;
        Ok(sums.finish(&configs))
    }
}

/// The sums over all tensors that have been classified.
#[derive(Clone, Debug, Default)]
struct CountSums {
    total: DtypeCount,
    groups: BTreeMap<GroupKey, DtypeCount>,
    /// The group of the last tensor, which is usually that of the next one. It is not in `groups` yet.
    last: Option<(GroupKey, DtypeCount)>,
    experts: ExpertSums,
}

/// The dtype, the class and the kind of buffer of the tensors of a group.
type GroupKey = (Dtype, CountedAs, Option<Buffer>);

impl CountSums {
    fn add(&mut self, part: &ModulePart<'_>, counted_as: CountedAs) -> Result<(), CountOverflow> {
        let added = self.checked_add(part, counted_as);
        added.ok_or_else(|| CountOverflow { tensor: clip(part.tensor_name) })
    }

    fn checked_add(&mut self, part: &ModulePart<'_>, counted_as: CountedAs) -> Option<()> {
        let tensor = part.tensor;
        let elements = if tensor.is_scalar() { 0 } else { tensor.elements()? };
        let parameters = counted_as.parameters(elements)?;
        let count = DtypeCount {
            tensors: 1,
            counted: u64::from(counted_as.is_counted()),
            parameters,
            elements,
            scalars: u64::from(tensor.is_scalar()),
            bytes: tensor.byte_length(),
        };
        // The total bounds every group, so no other sum can overflow.
        self.total = self.total.checked_add(&count)?;
        self.experts.add(part, parameters);
        match &mut self.last {
            Some((key, sum))
                if key.0 == tensor.dtype && (key.1, key.2) == (counted_as, part.buffer) =>
            {
                *sum = sum.saturating_add(&count);
            }
            _ => {
                self.flush();
                self.last = Some(((tensor.dtype.clone(), counted_as, part.buffer), count));
            }
        }
        Some(())
    }

    /// Adds the sums of the last group to the others.
    fn flush(&mut self) {
        if let Some((key, count)) = self.last.take() {
            let group = self.groups.entry(key).or_default();
            *group = group.saturating_add(&count);
        }
    }

    fn finish(mut self, configs: &Configs) -> (ParameterCount, CountBreakdown) {
        self.flush();
        let moe = self.experts.mixture(configs.experts, self.total.parameters);
        let rows = self.groups.iter().map(|((dtype, ..), count)| (dtype, *count));
        let parameters = ParameterCount::from_rows(rows, self.total);
        let groups = self.groups.into_iter().map(|((dtype, counted_as, buffer), count)| {
            TensorGroup { dtype, counted_as, buffer, count }
        });
        let breakdown = CountBreakdown {
            rules: RuleSet::CURRENT,
            method: configs.method().map(str::to_owned),
            groups: groups.collect(),
            moe,
        };
        (parameters, breakdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(
        config: &str,
        tensors: &[(&str, Dtype, &[u64])],
    ) -> Option<(ParameterCount, CountBreakdown)> {
        let config = Configs::from_config_json(config.as_bytes()).unwrap();
        let mut counter = Counter::new();
        counter.set_configs(config);
        for (name, dtype, shape) in tensors {
            let (dtype, shape) = (dtype.clone(), shape.to_vec());
            counter.add(name, &TensorInfo { dtype, shape, data_offsets: (0, 0) }).ok()?;
        }
        counter.finish().ok()
    }

    const GPTQ: &str = r#"{"quantization_config":{"quant_method":"gptq","bits":4},
        "num_experts":2,"num_experts_per_tok":1}"#;

    #[test]
    fn tensors_are_grouped_by_class() {
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
                let what = format!("{} {}{buffer}", group.dtype, group.counted_as);
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
    fn an_overflow_by_unpacking_is_an_error() {
        let huge = 1 << 61;
        assert!(counting(GPTQ, &[("qweight", Dtype::from("?"), &[huge - 1])]).is_some());
        assert!(counting(GPTQ, &[("qweight", Dtype::from("?"), &[huge])]).is_none());
    }

    const DRAFTS: &str = r#"{"num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,
        "num_hidden_layers":1}"#;

    /// Two layers with two experts of 8 parameters each, the second of which drafts tokens, and 8 parameters besides them.
    const DRAFT_TENSORS: [&str; 6] = [
        "embed.weight",
        "layers.0.mlp.experts.0.weight",
        "layers.0.mlp.experts.1.weight",
        "layers.1.mlp.experts.0.weight",
        "layers.1.mlp.experts.1.weight",
        "mtp.norm.weight",
    ];

    #[test]
    fn draft_layers_are_recognized_whenever_the_configuration_arrives() {
        for config_before in 0..=DRAFT_TENSORS.len() {
            let mut counter = Counter::new();
            for (at, name) in DRAFT_TENSORS.iter().enumerate() {
                if at == config_before {
                    counter.set_configs(Configs::from_config_json(DRAFTS.as_bytes()).unwrap());
                }
                counter.add(name, &bf16(8)).unwrap();
            }
            counter.set_configs(Configs::from_config_json(DRAFTS.as_bytes()).unwrap());
            let moe = counter.finish().unwrap().1.moe.unwrap();
            assert_eq!((moe.active(), moe.draft, moe.total()), (16, 24, 48), "{config_before}");
        }
    }

    fn bf16(length: u64) -> TensorInfo {
        TensorInfo { dtype: Dtype::BF16, shape: vec![length], data_offsets: (0, 2 * length) }
    }

    #[test]
    fn only_the_first_configuration_has_an_effect() {
        let mut counter = Counter::new();
        counter.set_configs(Configs::default());
        counter.set_configs(Configs::from_config_json(GPTQ.as_bytes()).unwrap());
        counter.add("qweight", &bf16(10)).unwrap();
        assert_eq!(counter.finish().unwrap().0.total(), 10);
    }

    #[test]
    fn an_overflow_of_a_tensor_that_waited_is_returned_by_finish() {
        let mut counter = Counter::new();
        counter.add("m.qweight", &bf16(1 << 61)).unwrap();
        assert!(counter.needs_config());
        counter.set_configs(Configs::from_config_json(GPTQ.as_bytes()).unwrap());
        let overflow = counter.finish().unwrap_err();
        assert_eq!(overflow, CountOverflow { tensor: "m.qweight".to_owned() });
    }

    /// A tenth of the experts of Kimi-K2.5, whose 208,550 tensors nearly all wait.
    #[test]
    fn twenty_thousand_waiting_tensors_take_less_than_a_megabyte() {
        let parts = [("packed", "I32"), ("scale", "BF16"), ("shape", "I64")];
        let mut counter = Counter::new();
        for expert in 0..2_304 {
            let module = format!("language_model.model.layers.{}.mlp.experts", 1 + expert / 384);
            for projection in ["down_proj", "gate_proj", "up_proj"] {
                for (part, dtype) in parts {
                    let name = format!("{module}.{}.{projection}.weight_{part}", expert % 384);
                    let (dtype, shape) = (dtype.into(), vec![2_048, 896]);
                    let tensor = TensorInfo { dtype, shape, data_offsets: (0, 7_340_032) };
                    counter.add(&name, &tensor).unwrap();
                }
            }
        }
        assert_eq!(counter.sums.total.tensors, 0, "every tensor waits");
        let length = counter.waiting.byte_length();
        assert!(length < 1_000_000, "{length} bytes");
    }
}
