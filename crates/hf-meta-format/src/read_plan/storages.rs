//! The positions of the storages of PyTorch files.

use std::collections::HashMap;
use std::sync::Arc;

use crate::formats::RepoPath;
use crate::formats::pytorch::StoragePlace;

/// The reason for a local header that was not read.
const UNKNOWN: &str = "a pickle names its storages, and only the headers inside of the archive state where they begin";

/// The positions of storages in ZIP archives, by file and local header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageStarts(Arc<HashMap<(RepoPath, u64), u64>>);

impl StorageStarts {
    pub(super) fn from_positions(positions: HashMap<(RepoPath, u64), u64>) -> Self {
        Self(Arc::new(positions))
    }

    /// Returns the position of the first byte of a storage.
    pub(super) fn of(&self, file: &RepoPath, place: StoragePlace) -> Result<u64, &'static str> {
        match place {
            StoragePlace::At(start) => Ok(start),
            StoragePlace::Behind { local_header, .. } => {
                let known = self.0.get(&(file.clone(), local_header));
                known.copied().ok_or(UNKNOWN)
            }
        }
    }
}
