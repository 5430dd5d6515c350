//! The header bytes of one commit.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::deflated::{Deflated, Deflater};
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::RangeBytes;

/// The maximum number of bytes to cache per commit, before compression. The largest known set of weights has 120 MB
/// of headers and index.
const LIMIT: u64 = 128 << 20;

/// Everything that results for one commit are computed from: the start of each weight file up to the end of its
/// header, whole small files, and listings.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CachedHeaders {
    files: BTreeMap<String, CachedFile>,
    /// By folder. The root folder has an empty name.
    listings: BTreeMap<String, CachedListing>,
    /// The canonical name of the repository, if it differs from the requested one.
    pub canonical_name: Option<String>,
}

/// The start of a file. Files are compressed separately, so that a call decompresses one at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CachedFile {
    pub start: Deflated,
    pub file_size: u64,
    /// The SHA-256 hash of the whole file in hexadecimal, if the server sent it.
    pub sha256: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CachedListing {
    /// Paths and sizes in bytes, encoded by `postcard`.
    files: Deflated,
    is_complete: bool,
}

impl CachedHeaders {
    /// Returns a file; `None` if it is not cached.
    pub fn file(&self, path: &RepoPath) -> Option<CachedFile> {
        self.files.get(path.as_str()).cloned()
    }

    /// Returns every file with its path.
    pub fn into_files(self) -> impl Iterator<Item = (String, CachedFile)> {
        self.files.into_iter()
    }

    /// Creates the headers of a commit from its files, which are also the complete listing of `folder`.
    pub fn from_files(
        files: impl IntoIterator<Item = (RepoPath, CachedFile)>,
        folder: Option<&RepoPath>,
    ) -> Self {
        let (mut recorded, mut listed) = (RecordedHeaders::default(), Vec::new());
        for (path, file) in files {
            recorded.add_start(&path, file.clone());
            listed.push(ListedFile { path, size: file.file_size });
        }
        recorded.add_listing(folder, &listed, true);
        recorded.headers
    }

    /// Returns the listing of a folder, and true if it is complete.
    pub(crate) fn listing(&self, folder: Option<&RepoPath>) -> Option<(Vec<ListedFile>, bool)> {
        let CachedListing { files, is_complete } = self.listings.get(&folder_name(folder))?;
        let files: Vec<(String, u64)> = postcard::from_bytes(&files.inflate()?).ok()?;
        let files = files.into_iter().map(|(path, size)| {
            let path = path.parse().ok()?;
            Some(ListedFile { path, size })
        });
        Some((files.collect::<Option<_>>()?, *is_complete))
    }
}

impl CachedFile {
    /// Returns a range, truncated at the end of the cached bytes; `None` if it starts after them.
    pub(crate) fn range(&self, range: &Range<u64>) -> Option<RangeBytes> {
        let (start, file_size) = (range.start, self.file_size);
        let bytes = self.start.inflate_range(start..range.end.min(self.start.length()))?;
        let is_behind = bytes.is_empty() && start < file_size;
        (!is_behind).then_some(RangeBytes { bytes, file_size })
    }

    /// Returns all bytes of the file, if it is cached completely.
    pub(crate) fn whole(self) -> Option<Deflated> {
        (self.start.length() == self.file_size).then_some(self.start)
    }
}

/// Collects the header bytes that a call reads.
#[derive(Debug, Default)]
pub(crate) struct RecordedHeaders {
    headers: CachedHeaders,
    /// Files whose header is still incomplete.
    starts: BTreeMap<String, FileStart>,
    /// The number of bytes added so far.
    length: u64,
}

/// The bytes read so far from the start of a file.
#[derive(Debug, Default)]
pub(crate) struct FileStart {
    bytes: Vec<u8>,
    file_size: u64,
    sha256: Option<String>,
}

impl FileStart {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn compress(self) -> CachedFile {
        let mut deflater = Deflater::default();
        deflater.add(&self.bytes);
        CachedFile { start: deflater.finish(), file_size: self.file_size, sha256: self.sha256 }
    }
}

