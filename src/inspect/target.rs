//! The part of a source that a call reads.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::Error;
use crate::formats::weight_sets::{is_shard_pattern, shard_number};
use crate::formats::{Formats, RepoPath, clip};
use crate::report::Finding;

/// The part of a source that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
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
    pub(crate) fn from_path(formats: &Formats, path: Option<RepoPath>) -> Self {
        let is_file = |path: &RepoPath| formats.find(path.as_str()).is_some();
        match path {
            Some(path) if is_shard_pattern(formats, &path) => Self::Shards(path),
            Some(path) if is_file(&path) || path.is_index() => Self::File(path),
            Some(path) if formats.is_quantization(path.as_str()) => Self::Quantization(path),
            folder => Self::Folder(folder),
        }
    }

    /// Returns the finding for one shard of a model.
    pub(super) fn single_shard(&self) -> Option<Finding> {
        let Self::File(path) = self else { return None };
        let (number, total) = shard_number(path).filter(|(_, total)| *total > 1)?;
        Some(Finding::SingleShard { file: clip(path.as_str()), number, total })
    }

    /// Returns the folder to search; `None` for the whole source.
    pub(crate) fn folder(&self) -> Option<&RepoPath> {
        let Self::Folder(folder) = self else { return None };
        folder.as_ref()
    }
}

/// Returns the name of the file at a URL.
pub(crate) fn file_of(url: &Url) -> RepoPath {
    let name = url.path_segments().and_then(Iterator::last).unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8_lossy();
    RepoPath::new_unchecked(&name)
}

/// Returns the folder of a local path, and the file, shards or folder to read in it.
pub(crate) async fn on_disk(formats: &Formats, path: &Path) -> Result<(PathBuf, Target), Error> {
    let metadata = tokio::fs::metadata(path).await;
    if metadata.as_ref().is_ok_and(Metadata::is_dir) {
        return Ok((path.to_owned(), Target::Folder(None)));
    }
    let Some(name) = path.file_name().unwrap_or_default().to_str() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "the file name is not UTF-8");
        return Err(Error::from_io(path.display().to_string(), error));
    };
    let name = RepoPath::new_unchecked(name);
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let target = match metadata {
        Err(_) if is_shard_pattern(formats, &name) => Target::Shards(name),
        Err(_)
            if formats.is_quantization(name.as_str())
                && tokio::fs::metadata(&folder).await.is_ok() =>
        {
            Target::Quantization(name)
        }
        Err(error) => return Err(Error::from_io(path.display().to_string(), error)),
        Ok(_) => Target::File(name),
    };
    Ok((folder, target))
}
