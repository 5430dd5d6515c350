//! The file operations of edits, on the real disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::error::Stopped;
use super::steps::EditDisk;

/// The number of bytes that are copied between two updates of the progress.
const CHUNK_BYTES: u64 = 64 << 20;

/// The number of bytes that are read at a time for a hash.
const BUFFER_BYTES: usize = 1 << 20;

/// The progress of an edit that writes a new file. Its clones are the same progress.
#[derive(Clone, Debug, Default)]
pub struct EditProgress(Arc<Copying>);

#[derive(Debug, Default)]
struct Copying {
    written: AtomicU64,
    total: AtomicU64,
    is_stopped: AtomicBool,
    /// The unfinished copy.
    copy: Mutex<Option<PathBuf>>,
}

impl EditProgress {
    /// Returns the number of bytes of the data that were copied, and their number in total; zeros for an edit in place.
    pub fn bytes(&self) -> (u64, u64) {
        (self.0.written.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed))
    }

    /// Stops the edit at the next chunk of the data, and all later edits with this progress that write a new file.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Removes the unfinished copy before the process ends. Returns `None` if there is none, and whether it was removed.
    /// If not, the next edit or command removes it.
    pub fn remove_copy(&self) -> Option<bool> {
        let copy = self.copy().take()?;
        Some(fs::remove_file(copy).is_ok())
    }

    fn copy(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.0.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk.
#[derive(Debug, Default)]
pub(crate) struct RealDisk {
    pub(crate) progress: EditProgress,
}

impl EditDisk for RealDisk {
    fn create(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn create_copy(
        &mut self,
        path: &Path,
        header: &[u8],
        mut from: &File,
        range: Range<u64>,
        mut hash: Option<&mut Sha256>,
    ) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let progress = &self.progress.0;
        *self.progress.copy() = Some(path.to_path_buf());
        progress.written.store(0, Ordering::Relaxed);
        progress.total.store(range.end - range.start, Ordering::Relaxed);
        take_over(&file, path, from)?;
        file.write_all(header)?;
        from.seek(SeekFrom::Start(range.start))?;
        let mut left = range.end - range.start;
        while left > 0 {
            if progress.is_stopped.load(Ordering::Relaxed) {
                return Err(io::Error::other(Stopped));
            }
            let mut chunk = from.take(left.min(CHUNK_BYTES));
            let copied = match hash.as_deref_mut() {
                // The kernel copies without a detour through memory of the process.
                None => io::copy(&mut chunk, &mut file)?,
                Some(hash) => copy_and_hash(chunk, &mut file, hash)?,
            };
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= copied;
            progress.written.fetch_add(copied, Ordering::Relaxed);
        }
        file.sync_all()
    }

    fn overwrite(&mut self, mut file: &File, at: u64, content: &[u8]) -> io::Result<()> {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        *self.progress.copy() = None;
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.progress.copy().take_if(|copy| copy == path);
        fs::remove_file(path)
    }

    #[cfg(unix)]
    fn sync_folder(&mut self, file: &Path) -> io::Result<()> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Does nothing: other systems do not open folders.
    #[cfg(not(unix))]
    fn sync_folder(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Copies bytes, and adds them to a hash.
fn copy_and_hash(mut chunk: impl Read, file: &mut File, hash: &mut Sha256) -> io::Result<u64> {
    let (mut buffer, mut copied) = (vec![0; BUFFER_BYTES], 0);
    loop {
        match chunk.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(length) => {
                hash.update(&buffer[..length]);
                file.write_all(&buffer[..length])?;
                copied += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives a new file the permissions and, if this process may do so, the owner of another file.
fn take_over(file: &File, path: &Path, from: &File) -> io::Result<()> {
    let metadata = from.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, chown};

        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (metadata.uid(), metadata.gid()) {
            // Only root may give files away, and a group that the user is not in cannot be set.
            let _ = chown(path, Some(metadata.uid()), Some(metadata.gid()));
        }
    }
    let _ = path;
    file.set_permissions(metadata.permissions())
}
