//! The plan of a call: the ranges to request of a file before the length of its header is known.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::formats::safetensors::{IndexError, SafetensorsIndexJson, expected_header_end};
use crate::formats::{Formats, RepoPath};

/// A file and the first range to request of it, in bytes.
pub type RangeRequest = (RepoPath, Range<u64>);

/// The length of the first range of a file without an index, in bytes. Among the files of the 1,000 most used models,
/// 82 % have a header under 25 kB, and 97 % have one under the 100 kB that `huggingface_hub` requests (its #1855).
/// Only small models have a single file.
const SINGLE_FILE_PREFETCH: u64 = 1 << 16;

/// The maximum length of a first range, in bytes, because the index may be wrong about a shard.
const MAX_PREFETCH: u64 = 1 << 23;

/// For indexes longer than this many bytes, as sent, `Prefetch` does not wait for the end. Each shard then takes a
/// second request, but the call takes less time: at a round trip of 50 ms, waiting is faster for the 9 MB of
/// DeepSeek-R1, and slower for the 23.6 MB of Kimi-K2.5.
const MAX_AWAITED_INDEX: u64 = 16 << 20;

/// A strategy for requesting headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Plan {
    /// Two range requests per file: the length of the header, then exactly the header. This is also the reported plan
    /// of headers that were not read from a server.
    #[default]
    Exact,
    /// One range request per file that is expected to cover the header, and a second one only if it does not.
    ///
    /// Sends half as many requests, but may read more bytes than needed. The range of a shard is estimated from the
    /// tensor names in the index and limited to 8 MiB; that of a single file is 64 KiB.
    Prefetch,
    /// One request for all headers of a sharded repository, as parsed by the Hub.
    ///
    /// The headers are not verified against the files, and the commit may be unknown. If the Hub cannot provide them
    /// (for a single file, for revisions other than `main`, or on other servers), falls back to [`Plan::Prefetch`].
    Hub,
}

impl Plan {
    /// Returns the first range of a file without an index.
    pub fn first_range(self, formats: &Formats, path: &RepoPath) -> Range<u64> {
        let needed = formats.find_or_safetensors(path).parser(path, 0).first_range();
        match self {
            Self::Exact => needed,
            Self::Prefetch | Self::Hub => 0..needed.end.max(SINGLE_FILE_PREFETCH),
        }
    }

    /// Returns whether to read shards before their index of `length` bytes is complete. The lengths of their headers
    /// cannot be estimated then, so each takes two ranges.
    pub fn reads_shards_early(self, length: Option<u64>) -> bool {
        self == Self::Exact || length.is_some_and(|length| length > MAX_AWAITED_INDEX)
    }

    /// Returns the first range of each shard of an index. It is estimated from the index, because tensor names make
    /// up most of a header.
    pub fn shards(self, index: &SafetensorsIndexJson) -> Vec<RangeRequest> {
        let exact = |shard| Self::Exact.first_range(Formats::built_in(), shard);
        let shards = index.shards().iter();
        let mut requests: Vec<_> = shards.map(|shard| (shard.clone(), exact(shard))).collect();
        if self != Self::Exact {
            for ((_, range), names) in requests.iter_mut().zip(index.names_per_shard()) {
                *range = 0..expected_header_end(names).min(MAX_PREFETCH).max(range.end);
            }
        }
        requests
    }

    /// Returns the first range of each shard of a set without an index.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`SafetensorsIndexJson::MAX_SHARDS`].
    pub fn shards_without_index(
        self,
        formats: &Formats,
        shards: &[RepoPath],
    ) -> Result<Vec<RangeRequest>, IndexError> {
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        if shards.len() > limit {
            return Err(IndexError::too_many_shards(limit));
        }
        let names = shards.iter().map(RepoPath::file_name);
        Ok(names.map(|name| (name.clone(), self.first_range(formats, &name))).collect())
    }
}
