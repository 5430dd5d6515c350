//! The values of all badge metrics for a checkpoint.

use std::cmp::Reverse;

use super::{Badge, Color, Metric};
use hf_meta_count::count::CountBreakdown;
use hf_meta_count::results::CountReport;
use hf_meta_count::results::text::{short, short_bytes, thousands};
use hf_meta_format::formats::Dtype;

/// The values of all badge metrics for a checkpoint.
///
/// A server can keep these few numbers instead of a full result and render every badge from them.
///
/// ```
/// use hf_meta::Dtype;
/// use hf_meta_badge::{Metric, MetricValues};
///
/// let values = MetricValues::from_unverified([(Dtype::BF16, 7_615_616_512)], 7_615_616_512);
/// let badge = values.badge(Metric::Params).expect("the number of parameters is known");
/// assert_eq!(badge.message, "7.62B unverified");
/// assert_eq!(values.badge(Metric::Shards), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricValues {
    /// The number of parameters per dtype.
    pub dtypes: Vec<(Dtype, u64)>,
    /// The total number of parameters.
    pub parameters: u64,
    /// `false` if the number of parameters is uncertain. Badges then prefix it with `~`.
    pub is_exact: bool,
    /// The number of active parameters per token, or a short reason why there is none.
    pub active: Result<u64, &'static str>,
    /// The size of all tensors in bytes, if known.
    pub bytes: Option<u64>,
    /// The number of tensors, if known.
    pub tensors: Option<u64>,
    /// The number of weight files, if known.
    pub shards: Option<u64>,
    /// The memory of the weights and of the cache in bytes, and the context length in tokens, if known.
    pub memory: Option<(u64, u64)>,
    /// `true` if the values were counted from headers, `false` if they were reported by the Hub. In the latter case,
    /// badges are marked `unverified`.
    pub is_verified: bool,
}

impl MetricValues {
    /// Returns the metric values of a report.
    pub fn from_report(report: &CountReport) -> Self {
        let count = &report.parameter_count;
        let totals = count.totals();
        let in_answer = || report.engine.as_deref()?.memory.as_deref();
        let memory = report.memory.as_deref().or_else(in_answer);
        Self {
            active: active(&report.breakdown),
            bytes: Some(totals.bytes),
            tensors: Some(totals.tensors),
            shards: Some(report.file_count() as u64),
            memory: memory.and_then(|memory| Some((memory.total_bytes?, memory.context))),
            is_verified: true,
            is_exact: report.is_exact(),
            ..Self::from_unverified(
                count.iter().map(|(dtype, count)| (dtype.clone(), count)),
                count.total(),
            )
        }
    }

    /// Creates metric values from a parameter count that was reported rather than counted.
    pub fn from_unverified(
        dtypes: impl IntoIterator<Item = (Dtype, u64)>,
        parameters: u64,
    ) -> Self {
        Self {
            dtypes: dtypes.into_iter().collect(),
            parameters,
            is_exact: true,
            active: Err("unknown"),
            bytes: None,
            tensors: None,
            shards: None,
            memory: None,
            is_verified: false,
        }
    }

    /// Returns a badge that shows `metric`, or `None` if its value is unknown. If the number of active parameters is
    /// requested but there is none, the badge is a placeholder with the reason.
    pub fn badge(&self, metric: Metric) -> Option<Badge> {
        let (label, message) = match metric {
            Metric::Params => (metric.label(), self.parameters()),
            Metric::Active => match self.active {
                Ok(active) => (metric.label(), self.mark() + &short(active)),
                Err(reason) => return Some(Badge::placeholder(metric, reason)),
            },
            Metric::Bytes => (metric.label(), short_bytes(self.bytes?)),
            Metric::Dtype => self.main_dtype()?,
            Metric::Tensors => (metric.label(), thousands(self.tensors?)),
            Metric::Shards => (metric.label(), thousands(self.shards?)),
            Metric::Memory => {
                let (bytes, context) = self.memory?;
                let (kilo, rest) = (context / 1_024, context % 1_024);
                let tokens = || format!("{} tokens", thousands(context));
                let context = if rest == 0 { format!("{}k", thousands(kilo)) } else { tokens() };
                (metric.label(), format!("{} at {context}", short_bytes(bytes)))
            }
        };
        Some(if self.is_verified {
            Badge::new(label, message)
        } else {
            Badge { color: Color::LIGHT_GRAY, ..Badge::new(label, message + " unverified") }
        })
    }

