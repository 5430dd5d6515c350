//! The header bytes of one commit. They compress well, because they consist mostly of similar names.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::ListedFile;
use serde::{Deserialize, Serialize};

use crate::base::FilePart;
use crate::hub::{CommitSha, RepoId};

/// The bytes from which the parameters of a commit are counted: the header of each weight file, and whole small files
/// such as the index.
///
/// [`count_and_record`](crate::internal::count_and_record) returns them. Store them to count again later, with
/// [`recount`](crate::internal::recount) and a newer version of this library, without a request. They are compressed in
/// memory.
#[derive(Clone, Debug)]
pub struct HeaderBytes {
    pub(crate) commit: CommitSha,
    pub(crate) headers: CachedHeaders,
    /// The canonical name of the repository if it differs from the requested one.
    pub(crate) canonical_name: Option<RepoId>,
}

/// The stored bytes of a file; see [`HeaderBytes`].
#[derive(Clone, Debug)]
pub struct HeaderFile {
    /// The path of the file in the repository.
    pub path: RepoPath,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The SHA-256 hash of the whole file in hexadecimal, if the Hub reported it.
    pub sha256: Option<String>,
    /// The start of the file, up to the end of its header. Contents that do not affect the counts may be zeroed.
    pub start: Bytes,
}

impl HeaderBytes {
    /// Creates an empty collection for a commit. Its files are also its listing: when it is recounted, no other files
    /// exist.
    pub fn new(commit: CommitSha) -> Self {
        let headers = CachedHeaders { is_listing: true, ..CachedHeaders::default() };
        Self { commit, headers, canonical_name: None }
    }

    /// Adds the bytes of a file.
    pub fn add(&mut self, file: HeaderFile) {
        let HeaderFile { path, size: file_size, sha256, start } = file;
        let start = Deflated::from_bytes(&start);
        self.headers.files.insert(path, CachedFile { start, file_size, sha256 });
    }

    /// Returns the commit.
    pub fn commit(&self) -> &CommitSha {
        &self.commit
    }

    /// Returns the canonical name of the repository if it differs from the requested one.
    pub fn canonical_name(&self) -> Option<&str> {
        self.canonical_name.as_ref().map(RepoId::as_str)
    }

    /// Returns the SHA-256 hash of a whole file in hexadecimal, if the Hub reported it.
    pub fn sha256(&self, path: &RepoPath) -> Option<&str> {
        self.headers.files.get(path)?.sha256.as_deref()
    }

    /// Decompresses the files one at a time.
    pub fn into_files(self) -> impl Iterator<Item = HeaderFile> {
        self.headers.files.into_iter().filter_map(|(path, file)| {
            let CachedFile { start, file_size: size, sha256 } = file;
            Some(HeaderFile { path, size, sha256, start: start.inflate()?.into() })
        })
    }
}

/// Everything that results for one commit are computed from: the start of each weight file up to the end of its
/// header, whole small files, and listings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CachedHeaders {
    pub(super) files: BTreeMap<RepoPath, CachedFile>,
    /// By folder. The root folder has an empty name.
    listings: BTreeMap<String, CachedListing>,
    /// True if `files` is the complete listing. Never true in a cache.
    #[serde(skip)]
    is_listing: bool,
}

/// The start of a file. Files are compressed separately, so that a call decompresses one at a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CachedFile<Start = Deflated> {
    pub(crate) start: Start,
    pub(crate) file_size: u64,
    /// The SHA-256 hash of the whole file in hexadecimal, if the server sent it.
    pub(crate) sha256: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CachedListing {
    /// Paths and sizes in bytes, encoded by `postcard`.
    files: Deflated,
    is_complete: bool,
}

impl CachedHeaders {
    /// Returns a file; `None` if it is not cached.
    pub(crate) fn file(&self, path: &RepoPath) -> Option<CachedFile> {
        self.files.get(path).cloned()
    }

    /// Adds the listing of a folder, encoded by [`encode_listing`].
    pub(super) fn add_listing(
        &mut self,
        folder: Option<&RepoPath>,
        encoded: &[u8],
        is_complete: bool,
    ) {
        let listing = CachedListing { files: Deflated::from_bytes(encoded), is_complete };
        self.listings.insert(folder_name(folder), listing);
    }

    /// Returns the listing of a folder, and true if it is complete.
    pub(crate) fn listing(&self, folder: Option<&RepoPath>) -> Option<(Vec<ListedFile>, bool)> {
        if self.is_listing {
            let files = self.files.iter().map(|(path, file)| {
                let (path, size) = (path.clone(), file.file_size);
                ListedFile { path, size }
            });
            return Some((files.filter(|file| file.is_below(folder)).collect(), true));
        }
        let CachedListing { files, is_complete } = self.listings.get(&folder_name(folder))?;
        Some((postcard::from_bytes(&files.inflate()?).ok()?, *is_complete))
    }
}

impl CachedFile<Vec<u8>> {
    pub(super) fn compress(self) -> CachedFile {
        let Self { start, file_size, sha256 } = self;
        CachedFile { start: Deflated::from_bytes(&start), file_size, sha256 }
    }
}

