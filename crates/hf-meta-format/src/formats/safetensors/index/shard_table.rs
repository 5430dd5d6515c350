//! The distinct shards of an index.

use std::collections::HashMap;

use crate::formats::safetensors::{IndexError, SafetensorsIndexJson};

use crate::formats::{RepoPath, clip};

/// Distinct shards in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct ShardTable {
    pub(super) paths: Vec<RepoPath>,
    places: HashMap<Box<str>, u16>,
    /// The index of the last shard looked up. The next tensor is usually in the same shard.
    last: u16,
}

impl ShardTable {
    /// Returns the index of the last shard looked up, if it has this name.
    pub(super) fn again(&self, name: &[u8]) -> Option<u16> {
        let last = self.paths.get(usize::from(self.last))?;
        (last.as_str().as_bytes() == name).then_some(self.last)
    }

    /// Returns the index of a shard, and adds the shard if it is new. `tensor` is named in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is unsafe or does not belong to a safetensors file, or if there are too many
    /// shards.
    pub(super) fn place(&mut self, tensor: &str, shard: &str) -> Result<u16, IndexError> {
        self.last = match self.places.get(shard) {
            Some(&place) => place,
            None => self.add(tensor, shard)?,
        };
        Ok(self.last)
    }

    /// Adds a shard and returns its index.
    fn add(&mut self, tensor: &str, shard: &str) -> Result<u16, IndexError> {
        let path: RepoPath = shard
            .parse()
            .map_err(|source| IndexError::UnsafeShardName { tensor: clip(tensor), source })?;
        if !path.is_safetensors() {
            return Err(IndexError::NotSafetensors { tensor: clip(tensor), shard: clip(shard) });
        }
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        let place = u16::try_from(self.paths.len()).ok().filter(|&at| usize::from(at) < limit);
        let place = place.ok_or(IndexError::TooManyShards { limit })?;
        self.paths.push(path);
        self.places.insert(shard.into(), place);
        Ok(place)
    }
}
