//! The header bytes of one commit.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::RangeBytes;

/// The limit of the bytes that are cached of one commit. The largest known sets of weights have 120 MB of
/// headers and index.
pub(super) const LIMIT: u64 = 128 << 20;

/// The bytes that the results for one commit come from: the start of each weights file up to the end of
/// its header, whole small files, and listings.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CachedHeaders {
    files: BTreeMap<String, FileStart>,
    /// By folder; the folder of the whole repository has no name.
    listings: BTreeMap<String, CachedListing>,
    /// The name of the repository on the Hub, if the entry was found under another one.
    pub(crate) canonical_name: Option<String>,
    /// Bytes that were added.
    #[serde(skip)]
    length: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct FileStart {
    bytes: BytesMut,
    file_size: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct CachedListing {
    /// Paths and sizes in bytes.
    files: Vec<(String, u64)>,
    is_complete: bool,
}

impl CachedHeaders {
    /// Adds a range of a file, if it continues the start that is known.
    pub(crate) fn add_range(&mut self, path: &RepoPath, start: u64, range: &RangeBytes) {
        let known = self.files.get(path.as_str()).map_or(0, |file| file.bytes.len() as u64);
        let new = known.checked_sub(start).and_then(|skip| usize::try_from(skip).ok());
        let Some(new) = new.and_then(|skip| range.bytes.get(skip..)) else { return };
        if self.has_room_for(new.len()) {
            let file = self.files.entry(path.to_string()).or_default();
            file.file_size = range.file_size;
            file.bytes.extend_from_slice(new);
        }
    }

    /// Adds a whole file.
    pub(crate) fn add_file(&mut self, path: &RepoPath, bytes: Vec<u8>) {
        if self.has_room_for(bytes.len()) {
            let file_size = bytes.len() as u64;
            let file = FileStart { bytes: Bytes::from(bytes).into(), file_size };
            self.files.insert(path.to_string(), file);
        }
    }

    /// Drops the bytes of a file behind the end of its header.
    pub(crate) fn end_header(&mut self, path: &RepoPath, end: u64) {
        if let (Some(file), Ok(end)) = (self.files.get_mut(path.as_str()), usize::try_from(end)) {
            self.length -= file.bytes.len().saturating_sub(end) as u64;
            file.bytes.truncate(end);
        }
    }

    /// Adds the listing of a folder.
    pub(crate) fn add_listing(
        &mut self,
        folder: Option<&RepoPath>,
        files: &[ListedFile],
        is_complete: bool,
    ) {
        let entry = |file: &ListedFile| (file.path.to_string(), file.size);
        if self.has_room_for(files.iter().map(|file| file.path.as_str().len() + 16).sum()) {
            let files = files.iter().map(entry).collect();
            self.listings.insert(folder_name(folder), CachedListing { files, is_complete });
        }
    }

    fn has_room_for(&mut self, length: usize) -> bool {
        self.length = self.length.saturating_add(length as u64);
        if self.is_skipped() {
            self.skip_caching();
        }
        !self.is_skipped()
    }

    /// Returns how many bytes were added.
    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }

    /// Drops everything, now and later: the commit is not to be cached.
    pub(crate) fn skip_caching(&mut self) {
        *self = Self { length: u64::MAX, ..Self::default() };
    }

    /// Returns whether the commit is not to be cached.
    pub(crate) fn is_skipped(&self) -> bool {
        self.length > LIMIT
    }

    /// Returns a range of a file up to the end of the cached bytes; `None` if it begins behind them.
    pub(crate) fn range(&self, path: &RepoPath, range: &Range<u64>) -> Option<RangeBytes> {
        let FileStart { bytes, file_size } = self.files.get(path.as_str())?;
        let end = usize::try_from(range.end).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = bytes.get(usize::try_from(range.start).ok()?..end)?;
        let is_behind = bytes.is_empty() && range.start < *file_size;
        (!is_behind).then(|| RangeBytes { bytes: bytes.to_vec(), file_size: *file_size })
    }

    /// Returns a whole file; `None` if it is not cached to its end.
    pub(crate) fn whole(&self, path: &RepoPath) -> Option<Vec<u8>> {
        let file = self.files.get(path.as_str())?;
        (file.bytes.len() as u64 == file.file_size).then(|| file.bytes.to_vec())
    }

    /// Returns the listing of a folder, and whether it is complete.
    pub(crate) fn listing(&self, folder: Option<&RepoPath>) -> Option<(Vec<ListedFile>, bool)> {
        let listing = self.listings.get(&folder_name(folder))?;
        let files = listing.files.iter().map(|(path, size)| {
            let path = path.parse().ok()?;
            Some(ListedFile { path, size: *size })
        });
        Some((files.collect::<Option<_>>()?, listing.is_complete))
    }
}

