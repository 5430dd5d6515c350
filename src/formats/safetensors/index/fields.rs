//! The fields of an index other than its `weight_map`.

use serde_json::{Map, Value};

use crate::formats::RepoPath;

/// The fields of an index other than its `weight_map`, and the names of its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexFields {
    pub(super) dtype: Option<String>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) shards: Vec<RepoPath>,
}

impl IndexFields {
    /// Returns the size of all tensors in bytes, as declared by `total_size`.
    pub(super) fn total_size(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_size")?)
    }

    /// Returns the number of parameters, as declared by `total_parameters`.
    pub(super) fn declared_total(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_parameters")?)
    }

    /// Sorts the shards by name, and returns the new position of each shard by its old one.
    ///
    /// An index lists tensors by name, so its shards come in no useful order.
    pub(super) fn sort_shards(&mut self) -> Vec<u16> {
        let mut order: Vec<usize> = (0..self.shards.len()).collect();
        order.sort_unstable_by_key(|&place| &self.shards[place]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(order).for_each(|(rank, place)| ranks[place] = rank);
        self.shards.sort_unstable();
        ranks
    }
}

/// Returns a whole number, which some exporters write as text and some as a float.
fn whole_number(value: &Value) -> Option<u64> {
    /// 2^53: above it a float cannot represent every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range and whole by the test before"
    )]
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            ((0.0..EXACT).contains(&float) && float.fract() == 0.0).then_some(float as u64)
        }),
        _ => None,
    }
}
