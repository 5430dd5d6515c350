//! The files of a repository with their hashes, as the Hub lists them.

use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::ListedFile;
use serde::{Deserialize, Serialize};

use super::CommitSha;

/// The files of a repository at a commit, with their sizes and hashes. Created by [`Model::manifest`].
///
/// Serializes to JSON and back, so that files can be compared on a machine without network access.
///
/// [`Model::manifest`]: crate::Model::manifest
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Manifest {
    /// The repository, as it was given.
    pub source: String,
    /// The commit of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSha>,
    /// The files.
    pub files: Vec<ManifestFile>,
}

/// A file with its size and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ManifestFile {
    /// The path in the repository.
    pub path: RepoPath,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 hash in hexadecimal, for large files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The hash by which Git identifies the content, in hexadecimal, for small files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_sha1: Option<String>,
}

impl Manifest {
    pub(crate) fn new(source: String, commit: Option<CommitSha>, files: Vec<ManifestFile>) -> Self {
        Self { source, commit, files }
    }
}

impl ManifestFile {
    /// Creates an entry. Hashes that are not hexadecimal digits of the expected number are left out. The Git hash of a
    /// large file belongs to its pointer.
    pub(super) fn new(file: ListedFile, sha256: Option<String>, git: Option<String>) -> Self {
        let is_hash = |hash: &String, length| {
            hash.len() == length && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let sha256 = sha256.filter(|hash| is_hash(hash, 64));
        let git_sha1 = git.filter(|hash| is_hash(hash, 40) && sha256.is_none());
        Self { path: file.path, size: file.size, sha256, git_sha1 }
    }
}

impl From<ManifestFile> for ListedFile {
    fn from(file: ManifestFile) -> Self {
        Self { path: file.path, size: file.size }
    }
}
