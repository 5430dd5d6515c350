//! A local safetensors file that is checked and locked for an edit.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hf_meta_format::SafetensorsFileHeader;
use hf_meta_format::formats::safetensors::{
    DEFAULT_HEADER_LIMIT, HeaderError, PREFIX_LENGTH, header_range,
};

use super::error::FileEditError;
use super::journal::FileId;

/// The prefixes of the folders of repositories in the cache of `huggingface_hub`, whose files are in `blobs`
/// (`huggingface_hub/file_download.py`, `repo_folder_name`).
const CACHE_FOLDERS: [&str; 3] = ["models--", "datasets--", "spaces--"];

/// A file that is open and locked until it is dropped.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) id: FileId,
    modified: Option<SystemTime>,
}

/// The header of a file.
#[derive(Debug)]
pub(crate) struct TargetHeader {
    /// The JSON with its padding.
    pub(crate) json: Vec<u8>,
    pub(crate) header: SafetensorsFileHeader,
}

impl Target {
    /// Opens and locks a file that can be edited.
    pub(crate) fn open(path: &Path) -> Result<Self, FileEditError> {
        let shown = || path.display().to_string();
        let found = fs::symlink_metadata(path).map_err(FileEditError::io("read", path))?;
        if found.is_symlink() {
            let target = fs::read_link(path).unwrap_or_default().display().to_string();
            return Err(FileEditError::SymbolicLink { path: shown(), target });
        }
        if !found.is_file() {
            return Err(FileEditError::NotAFile { path: shown() });
        }
        if let links @ 2.. = links(&found) {
            return Err(FileEditError::HardLink { path: shown(), links });
        }
        if is_in_cache(path) {
            return Err(FileEditError::InCache { path: shown() });
        }
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(FileEditError::io("open", path))?;
        if !lock(&file).map_err(FileEditError::io("lock", path))? {
            return Err(FileEditError::Locked { path: shown() });
        }
        let opened = file.metadata().map_err(FileEditError::io("read", path))?;
        // The file may have been replaced by a link after the first look.
        if file_id(&opened) != file_id(&found) {
            return Err(FileEditError::Changed { path: shown() });
        }
        let (path, id) = (path.to_path_buf(), file_id(&opened));
        Ok(Self { path, file, id, modified: opened.modified().ok() })
    }

    /// Reads and checks the header.
    pub(crate) fn read_header(&self) -> Result<TargetHeader, FileEditError> {
        let path = &self.path;
        let invalid = |source: HeaderError| {
            let path = path.display().to_string();
            FileEditError::InvalidHeader { path, source }
        };
        let start = self.read_start(PREFIX_LENGTH).map_err(FileEditError::io("read", path))?;
        let range = header_range(&start, Some(self.id.size), DEFAULT_HEADER_LIMIT);
        let range = range.map_err(invalid)?;
        let mut json = self.read_start(range.end).map_err(FileEditError::io("read", path))?;
        json.drain(..start.len());
        let header = SafetensorsFileHeader::from_json(&json).map_err(invalid)?;
        header.check_file_size(self.id.size).map_err(invalid)?;
        Ok(TargetHeader { json, header })
    }

    /// Reads the first bytes of the file. Returns fewer if it ends before.
    pub(crate) fn read_start(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Updates the time of the last change, after a completed edit.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        self.modified = self.file.metadata()?.modified().ok();
        Ok(())
    }

    /// Checks that the file is the one that was opened, with the same header.
    pub(crate) fn check_unchanged(&self, json: &[u8]) -> Result<(), FileEditError> {
        let read = || {
            let found = fs::symlink_metadata(&self.path)?;
            let start = self.read_start(PREFIX_LENGTH + json.len() as u64)?;
            let is_same = file_id(&found) == self.id && found.modified().ok() == self.modified;
            Ok(is_same && start.get(8..) == Some(json))
        };
        if !read().map_err(FileEditError::io("read", &self.path))? {
            return Err(FileEditError::Changed { path: self.path.display().to_string() });
        }
        Ok(())
    }
}

impl Drop for Target {
    /// Releases the lock. To close the file is not enough: a process that another thread starts has a copy of the open file
    /// until it executes its program.
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// Returns whether a file is a blob in the cache of `huggingface_hub`, which other revisions and programs share.
fn is_in_cache(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let mut folders = path.ancestors().skip(1).filter_map(|folder| folder.file_name()?.to_str());
    folders.next() == Some("blobs")
        && folders
            .next()
            .is_some_and(|name| CACHE_FOLDERS.iter().any(|start| name.starts_with(start)))
}

#[cfg(unix)]
fn file_id(metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;

    FileId { size: metadata.len(), device: metadata.dev(), inode: metadata.ino() }
}

/// Returns the size. The numbers that identify a file are not available in stable Rust.
#[cfg(not(unix))]
fn file_id(metadata: &Metadata) -> FileId {
    FileId { size: metadata.len(), device: 0, inode: 0 }
}

#[cfg(unix)]
fn links(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

#[cfg(not(unix))]
fn links(_: &Metadata) -> u64 {
    1
}

/// Locks a file until it is closed, even by `kill -9`. Returns false if another process has locked it.
#[cfg(unix)]
fn lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Some network file systems have no locks. The comparison before the write remains.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases the lock of a file. An error means that there is none.
#[cfg(unix)]
fn unlock(file: &File) {
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingUnlock);
}

#[cfg(not(unix))]
fn unlock(_: &File) {}

/// Returns true. The comparison before the write remains.
#[cfg(not(unix))]
fn lock(_: &File) -> io::Result<bool> {
    Ok(true)
}
