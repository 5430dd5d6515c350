//! A local folder.

use std::io::{self, ErrorKind, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use futures::future::FutureExt;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::stream::{self, FileStream};
use super::{Fetch, Fetched, FileListing, FileSource, ListFuture};
use crate::base::RangeBytes;
use crate::base::meter::CallMeter;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;

/// The maximum number of entries in a listing. Stops the listing of a folder such as the root of a disk.
const MAX_ENTRIES: usize = 100_000;

/// A local folder.
#[derive(Clone, Debug)]
pub(crate) struct DiskFolder {
    pub(crate) folder: PathBuf,
    pub(crate) meter: CallMeter,
}

impl FileSource for DiskFolder {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let chunk = read_range(&self.file(path), &range, &self.meter).await;
            let value = chunk.map_err(|error| Error::from_io(self.file_name(path), error))?;
            Ok(Fetched::new(value, None))
        }
        .boxed()
    }

    fn stream<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, FileStream> {
        async move {
            let (file, name) = (self.file(path), self.file_name(path));
            Ok(stream::from_whole(read_whole(&file, name, limit, &self.meter).await?, None))
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        async move {
            let files = list(&self.folder, self.folder.display().to_string(), folder).await?;
            Ok(files.map(|files| FileListing { files, commit: None, is_complete: true }))
        }
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.file(path).display().to_string()
    }
}

impl DiskFolder {
    fn file(&self, path: &RepoPath) -> PathBuf {
        self.folder.join(path.as_str())
    }
}

/// Reads a range of a file. The result is shorter than the range only if the file ends inside it.
pub(super) async fn read_range(
    path: &Path,
    range: &Range<u64>,
    meter: &CallMeter,
) -> io::Result<RangeBytes> {
    let (mut file, file_size) = open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).await?;
    meter.count_bytes(bytes.len());
    Ok(RangeBytes { bytes, file_size })
}

/// Reads a whole file of at most `limit` bytes. `name` is the file's name in errors.
pub(super) async fn read_whole(
    path: &Path,
    name: String,
    limit: u64,
    meter: &CallMeter,
) -> Result<Vec<u8>, Error> {
    let read = async {
        let (file, file_size) = open(path).await?;
        let mut bytes = Vec::new();
        if file_size <= limit {
            file.take(limit).read_to_end(&mut bytes).await?;
        }
        Ok((bytes, file_size))
    };
    match read.await {
        Ok((_, file_size)) if file_size > limit => Err(Error::TooLarge { file: name, limit }),
        Ok((bytes, _)) => {
            meter.count_bytes(bytes.len());
            Ok(bytes)
        }
        Err(error) => Err(Error::from_io(name, error)),
    }
}

/// Lists all files of a folder, or of its subfolder `below`. Paths are relative to the folder. Returns `None` if the
/// folder does not exist. `name` is the folder's name in errors.
pub(super) async fn list(
    folder: &Path,
    name: String,
    below: Option<&RepoPath>,
) -> Result<Option<Vec<ListedFile>>, Error> {
    match list_files(folder, below).await.map_err(|error| Error::from_io(name, error)) {
        Ok(files) => Ok(Some(files)),
        Err(Error::FileNotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists files. Ignores hidden files, links to folders (which could form a loop), and names that are not valid in a
/// repository path.
async fn list_files(folder: &Path, below: Option<&RepoPath>) -> io::Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    let mut folders = vec![below.map_or_else(String::new, ToString::to_string)];
    let (mut seen, mut invalid_names) = (0, 0_usize);
    while let Some(below) = folders.pop() {
        let path = folder.join(&below);
        // The parent of a bare file name is the empty path.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
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
            } else if let (Ok(path), Some(size)) = (path.parse(), file_size(&entry.path()).await) {
                files.push(ListedFile { path, size });
            }
        }
    }
    if invalid_names > 0 {
        tracing::warn!(files = invalid_names, "skipped files whose names are not UTF-8");
    }
    Ok(files)
}

/// Returns the size of a file in bytes, following links.
async fn file_size(path: &Path) -> Option<u64> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// Opens a regular file and returns its size in bytes. Pipes and devices are rejected, because reading them may never
/// end.
async fn open(path: &Path) -> io::Result<(File, u64)> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((File::open(path).await?, metadata.len()))
}
