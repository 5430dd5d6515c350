//! The shards of an index, each stored once.

use std::collections::HashMap;

use crate::formats::safetensors::{IndexError, SafetensorsIndexJson};

use crate::formats::{RepoPath, clip};

/// Distinct shards, in the order of their first tensors in the index.
#[derive(Debug, Default)]
pub(super) struct ShardTable {
    pub(super) paths: Vec<RepoPath>,
    places: HashMap<Box<str>, u16>,
    /// The position of the last looked-up shard: the next tensor is mostly in the same shard.
    last: u16,
}

impl ShardTable {
    /// Returns the position of the last looked-up shard if this is its name.
    pub(super) fn again(&self, name: &[u8]) -> Option<u16> {
        let last = self.paths.get(usize::from(self.last))?;
        (last.as_str().as_bytes() == name).then_some(self.last)
    }

    /// Returns the position of the shard of a tensor, and adds the shard if it is new.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is unsafe or not that of a safetensors file, or if there are too many shards.
    pub(super) fn place(&mut self, tensor: &str, shard: &str) -> Result<u16, IndexError> {
        self.last = match self.places.get(shard) {
            Some(&place) => place,
            None => self.add(tensor, shard)?,
        };
        Ok(self.last)
    }

    /// Adds a shard and returns its position.
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
