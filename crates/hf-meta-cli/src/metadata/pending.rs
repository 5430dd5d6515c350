//! The completion of interrupted edits, by every command that reads a local file.

use std::fs;
use std::path::{Path, PathBuf};

use super::disk::RealDisk;
use super::error::MetadataError;
use super::journal::{JOURNAL_SUFFIX, SideFiles};
use super::steps::{Recovery, recover};
use super::target::Target;
use crate::error_report::{print_note, print_warning};
use crate::output::causes;
use crate::stderr::ProgressLine;

/// Completes or undoes interrupted edits of a file, or of the files in a folder. A failure is a warning: the file may be
/// readable nevertheless, and another process may be editing it.
pub(crate) fn complete_pending(path: &Path, line: &ProgressLine) {
    for file in interrupted(path) {
        let completed = Target::open(&file).and_then(|mut target| complete(&mut target, line));
        if let Err(error) = completed {
            let causes = causes(&error);
            let message = [vec![error.to_string()], causes].concat().join(": ");
            line.hidden_while(|| print_warning(&format!("an edit was interrupted: {message}")));
        }
    }
}

/// Completes or undoes an interrupted edit of a file, and says so.
pub(super) fn complete(target: &mut Target, line: &ProgressLine) -> Result<(), MetadataError> {
    let path = target.path.clone();
    let failed = MetadataError::io("complete the interrupted edit of", &path);
    let recovery = recover(&mut RealDisk::default(), target).map_err(failed)?;
    target.refresh().map_err(MetadataError::io("read", &path))?;
    let result = match recovery {
        None => return Ok(()),
        Some(Recovery::Completed) => "completed an interrupted edit of",
        Some(Recovery::WasComplete) => "removed the journal of a completed edit of",
        Some(Recovery::Undone) => "undid an interrupted edit of",
        Some(Recovery::Replaced) => "removed the journal of an older version of",
    };
    if !line.is_quiet {
        line.hidden_while(|| {
            print_note(&format!("{result} `{}`", path.display()));
        });
    }
    Ok(())
}

/// Returns the files with a journal: the file itself, or the files of a folder.
fn interrupted(path: &Path) -> Vec<PathBuf> {
    let has_journal = |file: &Path| fs::symlink_metadata(SideFiles::of(file).journal).is_ok();
    let is_index = path.extension().is_some_and(|extension| extension == "json");
    if !path.is_dir() && !is_index {
        return if has_journal(path) { vec![path.to_path_buf()] } else { Vec::new() };
    }
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let Some(folder) = folder else { return Vec::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let file_of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(folder.join(name.strip_prefix('.')?.strip_suffix(JOURNAL_SUFFIX)?))
    };
    entries.filter_map(|entry| file_of(entry.ok()?)).filter(|file| file.exists()).collect()
}