impl RecordedHeaders {
    /// Adds a range of a file, if it overlaps or directly follows the bytes read so far.
    pub(crate) fn add_range(
        &mut self,
        path: &RepoPath,
        start: u64,
        range: &RangeBytes,
        sha256: Option<&str>,
    ) {
        let known = self.starts.get(path.as_str()).map_or(0, |file| file.bytes.len() as u64);
        let new = known.checked_sub(start).and_then(|skip| usize::try_from(skip).ok());
        let Some(new) = new.and_then(|skip| range.bytes.get(skip..)) else { return };
        if self.has_room_for(new.len() as u64) {
            let file = self.starts.entry(path.to_string()).or_default();
            file.file_size = range.file_size;
            file.sha256 = sha256.map(str::to_owned).or_else(|| file.sha256.take());
            file.bytes.extend_from_slice(new);
        }
    }

    /// Fills a range that the parser skipped with zeros, up to `start`.
    pub(crate) fn fill_gap(&mut self, path: &RepoPath, start: u64) {
        let known = self.starts.get(path.as_str()).map_or(start, |file| file.bytes.len() as u64);
        let gap = start.saturating_sub(known);
        if gap > 0
            && self.has_room_for(gap)
            && let (Some(file), Ok(start)) =
                (self.starts.get_mut(path.as_str()), usize::try_from(start))
        {
            file.bytes.resize(start, 0);
        }
    }

    /// Takes the start of a file, truncated at the end of its header. The caller compresses it and adds it back.
    pub(crate) fn take_start(&mut self, path: &RepoPath, end: u64) -> Option<FileStart> {
        let mut start = self.starts.remove(path.as_str())?;
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        self.length -= start.bytes.len().saturating_sub(end) as u64;
        start.bytes.truncate(end);
        Some(start)
    }

    /// Adds a compressed start after [`Self::take_start`].
    pub(crate) fn add_start(&mut self, path: &RepoPath, file: CachedFile) {
        if !self.is_skipped() {
            self.headers.files.insert(path.to_string(), file);
        }
    }