impl CachedFile {
    /// Returns a range, truncated at the end of the cached bytes; `None` if it starts after them.
    pub(crate) fn range(&self, range: &Range<u64>) -> Option<FilePart> {
        let (start, file_size) = (range.start, self.file_size);
        let bytes = self.start.inflate_range(start..range.end.min(self.start.length))?;
        let is_behind = bytes.is_empty() && start < file_size;
        (!is_behind).then_some(FilePart { bytes, file_size })
    }
}

/// Encodes the paths and sizes of files; `None` if they cannot be encoded.
pub(super) fn encode_listing(files: &[ListedFile]) -> Option<Vec<u8>> {
    let entries: Vec<_> = files.iter().map(|file| (&file.path, file.size)).collect();
    postcard::to_allocvec(&entries).ok()
}

fn folder_name(folder: Option<&RepoPath>) -> String {
    folder.map_or_else(String::new, ToString::to_string)
}

/// The maximum compression ratio of deflate. An entry that claims more is corrupt.
const MAX_RATIO: u64 = 1_040;

/// Compressed bytes. Clones share them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Deflated {
    bytes: Bytes,
    /// The number of bytes before compression.
    pub(crate) length: u64,
}

impl Deflated {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Writing to a `Vec` never fails.
        encoder.write_all(bytes).ok();
        let compressed = encoder.finish().unwrap_or_default();
        Self { bytes: compressed.into(), length: bytes.len() as u64 }
    }

    /// Decompresses all bytes; `None` if they are corrupt.
    pub(crate) fn inflate(&self) -> Option<Vec<u8>> {
        self.inflate_range(0..self.length)
    }

    /// Decompresses a range; `None` if it is out of bounds or the bytes are corrupt.
    pub(crate) fn inflate_range(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let length = range.end.checked_sub(range.start)?;
        if range.end > self.length || range.end / MAX_RATIO > self.bytes.len() as u64 {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()?);
        let mut inflater = DeflateDecoder::new(&*self.bytes);
        io::copy(&mut (&mut inflater).take(range.start), &mut io::sink()).ok()?;
        inflater.take(length).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 == length).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_with_escaping_paths_are_not_returned() {
        let mut headers = CachedHeaders::default();
        let escaping = postcard::to_allocvec(&vec![("../x", 1_u64)]).unwrap();
        headers.add_listing(None, &escaping, true);
        assert_eq!(headers.listing(None), None);
    }

    #[test]
    fn stored_files_are_also_the_listing() {
        let mut stored = HeaderBytes::new("1".repeat(40).parse().unwrap());
        for path in ["a/b.safetensors", "c.safetensors"] {
            let (path, start) = (path.parse().unwrap(), Bytes::from_static(b"header"));
            stored.add(HeaderFile { path, size: 1_000, sha256: Some("f".to_owned()), start });
        }
        let listed = |folder: Option<&RepoPath>| {
            let (files, is_complete) = stored.headers.listing(folder).unwrap();
            let files = files.into_iter().map(|file| (file.path.to_string(), file.size));
            (files.collect::<Vec<_>>(), is_complete)
        };
        let below = ("a/b.safetensors".to_owned(), 1_000);
        let root = ("c.safetensors".to_owned(), 1_000);
        assert_eq!(listed(Some(&"a".parse().unwrap())), (vec![below.clone()], true));
        assert_eq!(listed(None), (vec![below, root], true));
        assert_eq!(stored.sha256(&"c.safetensors".parse().unwrap()), Some("f"));
        let starts = stored.into_files().map(|file| file.start);
        assert_eq!(starts.collect::<Vec<_>>(), [&b"header"[..]; 2]);
    }

    fn text() -> Vec<u8> {
        (0..50_000_u32).flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn compression_round_trips() {
        for text in [vec![], b"x".to_vec(), text()] {
            let deflated = Deflated::from_bytes(&text);
            assert_eq!(deflated.length, text.len() as u64);
            assert_eq!(deflated.inflate().as_ref(), Some(&text));
        }
    }

    #[test]
    fn ranges_out_of_bounds_are_none() {
        let (text, deflated) = (text(), Deflated::from_bytes(&text()));
        assert_eq!(deflated.inflate_range(0..8).as_deref(), Some(&text[..8]));
        assert_eq!(deflated.inflate_range(8..200_000).as_deref(), Some(&text[8..]));
        assert_eq!(deflated.inflate_range(200_000..200_000), Some(Vec::new()));
        for range in [0..200_001, u64::MAX - 1..u64::MAX, Range { start: 9, end: 8 }] {
            assert_eq!(deflated.inflate_range(range), None);
        }
    }

    #[test]
    fn corrupt_bytes_are_not_returned() {
        let deflated = Deflated::from_bytes(&text());
        let cut = Deflated { bytes: deflated.bytes.slice(..100), ..deflated.clone() };
        let other = Deflated { bytes: vec![0xff; 1_000].into(), ..deflated.clone() };
        let promises = Deflated { length: u64::MAX, ..deflated };
        for broken in [cut, other, promises.clone()] {
            assert_eq!(broken.inflate(), None);
        }
        assert_eq!(promises.inflate_range(0..u64::MAX), None, "nothing is allocated for it");
    }
}
