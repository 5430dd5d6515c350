//! Records the header bytes that a call reads.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Mutex};

use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_inspect::Part;
use tokio::task::JoinHandle;

use super::header_bytes::{CachedFile, CachedHeaders, Deflated, HeaderBytes, encode_listing};
use crate::base::blocking::spawn_blocking_if_large;
use crate::base::lock;
use crate::hub::{CommitSha, RepoId};

/// The maximum number of bytes to cache per commit, before compression. The largest known set of weights has 120 MB
/// of headers and index.
const MAX_BYTES_PER_COMMIT: u64 = 128 << 20;

/// The maximum number of bytes to fill with zeros between two ranges of a file. The commit of a file with a wider gap
/// is not cached, such as that of a large `PyTorch` checkpoint, which is read at its start and at its end.
const MAX_GAP: u64 = 16 << 20;

/// Records the header bytes that a call reads. Clones share the recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Recording>>);

/// The header bytes that a call has read so far.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    headers: CachedHeaders,
    /// The commit of the call, once it is known.
    pub(crate) commit: Option<CommitSha>,
    /// Files whose header is still incomplete.
    starts: BTreeMap<RepoPath, CachedFile<Vec<u8>>>,
    /// The files that are compressed in the background.
    compressing: Vec<(RepoPath, JoinHandle<Deflated>)>,
    /// The number of bytes added so far.
    length: u64,
}

impl Recorder {
    /// Changes the recording.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Recording) -> T) -> T {
        change(&mut lock(&self.0))
    }

    /// Adds a whole small file.
    pub(crate) fn add_file(&self, path: &RepoPath, file: &[u8]) {
        self.update(|recording| recording.add_file(path, Deflated::from_bytes(file)));
    }

    /// Adds a whole file that may be large. It is compressed in the background, while the call goes on.
    pub(crate) fn start_file(&self, path: RepoPath, file: &Arc<Vec<u8>>) {
        let file = Arc::clone(file);
        let compress = async move {
            spawn_blocking_if_large(file.len(), move || Deflated::from_bytes(&file)).await
        };
        self.update(|recording| recording.compressing.push((path, tokio::spawn(compress))));
    }

    /// Waits for the files that are compressed in the background.
    pub(crate) async fn finish_files(&self) {
        for (path, file) in self.update(|recording| take(&mut recording.compressing)) {
            // A task fails only if the runtime shuts down.
            let file = file.await.ok();
            self.update(|recording| match file {
                Some(file) => recording.add_file(&path, file),
                None => recording.discard(),
            });
        }
    }

    /// Ends the header of a file. Bytes past it are dropped, and the rest is compressed, so that the uncompressed
    /// headers of a call are never all in memory.
    pub(crate) async fn end_header(&self, path: &RepoPath, end: u64) {
        let start = self.update(|recording| recording.take_start(path, end));
        let Some(start) = start else { return };
        let file = spawn_blocking_if_large(start.start.len(), move || start.compress()).await;
        self.update(|recording| recording.add_start(path, file));
    }
}

impl Recording {
    /// Adds a range of a file that begins at `start`, and drops the bytes that are known. What the parser has skipped is
    /// filled with zeros. Ranges of a file whose start was not read are ignored. The commit of a file of unknown size is
    /// not cached.
    pub(crate) fn add_range(&mut self, path: &RepoPath, start: u64, range: &Part) {
        let Some(file_size) = range.file_size else { return self.discard() };
        let known = match self.starts.get(path) {
            Some(file) => file.start.len() as u64,
            None if start == 0 => 0,
            None => return,
        };
        let (gap, skip) = (start.saturating_sub(known), known.saturating_sub(start));
        if gap > MAX_GAP {
            self.discard();
        }
        let (Ok(gap_end), Ok(skip)) = (usize::try_from(known + gap), usize::try_from(skip)) else {
            return;
        };
        let Some(new) = range.bytes.get(skip..) else { return };
        if self.has_room_for(gap.saturating_add(new.len() as u64)) {
            let file = self.starts.entry(path.clone()).or_default();
            file.file_size = file_size;
            file.sha256 = range.sha256.clone().or_else(|| file.sha256.take());
            file.start.resize(gap_end, 0);
            file.start.extend_from_slice(new);
        }
    }

    /// Takes the start of a file, truncated at the end of its header. The caller compresses it and adds it back.
    fn take_start(&mut self, path: &RepoPath, end: u64) -> Option<CachedFile<Vec<u8>>> {
        let mut file = self.starts.remove(path)?;
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        self.length -= file.start.len().saturating_sub(end) as u64;
        file.start.truncate(end);
        Some(file)
    }

    /// Adds a compressed start after [`Self::take_start`].
    fn add_start(&mut self, path: &RepoPath, file: CachedFile) {
        if !self.is_discarded() {
            self.headers.files.insert(path.clone(), file);
        }
    }

    /// Adds a whole file.
    pub(crate) fn add_file(&mut self, path: &RepoPath, start: Deflated) {
        let file_size = start.length;
        if self.has_room_for(file_size) {
            let file = CachedFile { start, file_size, sha256: None };
            self.headers.files.insert(path.clone(), file);
        }
    }