    /// Adds a whole file.
    pub(crate) fn add_file(&mut self, path: &RepoPath, start: Deflated) {
        let file_size = start.length();
        if self.has_room_for(file_size) {
            self.headers
                .files
                .insert(path.to_string(), CachedFile { start, file_size, sha256: None });
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
        let entries: Vec<_> = files.iter().map(entry).collect();
        let Ok(encoded) = postcard::to_allocvec(&entries) else { return };
        if self.has_room_for(encoded.len() as u64) {
            let files = Deflated::from_bytes(&encoded);
            self.headers.listings.insert(folder_name(folder), CachedListing { files, is_complete });
        }
    }

    fn has_room_for(&mut self, length: u64) -> bool {
        self.length = self.length.saturating_add(length);
        if self.is_skipped() {
            self.skip_caching();
        }
        !self.is_skipped()
    }

    /// Drops all bytes and ignores later ones: the commit will not be cached.
    pub(crate) fn skip_caching(&mut self) {
        *self = Self { length: u64::MAX, ..Self::default() };
    }

    /// Returns true if the commit will not be cached.
    fn is_skipped(&self) -> bool {
        self.length > LIMIT
    }

    /// Returns the headers to cache; `None` if the commit must not be cached.
    pub(crate) fn finish(mut self, canonical_name: Option<String>) -> Option<CachedHeaders> {
        if self.is_skipped() {
            return None;
        }
        for (path, start) in self.starts {
            self.headers.files.insert(path, start.compress());
        }
        Some(CachedHeaders { canonical_name, ..self.headers })
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

    fn recorded() -> RecordedHeaders {
        let (mut headers, file) = (RecordedHeaders::default(), path("a/b.safetensors"));
        headers.add_file(&path("a/index.json"), Deflated::from_bytes(b"{}"));
        headers.add_range(&file, 0, &range(b"12345678"), None);
        headers.add_range(&file, 8, &range(b"header and data"), None);
        let start = headers.take_start(&file, 14).unwrap();
        headers.add_start(&file, start.compress());
        headers.add_listing(None, &[ListedFile { path: file, size: 1_000 }], true);
        headers.add_listing(Some(&path("c")), &[], false);
        headers
    }

    fn headers() -> CachedHeaders {
        recorded().finish(None).unwrap()
    }

    fn bytes(headers: &CachedHeaders, range: Range<u64>) -> Option<Vec<u8>> {
        headers.file(&path("a/b.safetensors"))?.range(&range).map(|read| read.bytes)
    }

    #[test]
    fn headers_are_the_same_after_encoding_and_decoding() {
        let encoded = postcard::to_allocvec(&headers()).unwrap();
        let headers: CachedHeaders = postcard::from_bytes(&encoded).unwrap();
        assert_eq!(postcard::to_allocvec(&headers).unwrap(), encoded);
        assert_eq!(bytes(&headers, 0..8).unwrap(), b"12345678");
        assert_eq!(bytes(&headers, 8..14).unwrap(), b"header");
        assert_eq!(bytes(&headers, 0..500).unwrap(), b"12345678header");
        assert_eq!(bytes(&headers, 14..15), None);
        assert_eq!(bytes(&headers, 2_000..3_000), None);
        assert!(headers.file(&path("a/c")).is_none());
    }

    #[test]
    fn bytes_that_do_not_continue_the_start_of_a_file_are_not_added() {
        let (mut recorded, file) = (RecordedHeaders::default(), path("a/b.safetensors"));
        recorded.add_range(&file, 0, &range(b"12345678header"), None);
        recorded.add_range(&file, 15, &range(b"gap"), None);
        recorded.add_range(&file, 0, &range(b"87654321"), None);
        recorded.add_range(&file, 4, &range(b"5678header+"), None);
        let headers = recorded.finish(None).unwrap();
        assert_eq!(bytes(&headers, 0..500).unwrap(), b"12345678header+");
    }

    #[test]
    fn a_gap_that_is_skipped_is_filled_up_to_the_limit() {
        let (mut recorded, file) = (RecordedHeaders::default(), path("a/b.safetensors"));
        recorded.fill_gap(&file, 2);
        recorded.add_range(&file, 0, &range(b"start"), None);
        recorded.fill_gap(&file, 7);
        recorded.add_range(&file, 7, &range(b"end"), None);
        let start = recorded.take_start(&file, 10).unwrap();
        assert_eq!(start.bytes, b"start\0\0end");
        recorded.add_range(&file, 0, &range(b"start"), None);
        recorded.fill_gap(&file, LIMIT + 100);
        assert!(recorded.is_skipped());
    }

    #[test]
    fn only_whole_files_and_known_listings_are_returned() {
        let headers = headers();
        let whole = |name| headers.file(&path(name))?.whole()?.inflate();
        assert_eq!(whole("a/index.json").unwrap(), b"{}".to_vec());
        assert_eq!(whole("a/b.safetensors"), None);
        assert_eq!(headers.listing(None).map(|(files, _)| files.len()), Some(1));
        assert_eq!(headers.listing(Some(&path("c"))), Some((Vec::new(), false)));
        assert_eq!(headers.listing(Some(&path("a"))), None);
    }

    #[test]
    fn a_commit_over_the_limit_is_not_cached() {
        let mut recorded = recorded();
        recorded.length = LIMIT;
        let one_more = Deflated::from_bytes(b"1");
        recorded.add_file(&path("x"), one_more.clone());
        assert!(recorded.is_skipped() && recorded.headers.files.is_empty());
        assert!(recorded.take_start(&path("a/b.safetensors"), 0).is_none());
        recorded.add_file(&path("x"), one_more.clone());
        recorded.add_start(&path("x"), CachedFile { start: one_more, file_size: 1, sha256: None });
        assert!(recorded.headers.files.is_empty() && recorded.finish(None).is_none());
    }

    #[test]
    fn a_cached_listing_with_a_path_that_leads_out_of_the_folder_is_not_returned() {
        let files = Deflated::from_bytes(&postcard::to_allocvec(&vec![("../x", 1_u64)]).unwrap());
        let listing = CachedListing { files, is_complete: true };
        let mut headers = CachedHeaders::default();
        headers.listings.insert(String::new(), listing);
        assert_eq!(headers.listing(None), None);
    }
}
