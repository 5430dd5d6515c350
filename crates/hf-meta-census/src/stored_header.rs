//! The stored bytes of files, from which rows are computed, and hashes.

use std::mem::take;
use std::ops::Range;

use bytes::Bytes;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::table::{SortedRow, TableRow, integer};
use hf_meta::internal::{HeaderBytes, HeaderFile};
use hf_meta_count::count::Counter;
use hf_meta_format::formats::{FileHeader, Formats, HeaderError, read_header};

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
    if breakdown.is_exact() { i64::try_from(parameters.total()).ok() } else { None }
}

/// The number of hash bytes to keep per tensor. Small, because a checkpoint may have half a million tensors.
const HASH_BYTES: usize = 16;

/// Hashes all tensors of a checkpoint.
///
/// A hash is the SHA-256 of sorted entries. The entry of a tensor is the first 16 bytes of the SHA-256 of its name,
/// dtype and shape as text, each followed by a line feed: `w\nBF16\n2,3\n`. The hash of shapes omits the dtype.
/// Neither the order of the tensors nor their files affect the result.
#[derive(Debug, Default)]
pub(super) struct LayoutHasher {
    layout: Vec<[u8; HASH_BYTES]>,
    shape: Vec<[u8; HASH_BYTES]>,
}

impl LayoutHasher {
    /// Adds the tensors of a file.
    pub(super) fn add(&mut self, header: &FileHeader) {
        header.tensors().for_each(|name, tensor| {
            let (dtype, shape) = (tensor.dtype.as_str(), tensor.shape.iter().join(","));
            self.layout.push(short_hash(&format!("{name}\n{dtype}\n{shape}\n")));
            self.shape.push(short_hash(&format!("{name}\n{shape}\n")));
        });
    }

    /// Returns the hash of the layout and the hash of the shapes; `None` if no header was added.
    pub(super) fn finish(&mut self) -> Option<(Bytes, Bytes)> {
        let (layout, shape) = (take(&mut self.layout), take(&mut self.shape));
        (!layout.is_empty()).then(|| (digest(layout), digest(shape)))
    }
}

/// Returns the first bytes of a text's hash.
pub(super) fn short_hash(text: &str) -> [u8; HASH_BYTES] {
    let mut kept = [0; HASH_BYTES];
    kept.copy_from_slice(&Sha256::digest(text)[..HASH_BYTES]);
    kept
}

fn digest(mut entries: Vec<[u8; HASH_BYTES]>) -> Bytes {
    entries.sort_unstable();
    Bytes::copy_from_slice(&Sha256::digest(entries.as_flattened()))
}

/// Parses a SHA-256 hash in hexadecimal.
pub(super) fn digest_from_hex(text: &str) -> Option<Bytes> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let bytes = digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok());
    bytes.collect::<Option<Bytes>>().filter(|bytes| bytes.len() == Sha256::output_size())
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    format!("{:02x}", bytes.iter().format(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta_format::formats::safetensors::SafetensorsFileHeader;

    fn digests(files: &[&str]) -> (Bytes, Bytes) {
        let mut hasher = LayoutHasher::default();
        for json in files {
            let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
            hasher.add(&header);
        }
        hasher.finish().unwrap()
    }

    #[test]
    fn hashes_ignore_order_and_files_and_only_one_includes_dtypes() {
        let a = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        let b = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
        let both = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                       "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}}"#;
        let half = r#"{"b":{"dtype":"F16","shape":[],"data_offsets":[0,2]},
                       "a":{"dtype":"F16","shape":[2,3],"data_offsets":[2,14]}}"#;
        assert_eq!(digests(&[a, b]), digests(&[both]));
        assert_eq!(digests(&[half]).1, digests(&[both]).1);
        assert_ne!(digests(&[half]).0, digests(&[both]).0);
        assert_eq!(LayoutHasher::default().finish(), None);
    }

    /// Computed with Python: `sha256(b"".join(sorted(sha256(entry).digest()[:16] for entry in entries)))`.
    #[test]
    fn hashes_match_the_python_reference() {
        let both = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                       "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}}"#;
        let found = digests(&[both]);
        let layout = "222b08064d26d8a977592d7b5ee3ac731075bc37f03aff8fbc3bdc9e92d3c2bf";
        let shape = "e8f71e746555f3c5ced1a4752595b5a2f2331b66b6816644f8232c3dc786cd35";
        assert_eq!((hexadecimal(&found.0), hexadecimal(&found.1)), (layout.into(), shape.into()));
        assert_eq!(digest_from_hex(layout), Some(found.0));
        assert!(
            [&layout[1..], &layout[2..], &layout.replace('b', "g"), ""].map(digest_from_hex)
                == [const { None }; 4]
        );
    }
}
