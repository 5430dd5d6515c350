//! The files of a disk cache. Other processes may write or delete them at any time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum size of an entry to read or write, in bytes.
pub(super) const ENTRY_LIMIT: u64 = 128 << 20;

/// The size of a disk block in bytes, the minimum disk space of a file.
const BLOCK: u64 = 4_096;

/// The minimum time between updates of an entry's modification time, which records its last use.
const TOUCH_INTERVAL: Duration = Duration::from_secs(3_600);

/// A file in a folder listing.
pub(super) struct CacheFile {
    pub(super) path: PathBuf,
    /// Disk space in bytes.
    pub(super) bytes: u64,
    /// The time of the last use, accurate to about an hour.
    pub(super) used: SystemTime,
}

/// Reads an entry and records its use. Returns `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > ENTRY_LIMIT {
        return Ok(None);
    }
    if metadata.modified()?.elapsed().is_ok_and(|age| age > TOUCH_INTERVAL) {
        // Entries of a read-only folder can still be read.
        let _ = file.set_modified(SystemTime::now());
    }
    let mut bytes = Vec::new();
    file.take(ENTRY_LIMIT).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Opens an entry. Pipes and devices are rejected, because they could block the reader.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    options.open(path)
}

/// Writes an entry to a unique temporary file, and renames it when it is complete.
pub(super) fn write(path: &Path, temporary: &Path, entry: &[u8]) -> io::Result<()> {
    create_folder(path.parent())?;
    create_folder(temporary.parent())?;
    let written = create(temporary).and_then(|mut file| file.write_all(entry));
    let written = written.and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written
}

/// Lists the files of a folder, or no files if it does not exist.
pub(super) fn list(folder: &Path) -> io::Result<Vec<CacheFile>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for file in listing {
        let file = file?;
        // Another process may have deleted it since it was listed.
        let Ok(metadata) = file.metadata() else { continue };
        let used = metadata.modified().unwrap_or(UNIX_EPOCH);
        files.push(CacheFile { path: file.path(), bytes: disk_space(metadata.len()), used });
    }
    Ok(files)
}

/// Returns the disk space of a file, in bytes.
pub(super) fn disk_space(length: u64) -> u64 {
    length.max(1).next_multiple_of(BLOCK)
}

/// Deletes a file. It is no error if another process has already deleted it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a folder that only this user can read, because entries may contain file names of private repositories.
fn create_folder(path: Option<&Path>) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
