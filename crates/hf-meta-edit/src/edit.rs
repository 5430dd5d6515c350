//! The edit of one file.

use std::path::{Path, PathBuf};

use hf_meta_format::formats::safetensors::{MetadataEdit, edit_header, pad_header, padded_header};
use hf_meta_format::metadata::ModelSpec;
use hf_meta_format::{RepoPath, SafetensorsFileHeader};

use super::changes::Changes;
use super::disk::{EditProgress, RealDisk};
use super::error::FileEditError;
use super::steps::{self, recover};
use super::target::Target;

/// A checked edit of a file, which is open and locked until the edit is applied or dropped.
#[derive(Debug)]
pub struct FileEdit {
    target: Target,
    /// The JSON of the old header.
    old: Vec<u8>,
    /// The JSON of the new header; `None` if it is the old one.
    new: Option<Vec<u8>>,
    changes: Changes,
}

impl FileEdit {
    /// Opens, locks and checks a file, completes an interrupted edit of it, and computes its new header. With `reserve`,
    /// the header has at least this number of free bytes for further edits in place.
    ///
    /// # Errors
    ///
    /// Returns an error if the file must not or cannot be edited: a link, a file in a download cache, a file that is not
    /// a valid safetensors file or that another process edits, or an edit that exceeds a limit.
    pub fn new(
        path: &Path,
        edits: &[MetadataEdit],
        reserve: Option<usize>,
    ) -> Result<Self, FileEditError> {
        let mut target = Target::open(path)?;
        let failed = FileEditError::io("complete the interrupted edit of", path);
        recover(&mut RealDisk::default(), &target).map_err(failed)?;
        target.refresh().map_err(FileEditError::io("read", path))?;
        let header = target.read_header()?;
        let failed = |source| FileEditError::Edit { path: path.display().to_string(), source };
        let edited = edit_header(&header.json, edits).map_err(failed)?;
        let after =
            SafetensorsFileHeader::from_json(&edited).map_err(|error| failed(error.into()))?;
        let changes = Changes::new(&header.header, &after);
        let old = header.json;
        let free = old.len().checked_sub(edited.len());
        let has_room = free.is_some_and(|free| free >= reserve.unwrap_or_default());
        let new = if has_room {
            (edited != old.trim_ascii_end()).then_some(pad_header(edited, old.len())).flatten()
        } else {
            Some(padded_header(edited, reserve.unwrap_or_default()).map_err(failed)?)
        };
        Ok(Self { target, old, new, changes })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// Returns the difference of the metadata.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns whether the header changes.
    pub fn is_change(&self) -> bool {
        self.new.is_some()
    }

    /// Returns whether the data of the file move, so that a new file is written. Otherwise, the header is written in
    /// place, in a time that does not depend on the size of the file.
    pub fn is_new_file(&self) -> bool {
        self.new.as_ref().is_some_and(|new| new.len() != self.old.len())
    }

    /// Returns the number of free bytes in the new header.
    pub fn free_bytes(&self) -> usize {
        let header = self.new.as_ref().unwrap_or(&self.old);
        header.len() - header.trim_ascii_end().len()
    }

    /// Writes the new header.
    ///
    /// # Errors
    ///
    /// Returns an error if the file was changed by another program, if it cannot be written, or if a new file was to be
    /// written and the data do not have the hash that the metadata state. The file has the old or the new header.
    pub fn apply(self, progress: &EditProgress) -> Result<(), FileEditError> {
        let spec = ModelSpec::from_metadata(self.changes.after());
        let hash = spec.and_then(|spec| spec.data_hash());
        let is_new_file = self.is_new_file();
        let Self { target, old, new: Some(new), .. } = self else { return Ok(()) };
        let mut disk = RealDisk { progress: progress.clone() };
        if is_new_file {
            return steps::rewrite(&mut disk, &target, &old, &new, hash.as_deref());
        }
        steps::write_in_place(&mut disk, &target, old, new)
    }
}

/// Returns the weight files of a report about the folder or the index at `path`.
pub fn weight_files<'a>(
    path: &Path,
    files: impl IntoIterator<Item = &'a RepoPath>,
) -> Vec<PathBuf> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let files = files.into_iter().filter(|file| !file.is_index());
    files.map(|file| folder.join(file.as_str())).collect()
}