    /// Adds the listing of a folder.
    pub(crate) fn add_listing(
        &mut self,
        folder: Option<&RepoPath>,
        files: &[ListedFile],
        is_complete: bool,
    ) {
        let Some(encoded) = encode_listing(files) else { return };
        if self.has_room_for(encoded.len() as u64) {
            self.headers.add_listing(folder, &encoded, is_complete);
        }
    }

    fn has_room_for(&mut self, length: u64) -> bool {
        self.length = self.length.saturating_add(length);
        if self.is_discarded() {
            self.discard();
        }
        !self.is_discarded()
    }

    /// Drops all bytes and ignores later ones: the commit will not be cached.
    pub(crate) fn discard(&mut self) {
        *self = Self { length: u64::MAX, ..Self::default() };
    }

    /// Returns true if the commit will not be cached.
    fn is_discarded(&self) -> bool {
        self.length > MAX_BYTES_PER_COMMIT
    }

    /// Takes the recorded bytes. Returns `None` if they must not be cached or the commit is unknown.
    pub(crate) fn finish(&mut self, canonical_name: Option<RepoId>) -> Option<HeaderBytes> {
        if self.is_discarded() {
            return None;
        }
        let Self { mut headers, commit, starts, .. } = take(self);
        headers.files.extend(starts.into_iter().map(|(path, file)| (path, file.compress())));
        Some(HeaderBytes { commit: commit?, headers, canonical_name })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    fn range(bytes: &[u8]) -> Part {
        Part { bytes: bytes.to_vec(), file_size: Some(1_000), ..Part::default() }
    }

    fn recorded() -> Recording {
        let (mut headers, file) = (Recording::default(), path("a/b.safetensors"));
        headers.commit = Some("1".repeat(40).parse().unwrap());
        headers.add_file(&path("a/index.json"), Deflated::from_bytes(b"{}"));
        headers.add_range(&file, 0, &range(b"12345678"));
        headers.add_range(&file, 8, &range(b"header and data"));
        let start = headers.take_start(&file, 14).unwrap();
        headers.add_start(&file, start.compress());
        headers.add_listing(None, &[ListedFile { path: file, size: 1_000 }], true);
        headers.add_listing(Some(&path("c")), &[], false);
        headers
    }

    fn headers() -> CachedHeaders {
        recorded().finish(None).unwrap().headers
    }

    fn bytes(headers: &CachedHeaders, range: Range<u64>) -> Option<Vec<u8>> {
        headers.file(&path("a/b.safetensors"))?.range(&range).map(|read| read.bytes)
    }

    #[test]
    fn headers_round_trip() {
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
    fn a_file_begins_at_its_start_and_known_bytes_are_not_repeated() {
        let (mut recorded, file) = (recorded(), path("a/c.safetensors"));
        recorded.add_range(&file, 15, &range(b"later"));
        recorded.add_range(&file, 0, &range(b"12345678header"));
        recorded.add_range(&file, 0, &range(b"87654321"));
        recorded.add_range(&file, 4, &range(b"5678header+"));
        let headers = recorded.finish(None).unwrap().headers;
        let read = headers.file(&file).unwrap().range(&(0..500)).unwrap();
        assert_eq!(read.bytes, b"12345678header+");
    }

    #[test]
    fn skipped_ranges_are_zero_filled_up_to_the_limit() {
        let (mut recorded, file) = (Recording::default(), path("a/b.safetensors"));
        recorded.add_range(&file, 2, &range(b"art"));
        recorded.add_range(&file, 0, &range(b"start"));
        recorded.add_range(&file, 7, &range(b"end"));
        let start = recorded.take_start(&file, 10).unwrap();
        assert_eq!(start.start, b"start\0\0end");
        recorded.add_range(&file, 0, &range(b"start"));
        recorded.add_range(&file, MAX_GAP + 5, &range(b""));
        assert!(!recorded.is_discarded());
        recorded.add_range(&file, 2 * MAX_GAP + 6, &range(b""));
        assert!(recorded.is_discarded());
    }

    #[test]
    fn files_and_known_listings_are_returned() {
        let headers = headers();
        let index = headers.file(&path("a/index.json")).unwrap();
        assert_eq!((index.start.inflate().unwrap(), index.file_size), (b"{}".to_vec(), 2));
        assert_eq!(headers.listing(None).map(|(files, _)| files.len()), Some(1));
        assert_eq!(headers.listing(Some(&path("c"))), Some((Vec::new(), false)));
        assert_eq!(headers.listing(Some(&path("a"))), None);
    }

    #[test]
    fn a_commit_over_the_limit_is_not_cached() {
        let mut recorded = recorded();
        recorded.length = MAX_BYTES_PER_COMMIT;
        let one_more = Deflated::from_bytes(b"1");
        recorded.add_file(&path("x"), one_more.clone());
        assert!(recorded.is_discarded() && recorded.headers.files.is_empty());
        assert!(recorded.take_start(&path("a/b.safetensors"), 0).is_none());
        recorded.add_file(&path("x"), one_more.clone());
        recorded.add_start(&path("x"), CachedFile { start: one_more, file_size: 1, sha256: None });
        assert!(recorded.headers.files.is_empty() && recorded.finish(None).is_none());
    }
}
