//! The completion of interrupted edits, by whoever reads a local file next.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::disk::RealDisk;
use super::error::FileEditError;
use super::journal::{SIDE_SUFFIXES, SideFiles};
use super::steps::{Recovery, recover};
use super::target::Target;

/// Completes or undoes the interrupted edits of a file, or of the files in a folder or next to an index. Returns the
/// files and the results. A file that another process is editing is skipped. After an error, the file may be readable
/// nevertheless.
pub fn complete_interrupted(path: &Path) -> Vec<(PathBuf, Result<Recovery, FileEditError>)> {
    let complete = |file: PathBuf| match complete(&file).transpose()? {
        Err(FileEditError::Locked { .. }) => None,
        completed => Some((file, completed)),
    };
    interrupted(path).into_iter().filter_map(complete).collect()
}

fn complete(file: &Path) -> Result<Option<Recovery>, FileEditError> {
    let target = Target::open(file)?;
    let failed = FileEditError::io("complete the interrupted edit of", file);
    recover(&mut RealDisk::default(), &target).map_err(failed)
}

/// Returns the files that an edit has left other files next to: the file itself, or the files of a folder.
fn interrupted(path: &Path) -> BTreeSet<PathBuf> {
    let is_index = path.extension().is_some_and(|extension| extension == "json");
    if !path.is_dir() && !is_index {
        let has_side_files = SideFiles::of(path).all().iter().any(|side| side.exists());
        return if has_side_files { BTreeSet::from([path.to_path_buf()]) } else { BTreeSet::new() };
    }
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let Some(folder) = folder else { return BTreeSet::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let file_of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_prefix('.')?;
        let name = SIDE_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix))?;
        Some(folder.join(name))
    };
    entries.filter_map(|entry| file_of(entry.ok()?)).filter(|file| file.exists()).collect()
}
