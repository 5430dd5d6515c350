//! Loads repositories from a folder tree: fixtures with a `hub.json`, or downloaded models.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use hf_meta_testing::{File, Repo};
use serde::Deserialize;

/// The `hub.json` of a fixture: its commit, and the full sizes of files that were truncated after the header.
#[derive(Default, Deserialize)]
struct HubJson {
    commit: Option<String>,
    #[serde(default)]
    sizes: HashMap<String, u64>,
}

const HUB_JSON: &str = "hub.json";

/// Loads the repositories in a folder tree. Every folder with weights or a `hub.json` is a repository, named after
/// its relative path. If that is true of the top folder, it is the only repository. The files stay on disk.
///
/// # Errors
///
/// Returns an error if a file or folder cannot be read, or if a `hub.json` is invalid.
pub(crate) fn load_folder(folder: &Path) -> io::Result<Vec<Repo>> {
    let mut repos = Vec::new();
    find_repos(folder, "", &mut repos)?;
    Ok(repos)
}

fn find_repos(folder: &Path, id: &str, repos: &mut Vec<Repo>) -> io::Result<()> {
    let entries = entries(folder, id)?;
    if entries.iter().any(|(_, path)| is_repo_file(path)) {
        let id = if id.is_empty() { own_name(folder)? } else { id.to_owned() };
        repos.push(load_repo(folder, &id)?);
        return Ok(());
    }
    for (id, path) in entries.iter().filter(|(_, path)| path.is_dir()) {
        find_repos(path, id, repos)?;
    }
    Ok(())
}

/// Returns the name of a folder, even for `.` and `..`.
fn own_name(folder: &Path) -> io::Result<String> {
    let folder = folder.canonicalize()?;
    Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn is_repo_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == HUB_JSON || name.ends_with(".safetensors") || name.ends_with(".index.json")
}

/// Loads a repository from a folder and its subfolders.
fn load_repo(folder: &Path, id: &str) -> io::Result<Repo> {
    let path = folder.join(HUB_JSON);
    let hub_json = match fs::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map_err(|error| at(&path)(error.into()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => HubJson::default(),
        Err(error) => return Err(at(&path)(error)),
    };
    let mut repo = Repo::new(id);
    if let Some(commit) = &hub_json.commit {
        repo = repo.commit(commit);
    }
    let mut pending = entries(folder, "")?;
    while let Some((name, path)) = pending.pop() {
        if path.is_dir() {
            pending.extend(entries(&path, &name)?);
        } else if name != HUB_JSON {
            let size = hub_json.sizes.get(&name).copied();
            repo = repo.file(&name, File::on_disk(&path, size).map_err(at(&path))?);
        }
    }
    Ok(repo)
}

/// Returns the entries of a folder without hidden ones, sorted by name, with names below `prefix`.
fn entries(folder: &Path, prefix: &str) -> io::Result<Vec<(String, PathBuf)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            entries.push((name, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}

/// Adds the path to an I/O error.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
