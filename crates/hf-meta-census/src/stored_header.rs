//! Stores the bytes that counts are computed from as rows.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::layout_digest::hexadecimal;
use hf_meta::{HeaderBytes, HeaderFile};

/// The stored bytes of a file in a repository: its header, or all of it if it is a small file.
///
/// The fields are the columns of the `headers` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredHeader {
    /// The repository name in the list.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The path of the file.
    pub file: String,
    /// The size of the whole file in bytes.
    pub file_size: i64,
    /// The SHA-256 hash of the whole file, if the Hub reported it.
    pub file_sha256: Option<String>,
    /// The SHA-256 hash of the stored bytes.
    pub sha256: String,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl StoredHeader {
    /// Decompresses the files of a commit one at a time. Corrupt files are skipped.
    pub(super) fn all(repo: &str, headers: HeaderBytes) -> impl Iterator<Item = Self> {
        let (repo, commit) = (repo.to_owned(), headers.commit().to_string());
        headers.into_files().filter_map(move |file| {
            Some(Self {
                repo: repo.clone(),
                commit: commit.clone(),
                file: file.path.to_string(),
                file_size: i64::try_from(file.size).ok()?,
                file_sha256: file.sha256,
                sha256: hexadecimal(&Sha256::digest(&file.start)),
                header: file.start,
            })
        })
    }

    /// Returns the stored file; `None` if the row has been changed.
    pub(super) fn to_file(&self) -> Option<HeaderFile> {
        let is_unchanged = hexadecimal(&Sha256::digest(&self.header)) == self.sha256;
        is_unchanged.then_some(HeaderFile {
            path: self.file.parse().ok()?,
            size: u64::try_from(self.file_size).ok()?,
            sha256: self.file_sha256.clone(),
            start: self.header.clone(),
        })
    }
}
