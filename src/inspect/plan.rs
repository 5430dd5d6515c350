//! How much of a file is asked for before the length of its header is known.

use std::ops::Range;

use crate::formats::safetensors::{
    FromIndex, IndexError, NamesDigest, PREFIX_LENGTH, SafetensorsIndexJson,
};

use crate::formats::RepoPath;

/// In how many ranges a header is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Two: its length, then the header and nothing else.
    #[default]
    Exact,
    /// One that is expected to hold the header, and another only where it does not.
    Prefetch,
}

/// The first range of a file that no index tells anything of. Of the files of the 1,000 most used models
/// 82 % have a header of less than 25 kB, and 97 % one of less than the 100 kB that `huggingface_hub` asks
/// for (its #1855); a file by itself is that of a small model.
const SINGLE: u64 = 1 << 16;

/// The longest first range, in bytes: what an index says of a shard is not known to be true.
const LONGEST: u64 = 1 << 23;

/// The length of an index as it is sent, in bytes, beyond which its end is not waited for. A shard then
/// takes another request, and the call less time: by measurement, at a round trip of 50 ms, the 9 MB of
/// DeepSeek-R1 are worth waiting for, and the 23.6 MB of Kimi-K2.5 are not.
const LONG_INDEX: u64 = 16 << 20;

/// What the entry of a tensor has in a header, beside its name, in bytes: 46 for keys and punctuation,
/// and what dtype, shape and offsets have in shards of up to ten gigabytes.
const ENTRY: u64 = 46 + "F8_E4M3".len() as u64 + 15 + 20;

/// What a header has beside its entries: the length before it, metadata, and padding.
const FRAME: u64 = 256;

impl Plan {
    /// The first range of a file by itself.
    pub(super) fn file(self) -> Range<u64> {
        match self {
            Self::Exact => 0..PREFIX_LENGTH,
            Self::Prefetch => 0..SINGLE,
        }
    }

    /// Whether a shard is asked for before its index is whole, for which so many bytes have to arrive. How
    /// long its header may be is not known then, so it is read in two ranges.
    pub(super) fn asks_early(self, length: Option<u64>) -> bool {
        self == Self::Exact || length.is_some_and(|length| length > LONG_INDEX)
    }

    /// Each shard with its first range. The index names the tensors of a shard, and that is most of what
    /// its header consists of.
    pub(super) fn shards(self, index: &impl FromIndex) -> Vec<(RepoPath, Range<u64>)> {
        let shards = index.shards();
        match self {
            Self::Exact => shards.iter().map(|shard| (shard.clone(), self.file())).collect(),
            Self::Prefetch => {
                shards.iter().cloned().zip(index.digests().iter().map(expected)).collect()
            }
        }
    }

    /// Each of some shards of which no index tells anything, with its first range.
    pub(super) fn shards_without_index(
        self,
        shards: &[RepoPath],
    ) -> Result<Vec<(RepoPath, Range<u64>)>, IndexError> {
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        if shards.len() > limit {
            return Err(IndexError::TooManyShards { limit });
        }
        Ok(shards.iter().map(|shard| (shard.file_name(), self.file())).collect())
    }
}

/// The range that is expected to hold the header of a shard with tensors of these names.
fn expected(names: &NamesDigest) -> Range<u64> {
    let entries = names.tensors().saturating_mul(ENTRY).saturating_add(names.bytes());
    0..entries.saturating_add(FRAME).min(LONGEST)
}
