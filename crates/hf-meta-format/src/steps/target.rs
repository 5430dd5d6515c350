//! The part of a source that a call reads.

use crate::formats::weight_sets::{is_shard_pattern, shard_number};
use crate::formats::{Formats, RepoPath, clip};
use crate::results::Finding;

/// The part of a source that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A weight file, or the shards of an index.
    File(RepoPath),
    /// Shards without an index, as a path with a `*` in place of the shard number.
    Shards(RepoPath),
    /// The weights in a folder, or in the whole source.
    Folder(Option<RepoPath>),
    /// The weights of a quantization, such as `q4_k_m`.
    Quantization(RepoPath),
}

impl Target {
    /// Returns the target for a path in a repository: a folder, unless the name looks like a file or a quantization.
    pub fn from_path(formats: &Formats, path: Option<RepoPath>) -> Self {
        let is_file = |path: &RepoPath| formats.find(path.as_str()).is_some();
        match path {
            Some(path) if is_shard_pattern(formats, &path) => Self::Shards(path),
            Some(path) if is_file(&path) || path.is_index() => Self::File(path),
            Some(path) if formats.is_quantization(path.as_str()) => Self::Quantization(path),
            folder => Self::Folder(folder),
        }
    }

    /// Returns the finding for one shard of a model.
    pub fn single_shard(&self) -> Option<Finding> {
        let Self::File(path) = self else { return None };
        let (number, total) = shard_number(path).filter(|(_, total)| *total > 1)?;
        Some(Finding::SingleShard { file: clip(path.as_str()), number, total })
    }

    /// Returns the folder to search; `None` for the whole source.
    pub fn folder(&self) -> Option<&RepoPath> {
        let Self::Folder(folder) = self else { return None };
        folder.as_ref()
    }

    /// Returns whether the sets of a folder are read, and not one that the caller selected.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder(_))
    }
}
