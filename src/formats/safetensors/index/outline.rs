//! An index of which only counts are asked for: it grows with the shards, not with the tensors, of which
//! there are hashes while it is read.

use std::iter::zip;

use serde_json::{Map, Value};

use super::frame::Frame;
use super::{Entries, FromIndex};
use crate::formats::RepoPath;
use crate::formats::safetensors::IndexError;
use crate::formats::safetensors::digest::{Hashes, NamesDigest};

/// The checked index of a sharded repo less the names of the tensors, of which it keeps a digest for
/// each shard.
///
/// Checks what [`SafetensorsIndexJson`](super::SafetensorsIndexJson) does, but cannot say which tensor
/// occurs twice. If [`is_distinct`](Self::is_distinct), and the header of every shard has names of
/// the same digest as the index has for it, then index and headers put the same tensors into the same
/// shards, and every tensor into one. Anything else is to be looked into with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexOutline {
    pub(super) frame: Frame,
    names: Vec<NamesDigest>,
    is_distinct: bool,
}

impl IndexOutline {
    /// The shards, each once, in the order of their names.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.frame.shards
    }

    /// The names of the tensors of each shard, in the order of the shards.
    #[must_use]
    pub fn names(&self) -> &[NamesDigest] {
        &self.names
    }

    /// Whether no tensor occurs twice, in one shard or in several. This is told by the hashes of the
    /// names: where it is `false`, that two names have the same hash is another explanation, though with
    /// 500,000 tensors it is so once in a hundred million times.
    #[must_use]
    pub fn is_distinct(&self) -> bool {
        self.is_distinct
    }

    /// The `metadata` of the index, as it stands there.
    #[must_use]
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.frame.metadata.as_ref()
    }

    /// The bytes of all tensors together, as the index claims them.
    #[must_use]
    pub fn total_size(&self) -> Option<u64> {
        self.frame.total_size()
    }

    /// The parameters of all tensors together, as the index claims them (`total_parameters`). A
    /// claim, not a count.
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        self.frame.declared_total()
    }
}

/// What is kept while the index is read.
#[derive(Debug, Default)]
pub struct Digests {
    by_place: Vec<NamesDigest>,
    /// Of all names. Sums do not show that a tensor is in two shards if their headers have it, too.
    hashes: Hashes,
}

impl FromIndex for IndexOutline {
    type Entries = Digests;

    fn shards(&self) -> &[RepoPath] {
        self.shards()
    }

    fn digests(&self) -> Vec<NamesDigest> {
        self.names.clone()
    }
}

impl Entries for Digests {
    type Index = IndexOutline;

    fn take(&mut self, tensor: &str, place: u16) {
        let place = usize::from(place);
        if place == self.by_place.len() {
            self.by_place.push(NamesDigest::default());
        }
        let hash = self.hashes.add(tensor);
        self.by_place[place].add_hashed(tensor, hash);
    }

    fn finish(self, frame: Frame, ranks: &[u16]) -> Result<IndexOutline, IndexError> {
        let is_distinct = self.hashes.are_distinct();
        let mut names = vec![NamesDigest::default(); self.by_place.len()];
        zip(ranks, self.by_place).for_each(|(&rank, digest)| names[usize::from(rank)] = digest);
        Ok(IndexOutline { frame, names, is_distinct })
    }
}
