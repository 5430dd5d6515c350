//! The requirements of [`FileStore`], [`Cache`] and [`Format`], as checks for the tests of a program that implements one.
//!
//! Each function returns the first requirement that is violated. The implementations of this project pass them, too.
//!
//! ```
//! use hf_meta::MemoryCache;
//! use hf_meta_format::formats::safetensors::Safetensors;
//! use hf_meta_testing::conformance;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), conformance::Violation> {
//! conformance::check_cache(MemoryCache::new(16 << 20)).await?;
//!
//! let header = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
//! let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 2]].concat();
//! conformance::check_format(&Safetensors, &"model.safetensors".parse().unwrap(), &file)?;
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt, join_all, ready};
use hf_meta::{Cache, CacheKey, Client, FileStore, RepoPath};
use hf_meta_format::formats::{FileHeader, Format, HeaderError, HeaderErrorKind, Step, TensorInfo};

use crate::log::lock;
use crate::{File, MockHub, Repo};

/// A requirement that an implementation violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Returns a violation unless a requirement holds.
fn require(holds: bool, requirement: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(requirement())) }
}

/// The files of a store, by path.
pub type StoredFiles = BTreeMap<RepoPath, Vec<u8>>;

/// The path of a file without weights, in a folder of a folder.
const BYTES: &str = "weights/notes/bytes.txt";

/// Returns the files that a store is checked with: weights of six parameters, and other files.
fn stored_files() -> StoredFiles {
    let header = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    let weights = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 24]].concat();
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    let files = [
        ("weights/model.safetensors", weights),
        (BYTES, bytes),
        ("empty.txt", Vec::new()),
        // Not in the folder, although its name begins with that of the folder.
        ("weights.txt", b"text".to_vec()),
    ];
    files.into_iter().filter_map(|(path, file)| Some((path.parse().ok()?, file))).collect()
}

/// Checks that a store returns the files that it contains. `create` fills a store with the given files.
///
/// # Errors
///
/// Returns the first violated requirement of [`FileStore`].
///
/// ```
/// # use std::{io, ops::Range};
/// # use futures::future::{BoxFuture, FutureExt, ready};
/// # use hf_meta::{FileStore, RangeBytes, RepoPath};
/// use hf_meta_testing::conformance::{StoredFiles, check_store};
///
/// # #[derive(Debug)]
/// # struct Bucket(StoredFiles);
/// # impl FileStore for Bucket {
/// #     fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> BoxFuture<'a, io::Result<RangeBytes>> {
/// #         let file = self.0.get(path).ok_or(io::Error::from(io::ErrorKind::NotFound));
/// #         ready(file.map(|file| {
/// #             let [start, end] = [range.start, range.end].map(|at| file.len().min(at as usize));
/// #             RangeBytes::new(file[start..end].to_vec(), file.len() as u64)
/// #         })).boxed()
/// #     }
/// # }
/// # #[tokio::main]
/// # async fn main() -> Result<(), hf_meta_testing::conformance::Violation> {
/// check_store(async |files: &StoredFiles| Bucket(files.clone())).await?;
/// # Ok(())
/// # }
/// ```
pub async fn check_store<S: FileStore>(
    create: impl AsyncFnOnce(&StoredFiles) -> S,
) -> Result<(), Violation> {
    let files = stored_files();
    let store = Arc::new(create(&files).await);
    for (path, file) in &files {
        let size = file.len() as u64;
        // The last ranges extend past the end of the file, and begin there.
        for range in [0..size, 0..8, 3..20, size / 2..size + 100, size..size + 8] {
            check_range(&*store, path, file, range).await?;
        }
    }
    check_missing_file(&*store).await?;
    check_listings(&*store, &files).await?;
    let reads = (0..64).map(|_| async {
        let all = files.iter().map(|(path, file)| check_range(&*store, path, file, 0..1_000));
        join_all(all).await.into_iter().collect::<Result<(), _>>()
    });
    join_all(reads).await.into_iter().collect::<Result<(), _>>()?;

    let client = Client::new().map_err(|error| Violation(error.to_string()))?;
    let model = client.model("conformance/store").store(store).path("weights/model.safetensors");
    let counted = model.count().await.map(|report| report.parameter_count.total());
    require(matches!(counted, Ok(6)), || format!("a model has 6 parameters, not {counted:?}"))
}

