//! A store that the caller implements, and a local folder as a store.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::Metadata;
use std::io::{self, ErrorKind, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::formats::{RepoPath, clip};
use hf_meta_inspect::Listing;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::source::{Fetch, Fetched, FileSource, ListFuture};
use crate::base::meter::CallMeter;
use crate::base::{FilePart, lock};
use crate::error::Error;

/// A store of files other than a Hub, such as a bucket in S3; see [`Model::store`](crate::Model::store).
///
/// ```
/// use std::collections::BTreeMap;
/// use std::io;
/// use std::ops::Range;
///
/// use futures::FutureExt;
/// use futures::future::ready;
/// use hf_meta_format::formats::weight_sets::ListedFile;
/// use hf_meta::{BoxFuture, FileStore, RangeBytes, RepoPath};
///
/// /// A bucket. A real one sends `GET` with the header `Range`, or calls `object_store::ObjectStore::get_opts`.
/// #[derive(Debug, Default)]
/// struct Bucket(BTreeMap<RepoPath, Vec<u8>>);
///
/// impl FileStore for Bucket {
///     fn read_range<'a>(
///         &'a self,
///         path: &'a RepoPath,
///         range: Range<u64>,
///     ) -> BoxFuture<'a, io::Result<RangeBytes>> {
///         let file = self.0.get(path).ok_or(io::Error::from(io::ErrorKind::NotFound));
///         ready(file.map(|file| {
///             let index = |offset: u64| usize::try_from(offset).map_or(file.len(), |at| at.min(file.len()));
///             let bytes = file[index(range.start)..index(range.end)].to_vec();
///             // A bucket has an `ETag`, too: `RangeBytes::new(bytes, size).with_version(etag)`.
///             RangeBytes::new(bytes, file.len() as u64)
///         }))
///         .boxed()
///     }
///
///     fn list<'a>(
///         &'a self,
///         folder: Option<&'a RepoPath>,
///     ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
///         let files = self.0.iter().map(|(path, file)| ListedFile { path: path.clone(), size: file.len() as u64 });
///         ready(Ok(Some(files.filter(|file| file.is_below(folder)).collect()))).boxed()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let header = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// # let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 24]].concat();
/// # let bucket = Bucket(BTreeMap::from([("weights/my.safetensors".parse()?, file)]));
/// let client = hf_meta::Client::new()?;
/// let report = client.model("bucket/models").store(bucket).path("weights").count().await?;
/// assert_eq!(report.parameter_count.total(), 6);
/// # Ok(())
/// # }
/// ```
pub trait FileStore: Debug + Send + Sync + 'static {
    /// Reads a range of a file. The range may extend past the end of the file: return the bytes that exist.
    ///
    /// # Errors
    ///
    /// Return an error of the kind [`NotFound`](io::ErrorKind::NotFound) if the file does not exist. The call then
    /// looks for other weights. All other errors end the call, and their kind decides the
    /// [kind](crate::ErrorKind) of the error of the call: `TimedOut` is a timeout, `PermissionDenied` is forbidden, and
    /// the errors of connections are errors of the network.
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>>;

    /// Lists all files below a folder, or all files of the store. Return `None`, as the default implementation does, if
    /// the store cannot list files: then only weights with a standard name, or at a known path, are found.
    ///
    /// # Errors
    ///
    /// Return an error if the listing failed. It ends the call.
    fn list<'a>(
        &'a self,
        _folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
        ready(Ok(None)).boxed()
    }

    /// Returns the name of the store in results and messages, such as `s3://bucket/models`. By default, it is the name that
    /// was given to [`Client::model`](crate::Client::model).
    fn name(&self) -> Option<String> {
        None
    }
}

/// The bytes of a range of a file in a [`FileStore`].
///
/// ```
/// use hf_meta::RangeBytes;
///
/// let read = RangeBytes::new(vec![8, 0, 0, 0, 0, 0, 0, 0], 352_000).with_version("\"5d41402a\"");
/// assert_eq!((read.bytes.len(), read.file_size), (8, 352_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeBytes {
    /// The bytes, fewer than requested only if the file ends inside the range.
    pub bytes: Bytes,
    /// The size of the whole file in bytes.
    pub file_size: u64,
    /// The version of the file, such as its `ETag`; `None` if the store has no versions.
    pub version: Option<String>,
}

