//! What an index says beside where each tensor is.

use serde_json::{Map, Value};

use crate::formats::RepoPath;

/// An index less the entries of its `weight_map`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexFields {
    pub(super) dtype: Option<String>,
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) shards: Vec<RepoPath>,
}

impl IndexFields {
    /// The bytes of all tensors together, as the index claims them.
    pub(super) fn total_size(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_size")?)
    }

    /// The parameters of all tensors together, as the index claims them.
    pub(super) fn declared_total(&self) -> Option<u64> {
        whole_number(self.metadata.as_ref()?.get("total_parameters")?)
    }

    /// Brings the shards into the order of their names, which is that of their numbers; an index
    /// lists tensors by name, and so shards in the order of the digits of their layers. Returns the
    /// new place of each shard by its old one.
    pub(super) fn sort_shards(&mut self) -> Vec<u16> {
        let mut order: Vec<usize> = (0..self.shards.len()).collect();
        order.sort_unstable_by_key(|&place| &self.shards[place]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(order).for_each(|(rank, place)| ranks[place] = rank);
        self.shards.sort_unstable();
        ranks
    }
}

/// Some exporters write their totals as text, some as a float.
fn whole_number(value: &Value) -> Option<u64> {
    /// Above 2^53 a float no longer tells whole numbers apart.
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