    fn parameters(&self) -> String {
        let all = self.mark() + &short(self.parameters);
        match self.active {
            Ok(active) => format!("{all} (A{})", short(active)),
            Err(_) => all,
        }
    }

    /// Returns the prefix of an uncertain number.
    fn mark(&self) -> String {
        if self.is_exact { String::new() } else { "~".to_owned() }
    }

    /// Returns the dtype with the most parameters, and a message with their number. The message includes the total
    /// (`1.02T of 1.03T`) if it differs after rounding.
    fn main_dtype(&self) -> Option<(&str, String)> {
        let (dtype, count) = self.dtypes.iter().min_by_key(|(_, count)| Reverse(*count))?;
        let [count, all] = [*count, self.parameters].map(short);
        let message = if count == all { all } else { format!("{count} of {all}") };
        Some((dtype.as_str(), message))
    }
}

impl Badge {
    /// Creates a badge that shows one metric of a report.
    pub fn from_report(report: &CountReport, metric: Metric) -> Self {
        let badge = MetricValues::from_report(report).badge(metric);
        badge.unwrap_or_else(|| Self::placeholder(metric, "unknown"))
    }
}

/// Returns the active parameters of a mixture of experts, or a short reason why there are none.
fn active(breakdown: &CountBreakdown) -> Result<u64, &'static str> {
    match (breakdown.moe, breakdown.moe_unknown) {
        (Some(moe), _) => Ok(moe.active()),
        (None, Some(_)) => Err("unknown"),
        (None, None) => Err("no experts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &MetricValues) -> Vec<Option<String>> {
        let text = |badge: Badge| format!("{} | {}", badge.label, badge.message);
        Metric::ALL.iter().map(|metric| values.badge(*metric).map(text)).collect()
    }

    #[test]
    fn every_metric_of_a_counted_checkpoint_has_a_badge() {
        let kimi = MetricValues {
            active: Ok(32_000_000_000),
            bytes: Some(1_028_470_731_056),
            tensors: Some(61_234),
            shards: Some(72),
            memory: Some((1_030_000_000_000, 32_768)),
            is_verified: true,
            is_exact: true,
            parameters: 1_026_470_731_056,
            dtypes: vec![(Dtype::BF16, 2_000_000_000), (Dtype::F8_E4M3, 1_024_470_731_056)],
        };
        let expected = [
            "params | 1.03T (A32B)",
            "active | 32B",
            "size | 1.03 TB",
            "F8_E4M3 | 1.02T of 1.03T",
            "tensors | 61,234",
            "shards | 72",
            "memory | 1.03 TB at 32k",
        ];
        assert_eq!(texts(&kimi), expected.map(|text| Some(text.to_owned())));
    }

    /// The total would look like a figure of a mixture of experts.
    #[test]
    fn a_checkpoint_without_active_parameters_has_a_placeholder() {
        for (reason, parameters) in [("no experts", "7"), ("unknown", "7")] {
            let values = MetricValues {
                active: Err(reason),
                is_verified: true,
                ..MetricValues::from_unverified([(Dtype::F16, 7)], 7)
            };
            let badge = values.badge(Metric::Active).unwrap();
            assert_eq!((&*badge.message, badge.is_placeholder), (reason, true));
            assert_eq!(values.badge(Metric::Params).unwrap().message, parameters);
        }
    }

    #[test]
    fn inexact_numbers_are_flagged() {
        let values = MetricValues {
            is_exact: false,
            active: Ok(32),
            ..MetricValues::from_unverified([], 1_000)
        };
        let message = |metric| values.badge(metric).unwrap().message;
        assert_eq!(message(Metric::Params), "~1K (A32) unverified");
        assert_eq!(message(Metric::Active), "~32 unverified");
    }

    #[test]
    fn reported_values_are_gray_and_marked_unverified() {
        let reported = MetricValues::from_unverified([(Dtype::F16, 7)], 7);
        let badge = reported.badge(Metric::Params).unwrap();
        assert_eq!((badge.message.as_str(), badge.color), ("7 unverified", Color::LIGHT_GRAY));
        assert_eq!(
            [Metric::Bytes, Metric::Shards].map(|metric| reported.badge(metric)),
            [None, None]
        );
        let nothing = MetricValues::from_unverified([], 0);
        assert_eq!(nothing.badge(Metric::Dtype), None);
    }
}