fn folder_name(folder: Option<&RepoPath>) -> String {
    folder.map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    fn range(bytes: &[u8]) -> RangeBytes {
        RangeBytes { bytes: bytes.to_vec(), file_size: 1_000 }
    }

    fn headers() -> CachedHeaders {
        let (mut headers, file) = (CachedHeaders::default(), path("a/b.safetensors"));
        headers.add_file(&path("a/index.json"), b"{}".to_vec());
        headers.add_range(&file, 0, &range(b"12345678"));
        headers.add_range(&file, 8, &range(b"header and data"));
        headers.end_header(&file, 14);
        headers.add_listing(None, &[ListedFile { path: file, size: 1_000 }], true);
        headers.add_listing(Some(&path("c")), &[], false);
        headers
    }

    #[test]
    fn headers_are_the_same_after_encoding_and_decoding() {
        let encoded = postcard::to_allocvec(&headers()).unwrap();
        let headers: CachedHeaders = postcard::from_bytes(&encoded).unwrap();
        assert_eq!(postcard::to_allocvec(&headers).unwrap(), encoded);
        let bytes = |range| headers.range(&path("a/b.safetensors"), &range).map(|read| read.bytes);
        assert_eq!(bytes(0..8).unwrap(), b"12345678");
        assert_eq!(bytes(8..14).unwrap(), b"header");
        assert_eq!(bytes(0..500).unwrap(), b"12345678header");
        assert_eq!(bytes(14..15), None);
        assert_eq!(bytes(2_000..3_000), None);
        assert!(headers.range(&path("a/c"), &(0..8)).is_none());
    }

    #[test]
    fn bytes_that_do_not_continue_the_start_of_a_file_are_not_added() {
        let (mut headers, file) = (headers(), path("a/b.safetensors"));
        headers.add_range(&file, 15, &range(b"gap"));
        headers.add_range(&file, 0, &range(b"87654321"));
        assert_eq!(headers.range(&file, &(0..500)).unwrap().bytes, b"12345678header");
        headers.add_range(&file, 4, &range(b"5678header+"));
        assert_eq!(headers.range(&file, &(0..500)).unwrap().bytes, b"12345678header+");
    }

    #[test]
    fn only_whole_files_and_known_listings_are_returned() {
        let headers = headers();
        assert_eq!(headers.whole(&path("a/index.json")).unwrap(), b"{}".to_vec());
        assert_eq!(headers.whole(&path("a/b.safetensors")), None);
        assert_eq!(headers.listing(None).map(|(files, _)| files.len()), Some(1));
        assert_eq!(headers.listing(Some(&path("c"))), Some((Vec::new(), false)));
        assert_eq!(headers.listing(Some(&path("a"))), None);
    }

    #[test]
    fn a_commit_over_the_limit_is_not_cached() {
        let mut headers = headers();
        assert!(!headers.is_skipped());
        headers.length = LIMIT;
        headers.add_file(&path("x"), b"1".to_vec());
        assert!(headers.is_skipped() && headers.whole(&path("a/index.json")).is_none());
        headers.end_header(&path("a/b.safetensors"), 0);
        headers.add_file(&path("x"), b"1".to_vec());
        assert!(headers.is_skipped() && headers.whole(&path("x")).is_none());
    }

    #[test]
    fn a_cached_listing_with_a_path_that_leads_out_of_the_folder_is_not_returned() {
        let files = vec![("../x".to_owned(), 1)];
        let listing = CachedListing { files, is_complete: true };
        let mut headers = CachedHeaders::default();
        headers.listings.insert(String::new(), listing);
        assert_eq!(headers.listing(None), None);
    }
}
