//! The positions of tensors in a file of PyTorch.

use crate::base::sort::sort_by;
use crate::formats::TensorInfo;

/// The reason why a tensor is not a range.
const NOT_A_RANGE: &str = "its elements are not in their order, negated or conjugated, or it shares some with another tensor";

/// The reason for a file of another machine.
pub(super) const BIG_ENDIAN: &str = "its values are big-endian";

/// The memory that a storage takes, here and while the file is parsed.
pub(super) const STORAGE_BYTES: usize = 2 * size_of::<(&[u8], StoragePlace)>();

/// The position of a storage in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoragePlace {
    /// The position of its first byte.
    At(u64),
    /// An entry of a ZIP archive, which its local header precedes: the position of that header, and the size of the data.
    /// The header has a variable length.
    Behind {
        /// The position of the local header.
        local_header: u64,
        /// The size of the storage in bytes.
        size: u64,
    },
}

/// The storages of a file by their keys.
#[derive(Debug, Default)]
pub(super) struct Storages<'a>(Vec<(&'a [u8], StoragePlace)>);

impl<'a> Storages<'a> {
    /// Sorts storages. Of several with the same key, the first one is kept.
    pub(super) fn new(storages: impl Iterator<Item = (&'a [u8], StoragePlace)>) -> Self {
        let mut storages: Vec<_> = storages.collect();
        sort_by(&mut storages, |one, other| one.0.cmp(other.0));
        storages.dedup_by(|one, other| one.0 == other.0);
        Self(storages)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the index of the storage with a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let at = self.0.binary_search_by_key(&key, |(key, _)| key).ok()?;
        u32::try_from(at).ok()
    }
}

/// The positions of the tensors of a file whose elements are a range of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorPlaces {
    storages: Vec<StoragePlace>,
    /// For each tensor with elements, in the order of the table: its offset in the table, the index of its storage, and
    /// the offset in the storage.
    tensors: Vec<(u64, u32, u64)>,
    /// The reason why no tensor of the file can be read.
    pub(super) reason: Option<&'static str>,
}

impl TensorPlaces {
    pub(super) fn add(&mut self, begin: u64, storage: u32, offset: u64) {
        self.tensors.push((begin, storage, offset));
    }

    pub(super) fn set_storages(&mut self, storages: &Storages<'_>) {
        self.storages = storages.0.iter().map(|(_, place)| *place).collect();
        self.tensors.shrink_to_fit();
    }

    /// Returns the storage of a tensor in the table, and the offset of its first byte in the storage. An empty tensor has
    /// no storage.
    ///
    /// # Errors
    ///
    /// Returns the reason why the tensor is not a range of the file.
    pub fn of(&self, tensor: &TensorInfo) -> Result<Option<(StoragePlace, u64)>, &'static str> {
        if let Some(reason) = self.reason {
            return Err(reason);
        }
        let (begin, end) = tensor.data_offsets;
        if begin == end {
            return Ok(None);
        }
        let at = self.tensors.binary_search_by_key(&begin, |(begin, ..)| *begin);
        let (_, storage, offset) = at.map(|at| self.tensors[at]).map_err(|_| NOT_A_RANGE)?;
        let place = self.storages.get(storage as usize).ok_or(NOT_A_RANGE)?;
        Ok(Some((*place, offset)))
    }
}