impl RangeBytes {
    /// Creates the bytes of a range of a file without a version.
    pub fn new(bytes: impl Into<Bytes>, file_size: u64) -> Self {
        Self { bytes: bytes.into(), file_size, version: None }
    }

    /// Sets the version of the file. A call fails with [`Error::Changed`](crate::Error::Changed) if it reads two
    /// versions of one file.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }
}

/// A store that several models share.
impl<S: FileStore + ?Sized> FileStore for Arc<S> {
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        (**self).read_range(path, range)
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
        (**self).list(folder)
    }

    fn name(&self) -> Option<String> {
        (**self).name()
    }
}

/// The versions of the files that were read.
pub(crate) type FileVersions = Arc<Mutex<BTreeMap<RepoPath, String>>>;

/// The files of a [`FileStore`], as one call reads them.
#[derive(Debug)]
pub(crate) struct StoreFolder {
    store: Arc<dyn FileStore>,
    /// The name of the store in messages.
    name: String,
    /// True if each read is a request to a server.
    is_remote: bool,
    versions: FileVersions,
    meter: CallMeter,
}

impl StoreFolder {
    /// Creates the files of a store of the caller.
    pub(crate) fn remote(
        store: &Arc<dyn FileStore>,
        name: String,
        versions: FileVersions,
        meter: &CallMeter,
    ) -> Self {
        let (store, meter) = (Arc::clone(store), meter.clone());
        Self { store, name, is_remote: true, versions, meter }
    }

    /// Checks that a file has the version of its earlier ranges.
    fn check_version(&self, path: &RepoPath, version: Option<String>) -> Result<(), Error> {
        let Some(version) = version else { return Ok(()) };
        let mut versions = lock(&self.versions);
        let first = versions.entry(path.clone()).or_insert_with(|| version.clone());
        if *first == version {
            return Ok(());
        }
        let (file, [before, after]) = (self.file_name(path), [&*first, &version].map(|v| clip(v)));
        let versions = format!("its version was `{before}`, then `{after}`");
        Err(Error::Changed { message: format!("`{file}` changed while being read: {versions}") })
    }

    /// Returns the error of a read. A store of the caller is usually a server, so its errors are not about this machine.
    fn failure(&self, file: String, source: io::Error) -> Error {
        if self.is_remote { Error::from_store(file, source) } else { Error::from_io(file, source) }
    }

    fn count_request(&self) {
        if self.is_remote {
            self.meter.count_request(false);
        }
    }
}

impl FileSource for StoreFolder {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart> {
        async move {
            self.count_request();
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let read = self.store.read_range(path, range).await;
            let read = read.map_err(|error| self.failure(self.file_name(path), error))?;
            let RangeBytes { mut bytes, file_size, version } = read;
            bytes.truncate(length);
            self.meter.count_bytes(bytes.len());
            self.check_version(path, version)?;
            Ok(Fetched::new(FilePart { bytes: bytes.into(), file_size }, None))
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        async move {
            self.count_request();
            let listed = self.store.list(folder).await;
            let listed = listed.map_err(|error| self.failure(self.name.clone(), error))?;
            Ok(listed.map(|files| Listing { files, commit: None, is_complete: true }))
        }
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        match &*self.name {
            "" => path.to_string(),
            name => format!("{}/{path}", name.trim_end_matches('/')),
        }
    }
}

/// The maximum number of entries in a listing. Stops the listing of a folder such as the root of a disk.
const MAX_ENTRIES: usize = 100_000;

/// A local folder.
#[derive(Debug)]
struct DiskFolder(PathBuf);

/// Returns the files of a local folder, as one call reads them.
pub(crate) fn local_folder(
    folder: PathBuf,
    versions: FileVersions,
    meter: CallMeter,
) -> StoreFolder {
    let name = folder.display().to_string();
    let store = Arc::new(DiskFolder(folder));
    StoreFolder { store, name, is_remote: false, versions, meter }
}

impl FileStore for DiskFolder {
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        async move {
            let (part, version) = read_range(&self.0.join(path.as_str()), range).await?;
            Ok(RangeBytes::new(part.bytes, part.file_size).with_version(version))
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
        list(&self.0, folder).boxed()
    }
}

/// Reads a range of a file, and its version. The bytes are shorter than the range only if the file ends inside it. Pipes
/// and devices are rejected, because reading them may never end.
pub(super) async fn read_range(path: &Path, range: Range<u64>) -> io::Result<(FilePart, String)> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = File::open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).await?;
    Ok((FilePart { bytes, file_size: metadata.len() }, version(&metadata)))
}

