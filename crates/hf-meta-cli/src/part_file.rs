//! A file that gets its name once it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::exit::failed_to;
use super::signal;

/// The number of bytes after which they are written to the disk.
const SYNC_BYTES: u64 = 64 << 20;

/// The maximum number of unfinished files that are skipped.
const MAX_ATTEMPTS: u32 = 1_000;

/// A file that is written under another name in the same folder. If it is dropped before it is finished, or if a signal
/// ends the process, it is removed.
#[derive(Debug)]
pub(crate) struct PartFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    is_replaced: bool,
    is_finished: bool,
}

impl PartFile {
    /// Creates a file. If `is_replaced` is true, it replaces a file of its name.
    ///
    /// # Errors
    ///
    /// Returns an error if the file exists and is not replaced, if it is not a regular file, or if its folder cannot be
    /// written.
    pub(crate) fn create(path: &Path, is_replaced: bool) -> io::Result<Self> {
        let failed = || failed_to(format!("write `{}`", path.display()));
        check_target(path, is_replaced).map_err(failed())?;
        if path.file_name().is_none() {
            let error = io::Error::new(ErrorKind::InvalidInput, "it has no file name");
            return Err(failed()(error));
        }
        let (file, partial) = create_partial(path).map_err(failed())?;
        signal::remove_on_signal(Some(partial.clone()));
        let path = path.to_owned();
        Ok(Self { file, partial, path, is_replaced, is_finished: false })
    }

    /// Returns the final path for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let action = || format!("write `{}`", self.path.display());
        self.file.write_all(bytes).map_err(|error| failed_to(action())(error))
    }

    /// Returns a writer at any position of the file, which several threads may use.
    pub(crate) fn writer(&self) -> io::Result<PartWriter> {
        let name = self.name();
        let file = self.file.try_clone().map_err(failed_to(format!("write `{name}`")))?;
        let (unsynced, is_syncing) = (AtomicU64::new(0), Arc::default());
        Ok(PartWriter { file: Arc::new(file), name, unsynced, is_syncing })
    }

    /// Gives the file its name. A file of that name that has appeared in the meantime is kept, unless it is replaced.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        // Some file systems store the new name before the content: after a power failure, the file would be empty.
        let synced = self.file.sync_all();
        let free = synced.and_then(|()| check_target(&self.path, self.is_replaced));
        let named = free.and_then(|()| {
            if self.is_replaced {
                return fs::rename(&self.partial, &self.path);
            }
            // Unlike a rename, a link never replaces a file. Some file systems have no links.
            match fs::hard_link(&self.partial, &self.path) {
                Ok(()) => fs::remove_file(&self.partial),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
                Err(_) => fs::rename(&self.partial, &self.path),
            }
        });
        named.map_err(failed_to(format!("write `{}`", self.path.display())))?;
        self.is_finished = true;
        signal::remove_on_signal(None);
        Ok(())
    }
}

/// Writes at any position of a [`PartFile`].
#[derive(Debug)]
pub(crate) struct PartWriter {
    file: Arc<File>,
    name: String,
    /// The number of bytes since the last sync.
    unsynced: AtomicU64,
    is_syncing: Arc<AtomicBool>,
}

impl PartWriter {
    /// Writes all bytes at a position.
    pub(crate) fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(&self.file, at, bytes)
            .map_err(|error| failed_to(format!("write `{}`", self.name))(error))?;
        let unsynced = self.unsynced.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if unsynced > SYNC_BYTES && !self.is_syncing.swap(true, Ordering::Relaxed) {
            self.unsynced.store(0, Ordering::Relaxed);
            self.sync();
        }
        Ok(())
    }

    /// Starts to write to the disk what is in the memory of the system, so that little is left at the end.
    fn sync(&self) {
        let (file, is_syncing) = (Arc::clone(&self.file), Arc::clone(&self.is_syncing));
        let sync = move || {
            // The sync at the end reports errors.
            let _ = file.sync_data();
            is_syncing.store(false, Ordering::Relaxed);
        };
        // Without a thread, the sync at the end does all of it.
        let _ = std::thread::Builder::new().spawn(sync);
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, at)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => (at, bytes) = (at + written as u64, &bytes[written..]),
        }
    }
    Ok(())
}

/// Creates a hidden file next to a path. Its name does not contain the one of the path, which may have the maximum length.
fn create_partial(path: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    let mut attempt = 0;
    loop {
        let partial = path.with_file_name(format!(".hf-meta-{process}-{attempt}.part"));
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        match file {
            // Of another container, or of a process that was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS => {
                attempt += 1;
            }
            file => return Ok((file?, partial)),
        }
    }
}

/// Checks that a path is free, or a regular file that may be replaced. A rename would replace a link or a device itself.
fn check_target(path: &Path, is_replaced: bool) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let reason = if !found.is_file() {
        "it is not a regular file"
    } else if !is_replaced {
        "it exists; `--force` replaces it"
    } else {
        return Ok(());
    };
    Err(io::Error::new(ErrorKind::AlreadyExists, reason))
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.partial);
            signal::remove_on_signal(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_processes_and_long_names_are_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        // A process in another container may have the same number.
        let mut files = [0; 3].map(|_| PartFile::create(&path, true).unwrap());
        files[1].write(b"second").unwrap();
        files[1].finish().unwrap();
        drop(files);
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