async fn check_range(
    store: &dyn FileStore,
    path: &RepoPath,
    file: &[u8],
    range: Range<u64>,
) -> Result<(), Violation> {
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
    let expected = &file[index(range.start)..index(range.end)];
    let shown = format!("bytes {range:?} of `{path}`, which has {} bytes", file.len());
    let read = store.read_range(path, range).await;
    let read = read.map_err(|error| Violation(format!("{shown}, are an error: {error}")))?;
    require(read.bytes == expected, || {
        format!("{shown}, are other bytes, or {} instead of {}", read.bytes.len(), expected.len())
    })?;
    require(read.file_size == file.len() as u64, || {
        format!("{shown}, come with the size {}", read.file_size)
    })
}

async fn check_missing_file(store: &dyn FileStore) -> Result<(), Violation> {
    for name in ["missing.safetensors", "weights/missing.safetensors", "missing/model.safetensors"]
    {
        let Ok(path) = name.parse() else { continue };
        let read = store.read_range(&path, 0..8).await;
        let kind = read.map(|_| ()).map_err(|error| error.kind());
        require(kind == Err(ErrorKind::NotFound), || {
            format!("a missing file is {kind:?}, and not an error of the kind `NotFound`")
        })?;
    }
    Ok(())
}

/// Checks the listings of a store that can list files.
async fn check_listings(store: &dyn FileStore, files: &StoredFiles) -> Result<(), Violation> {
    for folder in [None, "weights".parse().ok(), "weights/notes".parse().ok()] {
        let listed = store.list(folder.as_ref()).await;
        let listed = listed.map_err(|error| Violation(format!("a listing failed: {error}")))?;
        let Some(listed) = listed else { continue };
        let is_inside = |path: &&RepoPath| match &folder {
            Some(folder) => path.as_str().starts_with(&format!("{folder}/")),
            None => true,
        };
        let expected: BTreeSet<_> = files.keys().filter(is_inside).collect();
        let found: BTreeSet<_> = listed.iter().map(|file| &file.path).collect();
        require(found == expected && found.len() == listed.len(), || {
            format!("the files below {folder:?} are {found:?}, and not {expected:?}")
        })?;
        let wrong = listed.iter().find(|file| files[&file.path].len() as u64 != file.size);
        require(wrong.is_none(), || format!("the listing has another size: {wrong:?}"))?;
    }
    Ok(())
}

/// A cache that notes the keys that a client uses.
#[derive(Debug, Default)]
struct KeyRecorder(Mutex<Vec<CacheKey>>);

impl Cache for KeyRecorder {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        lock(&self.0).push(*key);
        ready(None).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, _: Vec<u8>) -> BoxFuture<'a, ()> {
        lock(&self.0).push(*key);
        ready(()).boxed()
    }
}

/// Starts a Hub with two models, of one and two parameters.
fn two_models() -> Result<MockHub, Violation> {
    let model = |name: &str, parameters: u64| {
        let weights = File::safetensors([("w", "U8", &[parameters][..])]);
        Repo::new(name).file("model.safetensors", weights)
    };
    let hub = MockHub::start([model("org/one", 1), model("org/two", 2)]);
    hub.map_err(|error| Violation(format!("the mock Hub did not start: {error}")))
}

async fn count(client: &Client, name: &str) -> Result<u64, Violation> {
    let counted = client.model(name).count().await;
    let counted = counted.map_err(|error| Violation(format!("a call failed: {error}")))?;
    Ok(counted.parameter_count.total())
}

/// Checks that a cache returns the entry that was last stored, and that a client counts the same with it. The cache must
/// be empty, and hold 4 MiB.
///
/// # Errors
///
/// Returns the first violated requirement of [`Cache`].
pub async fn check_cache(cache: impl Cache) -> Result<(), Violation> {
    let cache = Arc::new(cache);
    let hub = two_models()?;
    let keys = Arc::new(KeyRecorder::default());
    let build = |cache: Arc<dyn Cache>| {
        let client = Client::builder().endpoint(hub.endpoint()).header_cache(cache).build();
        client.map_err(|error| Violation(error.to_string()))
    };
    count(&build(Arc::<KeyRecorder>::clone(&keys))?, "org/one").await?;
    let keys: Vec<_> = lock(&keys.0).clone();
    let [first, .., last] = keys[..] else {
        return Err(Violation("a client uses fewer than two entries".to_owned()));
    };
    check_entries(&*cache, first, last).await?;

    let client = build(cache)?;
    // A corrupt entry is under a key that the client uses, and it must not end the call.
    for name in ["org/one", "org/two", "org/one", "org/two"] {
        let expected = if name == "org/one" { 1 } else { 2 };
        let found = count(&client, name).await?;
        require(found == expected, || format!("`{name}` has {found} parameters with this cache"))?;
    }
    hub.clear_log();
    count(&client, "org/one").await?;
    let ranges = hub.log().iter().filter(|request| request.range.is_some()).count();
    require(ranges == 0, || "the header that was just stored is read again".to_owned())
}

