//! The steps of an edit, in the order that keeps the file whole: at every point, the file has the old or the new header,
//! or a journal next to it has both.
//!
//! A header of the same length is written in place: the journal is written under another name, synced and renamed, and the
//! folder is synced; then the header is written and synced; then the journal is removed. A header of another length moves
//! the data, so the file is written next to the old one, synced, and renamed over it.

use std::fmt::Write;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use hf_meta_format::formats::safetensors::PREFIX_LENGTH;
use sha2::{Digest, Sha256};

use super::error::{FileEditError, Stopped};
use super::journal::{Journal, JournalState, MAX_JOURNAL, SideFiles};
use super::target::Target;

/// The operations that change files. Every one has been synced when it returns, except renames and removals, which
/// [`sync_folder`](Self::sync_folder) syncs.
pub(crate) trait EditDisk {
    /// Creates a file.
    fn create(&mut self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Creates a file from a header and a range of another file, with its permissions. Adds the bytes of the range to a
    /// hash, if there is one.
    fn create_copy(
        &mut self,
        path: &Path,
        header: &[u8],
        from: &fs::File,
        range: Range<u64>,
        hash: Option<&mut Sha256>,
    ) -> io::Result<()>;

    /// Overwrites bytes in the middle of a file.
    fn overwrite(&mut self, file: &fs::File, at: u64, content: &[u8]) -> io::Result<()>;

    /// Renames a file over another one.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;

    /// Syncs the names of the files in the folder of a file.
    fn sync_folder(&mut self, file: &Path) -> io::Result<()>;
}

/// Replaces the header of a file by one of the same length.
pub(crate) fn write_in_place(
    disk: &mut impl EditDisk,
    target: &Target,
    old: Vec<u8>,
    new: Vec<u8>,
) -> Result<(), FileEditError> {
    let (path, side) = (&target.path, SideFiles::of(&target.path));
    let journal = Journal { file: target.id, old, new };
    let saved = disk
        .create(&side.unfinished_journal, &journal.encode())
        .and_then(|()| disk.rename(&side.unfinished_journal, &side.journal))
        .and_then(|()| disk.sync_folder(path));
    if let Err(error) = saved {
        // Nothing was changed, so a journal that cannot be removed does no harm.
        let _ = disk.remove(&side.unfinished_journal);
        let _ = disk.remove(&side.journal);
        return Err(FileEditError::io("save the header of", path)(error));
    }
    if let Err(error) = target.check_unchanged(&journal.old) {
        let _ = disk.remove(&side.journal);
        return Err(error);
    }
    let interrupted =
        |source| FileEditError::Interrupted { path: path.display().to_string(), source };
    disk.overwrite(&target.file, PREFIX_LENGTH, &journal.new).map_err(interrupted)?;
    disk.remove(&side.journal).and_then(|()| disk.sync_folder(path)).map_err(interrupted)
}

/// Replaces a file by one with another header. `old` is the JSON of the old header, `new` the one of the new header. With
/// a `stated` hash in hexadecimal, the data must have it: they are read completely here, and nowhere else.
pub(crate) fn rewrite(
    disk: &mut impl EditDisk,
    target: &Target,
    old: &[u8],
    new: &[u8],
    stated: Option<&str>,
) -> Result<(), FileEditError> {
    let (path, copy) = (&target.path, SideFiles::of(&target.path).copy);
    let header = [&(new.len() as u64).to_le_bytes(), new].concat();
    let data = PREFIX_LENGTH + old.len() as u64..target.id.size;
    let mut hash = stated.map(|_| Sha256::new());
    let written = disk
        .create_copy(&copy, &header, &target.file, data, hash.as_mut())
        .map_err(|error| not_copied(error, path))
        .and_then(|()| check_hash(path, stated, hash))
        .and_then(|()| target.check_unchanged(old))
        .and_then(|()| disk.rename(&copy, path).map_err(FileEditError::io("replace", path)));
    if let Err(error) = written {
        // The next command removes what remains.
        let _ = disk.remove(&copy);
        return Err(error);
    }
    disk.sync_folder(path).map_err(FileEditError::io("sync the folder of", path))
}

/// Returns the error of a file that was not copied.
fn not_copied(error: io::Error, path: &Path) -> FileEditError {
    if matches!(error.get_ref(), Some(cause) if cause.is::<Stopped>()) {
        return FileEditError::Stopped { path: path.display().to_string() };
    }
    FileEditError::io("write a new version of", path)(error)
}

/// Compares the hash of the data with the stated one.
fn check_hash(
    path: &Path,
    stated: Option<&str>,
    hash: Option<Sha256>,
) -> Result<(), FileEditError> {
    let (Some(stated), Some(hash)) = (stated, hash) else { return Ok(()) };
    let found = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    if found == stated {
        return Ok(());
    }
    Err(FileEditError::WrongHash { path: path.display().to_string(), found })
}

/// The result of the completion of an interrupted edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The new header was written.
    Completed,
    /// The file has the new header.
    WasComplete,
    /// The file has the old header.
    Undone,
    /// The file is not the one that was edited.
    Replaced,
}

impl Recovery {
    /// Describes the result, such as `completed an interrupted edit of`, followed by a file name.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Completed => "completed an interrupted edit of",
            Self::WasComplete => "removed the journal of a completed edit of",
            Self::Undone => "undid an interrupted edit of",
            Self::Replaced => "removed the journal of an older version of",
        }
    }
}

/// Completes or undoes an edit that was interrupted. Returns `None` if there was none.
pub(crate) fn recover(disk: &mut impl EditDisk, target: &Target) -> io::Result<Option<Recovery>> {
    let side = SideFiles::of(&target.path);
    let mut recovery = None;
    for unfinished in [&side.unfinished_journal, &side.copy] {
        if is_file(unfinished)? {
            disk.remove(unfinished)?;
            recovery = Some(Recovery::Undone);
        }
    }
    if is_file(&side.journal)? {
        recovery = Some(match read_journal(&side.journal)? {
            None => Recovery::Replaced,
            Some(journal) => {
                let start = target.read_start(journal.start_length())?;
                match journal.state(target.id, &start) {
                    JournalState::Written => Recovery::WasComplete,
                    JournalState::Foreign => Recovery::Replaced,
                    JournalState::Unwritten => {
                        disk.overwrite(&target.file, PREFIX_LENGTH, &journal.new)?;
                        Recovery::Completed
                    }
                }
            }
        });
        if recovery == Some(Recovery::WasComplete) {
            // The header may be in memory only, and the journal is the only copy on disk.
            target.file.sync_all()?;
        }
        disk.remove(&side.journal)?;
    }
    if recovery.is_some() {
        disk.sync_folder(&target.path)?;
    }
    Ok(recovery)
}

fn is_file(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a journal. Returns `None` if the file is not one.
fn read_journal(path: &Path) -> io::Result<Option<Journal>> {
    if fs::metadata(path)?.len() > MAX_JOURNAL {
        return Ok(None);
    }
    Ok(Journal::decode(&fs::read(path)?))
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
