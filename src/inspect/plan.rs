//! The first range to request of a file, before the length of its header is known.

use std::ops::Range;

use super::shards::ShardRequest;
use crate::formats::safetensors::{IndexError, SafetensorsIndexJson, expected_header_end};
use crate::formats::{FORMATS, Formats, RepoPath};
use crate::report::Plan;

/// The length of the first range of a file without an index, in bytes. Among the files of the 1,000 most used models,
/// 82 % have a header under 25 kB, and 97 % have one under the 100 kB that `huggingface_hub` requests (its #1855).
/// Only small models have a single file.
const SINGLE_FILE_PREFETCH: u64 = 1 << 16;

/// The maximum length of a first range, in bytes, because the index may be wrong about a shard.
const LONGEST_PREFETCH: u64 = 1 << 23;

/// For indexes longer than this many bytes, as sent, `Prefetch` does not wait for the end. Each shard then takes a
/// second request, but the call takes less time: at a round trip of 50 ms, waiting is faster for the 9 MB of
/// DeepSeek-R1, and slower for the 23.6 MB of Kimi-K2.5.
const LONG_INDEX: u64 = 16 << 20;

impl Plan {
    /// Returns the first range of a file without an index.
    pub(super) fn first_range(self, formats: &Formats, path: &RepoPath) -> Range<u64> {
        let needed = formats.find_or_safetensors(path).parser(path, 0).first_range();
        match self {
            Self::Exact => needed,
            Self::Prefetch | Self::Hub => 0..needed.end.max(SINGLE_FILE_PREFETCH),
        }
    }

    /// Returns whether to read shards before their index of `length` bytes is complete. The lengths of their headers
    /// cannot be estimated then, so each takes two ranges.
    pub(super) fn reads_shards_early(self, length: Option<u64>) -> bool {
        self == Self::Exact || length.is_some_and(|length| length > LONG_INDEX)
    }

    /// Returns the first range of each shard of an index. It is estimated from the index, because tensor names make
    /// up most of a header.
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

    /// Returns the first range of each shard of a set without an index.
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
