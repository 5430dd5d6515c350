//! The part of a backend that a call reads.

use crate::formats::weight_sets::is_shard_pattern;
use crate::formats::{Formats, RepoPath};

/// The part of a backend that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A weight file.
    File(RepoPath),
    /// The shards of an index.
    Index(RepoPath),
    /// Shards without an index, as a path with a `*` in place of the shard number.
    Shards(RepoPath),
    /// The weights in a folder, or in the whole backend.
    Folder(Option<RepoPath>),
    /// The weights of a quantization, such as `q4_k_m`.
    Quantization(RepoPath),
}

impl Target {
    /// Returns the target for a path in a repository: a folder, unless the name looks like a file or a quantization.
    pub(crate) fn from_path(formats: &Formats, path: Option<RepoPath>) -> Self {
        let is_file = |path: &RepoPath| formats.find(path.as_str()).is_some();
        match path {
            Some(path) if is_shard_pattern(formats, &path) => Self::Shards(path),
            Some(path) if is_file(&path) || path.is_index() => Self::from_file(path),
            Some(path) if formats.is_quantization(path.as_str()) => Self::Quantization(path),
            folder => Self::Folder(folder),
        }
    }

    /// Returns the target for the path of a file: an index if it is named like one, or else weights.
    pub(crate) fn from_file(path: RepoPath) -> Self {
        if path.is_index() { Self::Index(path) } else { Self::File(path) }
    }

    /// Returns the folder to search; `None` for the whole backend.
    pub(crate) fn folder(&self) -> Option<&RepoPath> {
        match self {
            Self::Folder(folder) => folder.as_ref(),
            Self::File(_) | Self::Index(_) | Self::Shards(_) | Self::Quantization(_) => None,
        }
    }
}