/// Checks that a cache returns the entries that were stored under two keys.
async fn check_entries(cache: &dyn Cache, one: CacheKey, other: CacheKey) -> Result<(), Violation> {
    let check = async |key: &CacheKey, expected: Option<&[u8]>, requirement: &str| {
        let found = cache.get(key).await;
        // No header is empty, so that a server that does not tell an empty value from a missing one is a cache, too.
        let is_lost = expected == Some(b"") && found.is_none();
        require(is_lost || found.as_deref() == expected, || requirement.to_owned())
    };
    check(&one, None, "an entry that was never stored is a miss").await?;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large = all_bytes.repeat(4_096);
    for entry in [&all_bytes[..], b"", &large, b"\0corrupt"] {
        cache.put(&one, entry.to_vec()).await;
        let length = entry.len();
        check(
            &one,
            Some(entry),
            &format!("an entry of {length} bytes is returned as it was stored"),
        )
        .await?;
    }
    check(&other, None, "an entry under another key is a miss").await?;
    cache.put(&other, large.clone()).await;
    check(&other, Some(&large), "each key has its own entry").await?;
    check(&one, Some(b"\0corrupt"), "each key has its own entry").await
}

/// The contents of a header that a reader sees.
type Contents = (Vec<(String, TensorInfo)>, Option<BTreeMap<String, String>>);

fn contents(header: &FileHeader) -> Contents {
    let tensors = header.tensors().iter().map(|(name, tensor)| (name.to_owned(), tensor));
    (tensors.collect(), header.metadata().cloned())
}

/// The limit of headers in these checks, as in a client with default settings.
const HEADER_LIMIT: u64 = 100_000_000;

