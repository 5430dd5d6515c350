//! Ranges of local files, in the same terms as ranges over HTTP.

use std::io::{Error, ErrorKind, Result, SeekFrom};
use std::ops::Range;
use std::path::Path;

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::read::{Chunk, Meter};

/// Reads a range of a file. The chunk is shorter than the range only if the file ends in it.
pub(crate) async fn range(path: &Path, range: &Range<u64>, meter: &Meter) -> Result<Chunk> {
    let (mut file, file_size) = open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).await?;
    meter.count_bytes(bytes.len());
    Ok(Chunk { bytes, file_size })
}

/// Reads a whole file; `None` if it has more than `limit` bytes.
pub(crate) async fn whole(path: &Path, limit: u64, meter: &Meter) -> Result<Option<Vec<u8>>> {
    let (file, file_size) = open(path).await?;
    if file_size > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).await?;
    meter.count_bytes(bytes.len());
    Ok(Some(bytes))
}

/// Opens a file of a known size: a pipe or a device could be read without an end.
async fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((File::open(path).await?, metadata.len()))
}