/// Returns the version of a file, which another file of its name does not have: its last change and, on Unix, its number.
fn version(metadata: &Metadata) -> String {
    let changed = metadata.modified().ok();
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.unwrap_or_default().as_nanos();
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    let number = 0;
    format!("{number}-{changed}")
}

/// Lists all files of a folder, or of its subfolder `below`. Paths are relative to the folder. Returns `None` if the
/// folder does not exist.
pub(super) async fn list(
    folder: &Path,
    below: Option<&RepoPath>,
) -> io::Result<Option<Vec<ListedFile>>> {
    match list_files(folder, below).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        listed => listed.map(Some),
    }
}

/// The file that marks a virtual environment of Python, whose packages contain files with the extensions of weights.
const ENVIRONMENT: &str = "pyvenv.cfg";

/// The maximum size of a path file of Python in bytes.
const MAX_PATH_FILE: u64 = 1 << 16;

/// Returns whether a file with the extension `.pth` is a path file of Python: lines of text with paths and imports.
/// Source: `addpackage` in `Lib/site.py`. A pointer of Git LFS, HTML or JSON is a wrong weight file.
async fn is_path_file(path: &Path, size: u64) -> bool {
    let has_extension = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("pth"));
    if !has_extension || size > MAX_PATH_FILE {
        return false;
    }
    let Ok(bytes) = tokio::fs::read(path).await else { return false };
    let Ok(text) = String::from_utf8(bytes) else { return false };
    let is_other = text.starts_with("version https://git-lfs")
        || text.trim_start().starts_with(['<', '{', '['])
        || text.contains(|c: char| c.is_control() && !c.is_whitespace());
    !text.is_empty() && !is_other
}

/// Lists files. Ignores hidden files, links to folders (which could form a loop), virtual environments and path files of
/// Python, and names that are not valid in a repository path.
async fn list_files(folder: &Path, below: Option<&RepoPath>) -> io::Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    let mut folders = vec![below.map_or_else(String::new, ToString::to_string)];
    let (mut seen, mut invalid_names, mut is_inner) = (0, 0_usize, false);
    while let Some(below) = folders.pop() {
        let path = folder.join(&below);
        // The parent of a bare file name is the empty path.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        if is_inner && tokio::fs::try_exists(path.join(ENVIRONMENT)).await.unwrap_or(false) {
            tracing::debug!(folder = %path.display(), "skipped a virtual environment of Python");
            continue;
        }
        is_inner = true;
        let mut entries = tokio::fs::read_dir(path).await?;
        while let Some(entry) = entries.next_entry().await? {
            seen += 1;
            if seen > MAX_ENTRIES {
                return Err(io::Error::other(format!("it contains more than {MAX_ENTRIES} files")));
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                invalid_names += 1;
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if entry.file_type().await?.is_dir() {
                folders.push(path);
            } else if let Ok(target) = tokio::fs::metadata(entry.path()).await
                && target.is_file()
                && let Ok(path) = path.parse()
                && !is_path_file(&entry.path(), target.len()).await
            {
                files.push(ListedFile { path, size: target.len() });
            }
        }
    }
    if invalid_names > 0 {
        tracing::warn!(files = invalid_names, "skipped files whose names are not UTF-8");
    }
    Ok(files)
}
