//! Files in a listing.

use serde::Deserialize;

use crate::formats::RepoPath;

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedFile {
    /// The path in the repository or folder.
    pub path: RepoPath,
    /// The size in bytes.
    pub size: u64,
}

impl ListedFile {
    /// Returns whether the file is below a folder. `None` is the root folder.
    pub fn is_below(&self, folder: Option<&RepoPath>) -> bool {
        folder.is_none_or(|folder| is_below(self.path.as_str(), folder.as_str()))
    }
}

/// Returns whether a path is below a folder.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
