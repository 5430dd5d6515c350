//! The first range of a file by plan, before the length of its header is known.

use std::ops::Range;

use super::shards::ShardRequest;
use crate::formats::safetensors::{IndexError, SafetensorsIndexJson, expected_header_end};
use crate::formats::{FORMATS, Formats, RepoPath};
use crate::report::Plan;

/// The first range of a file without an index, in bytes. Of the files of the 1,000 most used models 82 % have a
/// header of less than 25 kB, and 97 % one of less than the 100 kB that `huggingface_hub` requests (its #1855);
/// a single file is that of a small model.
const SINGLE_FILE_PREFETCH: u64 = 1 << 16;

/// The longest first range, in bytes: the index may be wrong about a shard.
const LONGEST_PREFETCH: u64 = 1 << 23;

/// The length of an index in bytes, as it is sent, above which `Prefetch` does not wait for its end. Each shard
/// then takes a second request, and the call less time: at a round trip of 50 ms it is faster to wait for the
/// 9 MB of DeepSeek-R1, and slower to wait for the 23.6 MB of Kimi-K2.5.
const LONG_INDEX: u64 = 16 << 20;

impl Plan {
    /// Returns the first range of a file that no index names.
    pub(super) fn first_range(self, formats: &Formats, path: &RepoPath) -> Range<u64> {
        let needed = formats.find_or_safetensors(path).parser(path, 0).first_range();
        match self {
            Self::Exact => needed,
            Self::Prefetch | Self::Hub => 0..needed.end.max(SINGLE_FILE_PREFETCH),
        }
    }

    /// Returns whether shards are read before their index of `length` bytes is complete. The lengths of their
    /// headers cannot be estimated then, so they are read in two ranges.
    pub(super) fn reads_shards_early(self, length: Option<u64>) -> bool {
        self == Self::Exact || length.is_some_and(|length| length > LONG_INDEX)
    }

    /// Returns the first range of each shard of an index. The index names the tensors of a shard, and their names
    /// are most of its header.
    pub(super) fn shards(self, index: &SafetensorsIndexJson) -> Vec<ShardRequest> {
        let shards = index.shards().iter().cloned();
        match self {
            Self::Exact => shards.map(|shard| self.request(&FORMATS, shard)).collect(),
            Self::Prefetch | Self::Hub => shards
                .zip(index.names_per_shard())
                .map(|(shard, names)| (shard, 0..expected_header_end(names).min(LONGEST_PREFETCH)))
                .collect(),
        }
    }

    /// Returns the first range of each shard that no index names.
    pub(super) fn shards_without_index(
        self,
        formats: &Formats,
        shards: &[RepoPath],
    ) -> Result<Vec<ShardRequest>, IndexError> {
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        if shards.len() > limit {
            return Err(IndexError::TooManyShards { limit });
        }
        Ok(shards.iter().map(|shard| self.request(formats, shard.file_name())).collect())
    }

    fn request(self, formats: &Formats, shard: RepoPath) -> ShardRequest {
        let first = self.first_range(formats, &shard);
        (shard, first)
    }
}
