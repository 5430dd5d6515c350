//! A local folder.

use std::io::{self, ErrorKind, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::store::{FileStore, StoreFolder};
use crate::base::RangeBytes;
use crate::base::meter::CallMeter;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;

/// The maximum number of entries in a listing. Stops the listing of a folder such as the root of a disk.
const MAX_ENTRIES: usize = 100_000;

/// A local folder.
#[derive(Debug)]
struct DiskFolder(PathBuf);

/// Returns the files of a local folder, as one call reads them.
pub(crate) fn local_folder(folder: PathBuf, meter: CallMeter) -> StoreFolder {
    let name = folder.display().to_string();
    StoreFolder { store: Arc::new(DiskFolder(folder)), name, is_remote: false, meter }
}

impl FileStore for DiskFolder {
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        async move { read_range(&self.0.join(path.as_str()), range).await }.boxed()
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
        list(&self.0, folder).boxed()
    }
}

/// Reads a range of a file. The result is shorter than the range only if the file ends inside it. Pipes and devices are
/// rejected, because reading them may never end.
pub(super) async fn read_range(path: &Path, range: Range<u64>) -> io::Result<RangeBytes> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = File::open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).await?;
    Ok(RangeBytes { bytes, file_size: metadata.len() })
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
            } else if let Ok(target) = tokio::fs::metadata(entry.path()).await
                && target.is_file()
                && let Ok(path) = path.parse()
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
