//! Selects the files of a list to compare, and finds their places on this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hf_meta::{Manifest, ManifestFile};

use crate::exit::failed_to;

/// The files of a list that are compared. Never empty.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    pub(super) files: Vec<SelectedFile<'a>>,
    /// The start of all paths in the repository, with its last slash; empty for the root folder.
    pub(super) prefix: String,
    /// The local folder that all paths start from; `None` for a file that was renamed.
    pub(super) folder: Option<PathBuf>,
    /// True if the files of the folder that are not listed are extra.
    pub(super) is_whole_folder: bool,
}

/// A file that is compared.
#[derive(Debug)]
pub(super) struct SelectedFile<'a> {
    /// The path without the prefix.
    pub(super) path: String,
    pub(super) file: &'a ManifestFile,
    /// The place on this machine.
    pub(super) place: PathBuf,
}

/// The path that the list does not have; `None` if it has no file at all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotListed(pub(super) Option<String>);

/// Selects the files at or below the path `within` to compare with a local folder or file.
pub(super) fn select<'a>(
    local: &Path,
    manifest: &'a Manifest,
    within: Option<&str>,
) -> io::Result<Result<Selection<'a>, NotListed>> {
    let metadata = fs::metadata(local);
    let is_folder = metadata.map_err(failed_to(format!("read `{}`", local.display())))?.is_dir();
    let name = local.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_whole = |file: &&ManifestFile| within == Some(file.path.as_str());
    if let Some(file) = manifest.files.iter().find(is_whole) {
        return Ok(Ok(single(local, is_folder, file)));
    }
    let prefix = within.map(|folder| format!("{folder}/")).unwrap_or_default();
    let files = manifest.files.iter().filter_map(|file| {
        let path = file.path.as_str().strip_prefix(&*prefix)?.to_owned();
        let place = if is_folder { local.join(&path) } else { local.to_owned() };
        Some(SelectedFile { path, file, place })
    });
    let mut files: Vec<_> = files.collect();
    let has_folder = !files.is_empty();
    files.retain(|file| if is_folder { !is_hidden(&file.path) } else { file.path == name });
    if files.is_empty() {
        let path = match within {
            Some(path) if !has_folder => Some(path.to_owned()),
            _ if is_folder => None,
            _ => Some(format!("{prefix}{name}")),
        };
        return Ok(Err(NotListed(path)));
    }
    let folder = if is_folder { Some(local) } else { local.parent() };
    let folder = folder.map(Path::to_owned);
    Ok(Ok(Selection { files, prefix, folder, is_whole_folder: is_folder }))
}

/// Selects a single file to compare with a local file, or with the file of its name in a local folder.
fn single<'a>(local: &Path, is_folder: bool, file: &'a ManifestFile) -> Selection<'a> {
    let whole = file.path.as_str();
    let (prefix, path) = whole.split_at(whole.rfind('/').map_or(0, |at| at + 1));
    let place = if is_folder { local.join(path) } else { local.to_owned() };
    let is_named = place.file_name().is_some_and(|name| name == path);
    let folder = place.parent().filter(|_| is_named).map(Path::to_owned);
    let files = vec![SelectedFile { path: path.to_owned(), file, place }];
    Selection { files, prefix: prefix.to_owned(), folder, is_whole_folder: false }
}

/// Returns whether a list has a file at or below a path.
pub(super) fn has(manifest: &Manifest, path: &str) -> bool {
    let rest = |file: &ManifestFile| Some(file.path.as_str().strip_prefix(path)?.to_owned());
    let mut rests = manifest.files.iter().filter_map(rest);
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a path has a segment that begins with a dot.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|segment| segment.starts_with('.'))
}