/// Reads a header as a client does. `more` is the number of bytes that each range returns beyond its end.
fn read(
    format: &dyn Format,
    path: &RepoPath,
    file: &[u8],
    limit: u64,
    more: u64,
) -> Result<Result<FileHeader, HeaderError>, Violation> {
    let size = file.len() as u64;
    let index = |offset: u64| usize::try_from(offset.min(size)).unwrap_or(file.len());
    let mut parser = format.parser(path, limit);
    let mut range = parser.first_range();
    let mut requested = BTreeSet::new();
    loop {
        require(range.start < range.end && requested.insert((range.start, range.end)), || {
            format!("the parser requests the range {range:?}, which has no new bytes")
        })?;
        let end = range.end.saturating_add(more);
        let bytes = file[index(range.start)..index(end)].to_vec();
        match parser.advance(range.start, bytes, Some(size)) {
            Ok(Step::Read(next)) => range = next,
            Ok(Step::Done(header)) => {
                let checked = header.check_file_size(size);
                return Ok(checked.map(|()| header));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Checks that a format reads a valid file, in whatever pieces it arrives, and that it rejects the start of the file.
///
/// # Errors
///
/// Returns the first violated requirement of [`Format`] and [`HeaderParser`](hf_meta_format::formats::HeaderParser).
pub fn check_format(format: &dyn Format, path: &RepoPath, file: &[u8]) -> Result<(), Violation> {
    let extension = format.match_extension(path.as_str());
    require(extension.is_some_and(|end| path.as_str().ends_with(end)), || {
        format!("`{path}` does not end with the extension {extension:?}")
    })?;
    require(format.extension().starts_with('.'), || "the extension begins with a dot".to_owned())?;
    let header = read(format, path, file, HEADER_LIMIT, 0)?;
    let header = header.map_err(|error| Violation(format!("the file is rejected: {error}")))?;
    for more in [1, 8, 100, file.len() as u64] {
        let found = read(format, path, file, HEADER_LIMIT, more)?;
        require(found.is_ok_and(|found| contents(&found) == contents(&header)), || {
            format!("ranges with {more} more bytes have another result")
        })?;
    }
    let end = header.data_length();
    let outside = header.tensors().iter().find(|(_, tensor)| tensor.data_offsets.1 > end);
    require(outside.is_none(), || {
        format!("the data of a tensor is outside of the file: {outside:?}")
    })?;
    let limited = read(format, path, file, 1, 0)?;
    let over = |error: HeaderError| {
        matches!(error.kind, HeaderErrorKind::TooLarge | HeaderErrorKind::OverLimit)
    };
    let is_too_large = limited.is_err_and(over);
    require(is_too_large, || "a header above the limit is not an error of this kind".to_owned())?;
    // About 100 lengths, and all short ones.
    let step = (file.len() / 64).max(1);
    for length in (0..file.len()).filter(|length| *length < 32 || length.is_multiple_of(step)) {
        let found = read(format, path, &file[..length], HEADER_LIMIT, 0)?;
        require(found.is_err(), || format!("the first {length} bytes alone are accepted"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hf_meta::{MemoryCache, RangeBytes};
    use hf_meta_format::formats::HeaderParser;
    use hf_meta_format::formats::safetensors::Safetensors;

    use super::*;

    /// A store of files in memory, with a defect.
    #[derive(Debug)]
    struct Files {
        files: StoredFiles,
        defect: &'static str,
    }

    impl FileStore for Files {
        fn read_range<'a>(
            &'a self,
            path: &'a RepoPath,
            range: Range<u64>,
        ) -> BoxFuture<'a, std::io::Result<RangeBytes>> {
            let missing = match self.defect {
                "missing" => ErrorKind::PermissionDenied,
                _ => ErrorKind::NotFound,
            };
            let file = self.files.get(path).ok_or(std::io::Error::from(missing));
            let read = |file: &Vec<u8>| {
                let index = |at: u64| usize::try_from(at).unwrap().min(file.len());
                let start = index(if self.defect == "start" { 0 } else { range.start });
                let bytes = file[start..index(range.end)].to_vec();
                let file_size = if self.defect == "size" { bytes.len() } else { file.len() } as u64;
                RangeBytes::new(bytes, file_size)
            };
            ready(file.map(read)).boxed()
        }

        fn list<'a>(
            &'a self,
            folder: Option<&'a RepoPath>,
        ) -> BoxFuture<'a, std::io::Result<Option<Vec<hf_meta::ListedFile>>>> {
            let is_listed = |path: &RepoPath| match (folder, self.defect) {
                (None, _) => true,
                (Some(folder), "list") => path.as_str().starts_with(folder.as_str()),
                (Some(folder), _) => path.as_str().starts_with(&format!("{folder}/")),
            };
            let files = self.files.iter().filter(|(path, _)| is_listed(path));
            let listed = files.map(|(path, file)| hf_meta::ListedFile {
                path: path.clone(),
                size: file.len() as u64,
            });
            ready(Ok(Some(listed.collect()))).boxed()
        }
    }

    #[tokio::test]
    async fn defects_of_stores_are_found() {
        let check = async |defect| {
            check_store(async |files: &StoredFiles| Files { files: files.clone(), defect }).await
        };
        assert_eq!(check("").await, Ok(()));
        for defect in ["missing", "start", "size", "list"] {
            assert!(check(defect).await.is_err(), "{defect}");
        }
    }

    /// A cache that has one entry for all keys.
    #[derive(Debug, Default)]
    struct OneEntry(Mutex<Option<Vec<u8>>>);

    impl Cache for OneEntry {
        fn get<'a>(&'a self, _: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
            ready(lock(&self.0).clone()).boxed()
        }

        fn put<'a>(&'a self, _: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
            *lock(&self.0) = Some(entry);
            ready(()).boxed()
        }
    }

    #[tokio::test]
    async fn defects_of_caches_are_found() {
        assert_eq!(check_cache(MemoryCache::new(16 << 20)).await, Ok(()));
        assert!(check_cache(OneEntry::default()).await.is_err());
        assert!(check_cache(KeyRecorder::default()).await.is_err(), "each entry is lost");
    }

    /// A format whose parser has a defect.
    #[derive(Clone, Copy, Debug)]
    enum Defect {
        /// It ignores the limit.
        Limit,
        /// It requests its first range again.
        Repeated,
    }

    struct DefectiveParser(Box<dyn HeaderParser>, Defect);

    impl Format for Defect {
        fn name(&self) -> &'static str {
            "defect"
        }

        fn extension(&self) -> &'static str {
            ".safetensors"
        }

        fn parser(&self, path: &RepoPath, _: u64) -> Box<dyn HeaderParser> {
            Box::new(DefectiveParser(Safetensors.parser(path, HEADER_LIMIT), *self))
        }
    }

    impl HeaderParser for DefectiveParser {
        fn first_range(&self) -> Range<u64> {
            self.0.first_range()
        }

        fn advance(
            &mut self,
            start: u64,
            bytes: Vec<u8>,
            file_size: Option<u64>,
        ) -> Result<Step, HeaderError> {
            match self.1 {
                Defect::Limit => self.0.advance(start, bytes, file_size),
                Defect::Repeated => Ok(Step::Read(self.0.first_range())),
            }
        }
    }

    #[test]
    fn defects_of_formats_are_found() {
        let path: RepoPath = "weights/model.safetensors".parse().unwrap();
        let file = &stored_files()[&path];
        assert_eq!(check_format(&Safetensors, &path, file), Ok(()));
        for defect in [Defect::Limit, Defect::Repeated] {
            assert!(check_format(&defect, &path, file).is_err(), "{defect:?}");
        }
    }
}
