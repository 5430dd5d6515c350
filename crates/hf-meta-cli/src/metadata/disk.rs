//! The file operations of edits, on the real disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::steps::EditDisk;
use crate::stderr::lock;

/// The number of bytes that are copied between two updates of the progress. The kernel copies them without a detour
/// through memory of the process.
const COPY_BYTES: u64 = 64 << 20;

/// The progress of the file that is rewritten.
#[derive(Debug, Default)]
pub(super) struct CopyProgress {
    pub(super) written: AtomicU64,
    pub(super) total: AtomicU64,
    /// The unfinished copy, which is removed if the user interrupts the edit.
    pub(super) copy: Mutex<Option<PathBuf>>,
}

/// The disk.
#[derive(Debug, Default)]
pub(super) struct RealDisk {
    pub(super) progress: Arc<CopyProgress>,
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
    ) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let progress = &self.progress;
        *lock(&progress.copy) = Some(path.to_path_buf());
        progress.written.store(0, Ordering::Relaxed);
        progress.total.store(range.end - range.start, Ordering::Relaxed);
        take_over(&file, path, from)?;
        file.write_all(header)?;
        from.seek(SeekFrom::Start(range.start))?;
        let mut left = range.end - range.start;
        while left > 0 {
            let copied = io::copy(&mut from.take(left.min(COPY_BYTES)), &mut file)?;
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
        *lock(&self.progress.copy) = None;
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
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
