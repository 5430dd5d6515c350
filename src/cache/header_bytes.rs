//! The header bytes of one commit.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::deflated::Deflated;
use crate::base::transfer::RangeBytes;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::hub::CommitSha;

/// The bytes from which the parameters of a commit are counted: the header of each weight file, and whole small files
/// such as the index.
///
/// [`Model::count_and_record`](crate::Model::count_and_record) returns them. Store them to count again later, with
/// [`Model::recount`](crate::Model::recount) and a newer version of this library, without a request. They are
/// compressed in memory.
///
/// ```
/// # async fn example() -> Result<(), hf_meta::Error> {
/// use hf_meta::HeaderBytes;
///
/// let client = hf_meta::Client::new()?;
/// let recorded = client.model("bigscience/bloom").count_and_record().await;
/// if let Some(bytes) = recorded.bytes {
///     let mut stored = HeaderBytes::new(bytes.commit().clone());
///     for file in bytes.into_files() {
///         println!("{}: {} of {} bytes", file.path, file.start.len(), file.size);
///         stored.add(file);
///     }
///     let report = client.model("bigscience/bloom").recount(stored).await?;
///     println!("{} parameters", report.parameter_count.total());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeaderBytes {
    pub(crate) commit: CommitSha,
    pub(crate) headers: CachedHeaders,
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
    #[must_use]
    pub fn new(commit: CommitSha) -> Self {
        Self { commit, headers: CachedHeaders { is_listing: true, ..CachedHeaders::default() } }
    }

    /// Adds the bytes of a file.
    pub fn add(&mut self, file: HeaderFile) {
        let HeaderFile { path, size: file_size, sha256, start } = file;
        let start = Deflated::from_bytes(&start);
        self.headers.files.insert(path.to_string(), CachedFile { start, file_size, sha256 });
    }

    /// Returns the commit.
    #[must_use]
    pub fn commit(&self) -> &CommitSha {
        &self.commit
    }

    /// Returns the canonical name of the repository if it differs from the requested one.
    #[must_use]
    pub fn canonical_name(&self) -> Option<&str> {
        self.headers.canonical_name.as_deref()
    }

    /// Returns the SHA-256 hash of a whole file in hexadecimal, if the Hub reported it.
    #[must_use]
    pub fn sha256(&self, path: &RepoPath) -> Option<&str> {
        self.headers.files.get(path.as_str())?.sha256.as_deref()
    }

    /// Decompresses the files one at a time.
    pub fn into_files(self) -> impl Iterator<Item = HeaderFile> {
        self.headers.files.into_iter().filter_map(|(path, file)| {
            let start = file.start.inflate()?.into();
            let (path, size) = (path.parse().ok()?, file.file_size);
            Some(HeaderFile { path, size, sha256: file.sha256, start })
        })
    }
}

/// Everything that results for one commit are computed from: the start of each weight file up to the end of its
/// header, whole small files, and listings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CachedHeaders {
    pub(super) files: BTreeMap<String, CachedFile>,
    /// By folder. The root folder has an empty name.
    listings: BTreeMap<String, CachedListing>,
    /// The canonical name of the repository, if it differs from the requested one.
    pub(crate) canonical_name: Option<String>,
    /// True if `files` is the complete listing. Never true in a cache.
    #[serde(skip)]
    is_listing: bool,
}

/// The start of a file. Files are compressed separately, so that a call decompresses one at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CachedFile {
    pub(crate) start: Deflated,
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
        self.files.get(path.as_str()).cloned()
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
            let files = self.files.iter().filter_map(|(path, file)| {
                Some(ListedFile { path: path.parse().ok()?, size: file.file_size })
            });
            return Some((files.filter(|file| file.is_below(folder)).collect(), true));
        }
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

/// Encodes the paths and sizes of files; `None` if they cannot be encoded.
pub(super) fn encode_listing(files: &[ListedFile]) -> Option<Vec<u8>> {
    let entries: Vec<_> = files.iter().map(|file| (file.path.to_string(), file.size)).collect();
    postcard::to_allocvec(&entries).ok()
}

fn folder_name(folder: Option<&RepoPath>) -> String {
    folder.map_or_else(String::new, ToString::to_string)
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
}
