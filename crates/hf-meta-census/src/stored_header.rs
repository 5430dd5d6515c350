//! The stored bytes of files, from which rows are computed.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::layout_digest::{digest_from_hex, hexadecimal};
use super::row::integer;
use super::table::{SortedRow, TableRow};
use hf_meta::count::Counter;
use hf_meta::formats::{FileHeader, Formats, HeaderError, read_header};
use hf_meta::{HeaderBytes, HeaderFile};

/// The recommended limit on the total header size of one repository of a census, in bytes, for
/// [`ClientBuilder::max_total_header_bytes`](hf_meta::ClientBuilder::max_total_header_bytes). The largest known headers total 120 MB.
pub const MAX_HEADER_BYTES: u64 = 128 << 20;

/// The stored bytes of a file in a repository: its header, or all of it if it is a small file.
///
/// The fields are the columns of the `files` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredHeader {
    /// The repository name in the list.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The path of the file.
    pub path: String,
    /// The size of the whole file in bytes.
    pub size: i64,
    /// The SHA-256 hash of the whole file, if the Hub reported it.
    pub sha256: Option<Bytes>,
    /// The number of tensors in the file; absent if the stored bytes are not the header of the weight file.
    pub tensors: Option<i64>,
    /// The number of parameters in the file; absent if they depend on other files.
    pub parameters: Option<i64>,
    /// The SHA-256 hash of the stored bytes.
    pub header_sha256: Bytes,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl TableRow for StoredHeader {
    const NAME: &str = "The table `files`";
    const KEY: &[&str] = &["repo", "path"];

    /// Each may be as large as the limit for a header.
    const BATCH_ROWS: usize = 1;
}

impl StoredHeader {
    /// Decompresses the files of a commit one at a time.
    pub(super) fn all(repo: &str, headers: HeaderBytes) -> impl Iterator<Item = Self> + use<> {
        let (repo, commit) = (repo.to_owned(), headers.commit().to_string());
        headers.into_files().filter_map(move |file| {
            let header = Self {
                repo: repo.clone(),
                commit: commit.clone(),
                path: file.path.to_string(),
                size: i64::try_from(file.size).ok()?,
                sha256: file.sha256.as_deref().and_then(digest_from_hex),
                header_sha256: Bytes::copy_from_slice(&Sha256::digest(&file.start)),
                header: file.start,
                ..Self::default()
            };
            Some(header.with_counts())
        })
    }

    /// Counts the file with the current rules.
    pub(super) fn with_counts(self) -> Self {
        if Formats::built_in().find(&self.path).is_none() {
            return Self { tensors: Some(0), parameters: Some(0), ..self };
        }
        let header = self.parse();
        let tensors = header.as_ref().map(|header| integer(header.tensors().len() as u64));
        Self { tensors, parameters: header.as_ref().and_then(count_alone), ..self }
    }

    /// Returns the header; `None` if the file has none.
    pub(super) fn parse(&self) -> Option<FileHeader> {
        let (_, format) = Formats::built_in().find(&self.path)?;
        let parser = format.parser(&self.path.parse().ok()?, MAX_HEADER_BYTES);
        let size = u64::try_from(self.size).ok();
        let read = |range: Range<u64>| {
            let position = |at| usize::try_from(at).unwrap_or(usize::MAX).min(self.header.len());
            Ok::<_, HeaderError>(self.header[position(range.start)..position(range.end)].to_vec())
        };
        read_header(parser, size, read).ok()
    }

    /// Returns the stored file; `None` if the row has been changed.
    pub(super) fn to_file(&self) -> Option<HeaderFile> {
        let is_unchanged = Sha256::digest(&self.header)[..] == self.header_sha256;
        is_unchanged.then_some(HeaderFile {
            path: self.path.parse().ok()?,
            size: u64::try_from(self.size).ok()?,
            sha256: self.sha256.as_deref().map(hexadecimal),
            start: self.header.clone(),
        })
    }
}

impl SortedRow for StoredHeader {
    fn key(&self) -> (&str, &str) {
        (&self.repo, &self.path)
    }
}

/// Returns the number of parameters in a file; `None` if other files could change it.
fn count_alone(header: &FileHeader) -> Option<i64> {
    let mut counter = Counter::new();
    counter.add_file(header).ok()?;
    let (parameters, breakdown) = counter.finish().ok()?;
    i64::try_from(parameters.total()).ok().filter(|_| breakdown.is_exact())
}
