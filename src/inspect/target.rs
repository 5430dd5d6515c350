//! The part of a backend that a call reads.

use crate::formats::RepoPath;
use crate::formats::weight_sets::names_shards;

/// The part of a backend that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file of weights.
    File(RepoPath),
    /// The shards of an index.
    Index(RepoPath),
    /// Shards without an index, by their common path with a `*` in place of the number.
    Shards(RepoPath),
    /// The weights in a folder, or in the whole backend.
    Folder(Option<RepoPath>),
}

impl Target {
    /// Returns the target of a path in a repository: a folder unless the name is that of a file.
    pub(crate) fn from_path(path: Option<RepoPath>) -> Self {
        match path {
            Some(path) if names_shards(&path) => Self::Shards(path),
            Some(path) if path.is_safetensors() || path.is_index() => Self::from_file(path),
            folder => Self::Folder(folder),
        }
    }

    /// Returns the target of a path that is a file: weights unless the name is that of an index.
    pub(crate) fn from_file(path: RepoPath) -> Self {
        if path.is_index() { Self::Index(path) } else { Self::File(path) }
    }

    /// Returns the folder to search; `None` for the whole backend.
    pub(crate) fn folder(&self) -> Option<&RepoPath> {
        match self {
            Self::Folder(folder) => folder.as_ref(),
            Self::File(_) | Self::Index(_) | Self::Shards(_) => None,
        }
    }
}
