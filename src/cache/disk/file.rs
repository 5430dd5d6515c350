//! The files of a cache, which other processes may write and delete at any time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest entry that is read or written, in bytes.
pub(super) const LONGEST: u64 = 128 << 20;

/// What a file takes at least, in bytes: small ones fill a block of the disk all the same.
const BLOCK: u64 = 4_096;

/// How much later than an entry was last found it is marked as found again.
const MARKED_EVERY: Duration = Duration::from_secs(3_600);

/// A file as a listing has it.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    /// The bytes of disk that it takes.
    pub(super) bytes: u64,
    /// When it was written or last found.
    pub(super) used: SystemTime,
}

/// An entry, marked as found; `None` where there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LONGEST {
        return Ok(None);
    }
    if metadata.modified()?.elapsed().is_ok_and(|age| age > MARKED_EVERY) {
        // A folder that can be read only still serves.
        let _ = file.set_modified(SystemTime::now());
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Writes an entry under another name, which no one else takes, and gives it its own when it is whole.
pub(super) fn write(path: &Path, unfinished: &Path, entry: &[u8]) -> io::Result<()> {
    make_folder(path.parent())?;
    make_folder(unfinished.parent())?;
    let written = create(unfinished).and_then(|mut file| file.write_all(entry));
    let written = written.and_then(|()| fs::rename(unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(unfinished);
    }
    written
}

/// The files of a folder; none where there is no such folder.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Kept>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for file in listing {
        let file = file?;
        // Another process may have deleted it since.
        let Ok(metadata) = file.metadata() else { continue };
        let used = metadata.modified().unwrap_or(UNIX_EPOCH);
        files.push(Kept { path: file.path(), bytes: on_disk(metadata.len()), used });
    }
    Ok(files)
}

/// The bytes of disk that a file of so many bytes takes.
pub(super) fn on_disk(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK)
}

/// Deletes a file that another process may have deleted before.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a folder that only this user can read: it may hold names of what is in private repos.
fn make_folder(path: Option<&Path>) -> io::Result<()> {
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
