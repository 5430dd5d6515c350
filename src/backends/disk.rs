//! Ranges of local files, in the same terms as ranges over HTTP.

use std::io::{Error, ErrorKind, Result, SeekFrom};
use std::ops::Range;
use std::path::Path;

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::{RangeBytes, RequestMeter};

/// The most entries that are looked at for a listing, so that one of a whole disk has an end.
const MOST_ENTRIES: usize = 100_000;

/// Reads a range of a file. The chunk is shorter than the range only if the file ends in it.
pub(crate) async fn range(
    path: &Path,
    range: &Range<u64>,
    meter: &RequestMeter,
) -> Result<RangeBytes> {
    let (mut file, file_size) = open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).await?;
    meter.count_bytes(bytes.len());
    Ok(RangeBytes { bytes, file_size })
}

/// Reads a whole file; `None` if it has more than `limit` bytes.
pub(crate) async fn whole(
    path: &Path,
    limit: u64,
    meter: &RequestMeter,
) -> Result<Option<Vec<u8>>> {
    let (file, file_size) = open(path).await?;
    if file_size > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).await?;
    meter.count_bytes(bytes.len());
    Ok(Some(bytes))
}

/// Every file below a folder, or below one of its own folders, by its path in it. What is hidden is left
/// out, and so are links to folders, which could lead round in a circle, and names that no path in a
/// repo has.
pub(crate) async fn list(folder: &Path, below: Option<&RepoPath>) -> Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    let mut folders = vec![below.map_or_else(String::new, ToString::to_string)];
    let mut seen = 0;
    while let Some(below) = folders.pop() {
        let mut entries = tokio::fs::read_dir(folder.join(&below)).await?;
        while let Some(entry) = entries.next_entry().await? {
            seen += 1;
            if seen > MOST_ENTRIES {
                return Err(Error::other(format!("it holds more than {MOST_ENTRIES} files")));
            }
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if entry.file_type().await?.is_dir() {
                folders.push(path);
            } else if let (Ok(path), Some(size)) = (path.parse(), size(&entry.path()).await) {
                files.push(ListedFile { path, size });
            }
        }
    }
    Ok(files)
}

/// The size of a file, be it behind a link; `None` if there is none.
async fn size(path: &Path) -> Option<u64> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// Opens a file of a known size: a pipe or a device could be read without an end.
async fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((File::open(path).await?, metadata.len()))
}
