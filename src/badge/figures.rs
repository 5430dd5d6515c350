//! What a badge can say of a set of weights.

use std::cmp::Reverse;

use super::{Badge, Color, Show};
use crate::formats::Dtype;
use crate::report::SafetensorsParseFromRepo;
use crate::report::text::{short, short_bytes, thousands};

/// The figures that badges show: little of a result, and enough for every badge of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Parameters of each dtype.
    pub dtypes: Vec<(Dtype, u64)>,
    /// Parameters of all dtypes.
    pub parameters: u64,
    /// Parameters that take part in each token, of a mixture of experts.
    pub active: Option<u64>,
    /// Bytes of all tensors.
    pub bytes: Option<u64>,
    /// Tensors.
    pub tensors: Option<u64>,
    /// Files of weights.
    pub shards: Option<u64>,
    /// Whether the figures are ours; else they are what somebody says, and shown as such.
    pub is_verified: bool,
}

impl Figures {
    /// The figures of a result.
    #[must_use]
    pub fn of(parsed: &SafetensorsParseFromRepo) -> Self {
        let count = parsed.parameter_count();
        let totals = count.totals();
        Self {
            active: parsed.facts().counting.moe.map(|moe| moe.active()),
            bytes: Some(totals.bytes),
            tensors: Some(totals.tensors),
            shards: Some(parsed.files().count() as u64),
            is_verified: true,
            ..Self::claimed(
                count.iter().map(|(dtype, count)| (dtype.clone(), count)),
                count.total(),
            )
        }
    }

    /// What somebody says of weights that we could not read.
    pub fn claimed(dtypes: impl IntoIterator<Item = (Dtype, u64)>, parameters: u64) -> Self {
        Self {
            dtypes: dtypes.into_iter().collect(),
            parameters,
            active: None,
            bytes: None,
            tensors: None,
            shards: None,
            is_verified: false,
        }
    }

    /// A badge of one of them; `None` where it is not known.
    #[must_use]
    pub fn badge(&self, show: Show) -> Option<Badge> {
        let (label, message) = match show {
            Show::Params => (show.label(), self.parameters()),
            Show::Active => (show.label(), short(self.active.unwrap_or(self.parameters))),
            Show::Bytes => (show.label(), short_bytes(self.bytes?)),
            Show::Dtype => self.main_dtype()?,
            Show::Tensors => (show.label(), thousands(self.tensors?)),
            Show::Shards => (show.label(), thousands(self.shards?)),
        };
        Some(if self.is_verified {
            Badge::new(label, message)
        } else {
            Badge { color: Color::LIGHT_GREY, ..Badge::new(label, message + " unverified") }
        })
    }

    fn parameters(&self) -> String {
        let all = short(self.parameters);
        match self.active {
            Some(active) => format!("{all} (A{})", short(active)),
            None => all,
        }
    }

    /// The dtype of the most parameters, and how many have it, of how many where that shows.
    fn main_dtype(&self) -> Option<(&str, String)> {
        let (dtype, count) = self.dtypes.iter().min_by_key(|(_, count)| Reverse(*count))?;
        let [count, all] = [*count, self.parameters].map(short);
        let message = if count == all { all } else { format!("{count} of {all}") };
        Some((dtype.as_str(), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(figures: &Figures) -> Vec<Option<String>> {
        let text = |badge: Badge| format!("{} | {}", badge.label, badge.message);
        Show::ALL.iter().map(|show| figures.badge(*show).map(text)).collect()
    }

    #[test]
    fn verified_figures() {
        let kimi = Figures {
            active: Some(32_000_000_000),
            bytes: Some(1_028_470_731_056),
            tensors: Some(61_234),
            shards: Some(72),
            is_verified: true,
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
        ];
        assert_eq!(texts(&kimi), expected.map(|text| Some(text.to_owned())));
    }

    #[test]
    fn claims_are_grey_and_say_so() {
        let claim = Figures::claimed([(Dtype::F16, 7)], 7);
        let badge = claim.badge(Show::Params).unwrap();
        assert_eq!((badge.message.as_str(), badge.color), ("7 unverified", Color::LIGHT_GREY));
        assert_eq!([Show::Bytes, Show::Shards].map(|show| claim.badge(show)), [None, None]);
        let nothing = Figures::claimed([], 0);
        assert_eq!(nothing.badge(Show::Dtype), None);
    }
}
