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
    /// Sorts the shards by name, and returns the new index of each shard by its old index.
    ///
    /// An index is sorted by tensor name, so its shards are in no useful order.
    pub(super) fn sort_shards(&mut self) -> Vec<u16> {
        let mut order: Vec<usize> = (0..self.shards.len()).collect();
        order.sort_unstable_by_key(|&place| &self.shards[place]);
        let mut ranks = vec![0; order.len()];
        (0..).zip(order).for_each(|(rank, place)| ranks[place] = rank);
        self.shards.sort_unstable();
        ranks
    }
}
