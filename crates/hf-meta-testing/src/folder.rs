//! Loads repositories from a folder tree: fixtures with a `hub.json`, or downloaded models.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use super::file::File;
use super::repo::Repo;

/// The `hub.json` of a fixture: its commit, and the full sizes of files that were truncated after the header.
#[derive(Default, Deserialize)]
struct HubJson {
    commit: Option<String>,
    #[serde(default)]
    sizes: HashMap<String, u64>,
}

const HUB_JSON: &str = "hub.json";

/// Loads the repositories in a folder tree. Every folder with weights or a `hub.json` is a repository, named after
/// its relative path. If that is true of the top folder, it is the only repository.
///
/// # Errors
///
/// Returns an error if a file or folder cannot be read, or if a `hub.json` is invalid.
pub fn load_folder(folder: &Path) -> io::Result<Vec<Repo>> {
    let mut repos = Vec::new();
    collect(folder, "", &mut repos)?;
    Ok(repos)
}

fn collect(folder: &Path, id: &str, repos: &mut Vec<Repo>) -> io::Result<()> {
    let entries = entries(folder)?;
    if entries.iter().any(|(name, _)| is_repo_file(name)) {
        let id = if id.is_empty() { own_name(folder)? } else { id.to_owned() };
        repos.push(Repo::load(folder, &id)?);
        return Ok(());
    }
    for (name, path) in entries.iter().filter(|(_, path)| path.is_dir()) {
        collect(path, &join(id, name), repos)?;
    }
    Ok(())
}

/// Returns the name of a folder, even for `.` and `..`.
fn own_name(folder: &Path) -> io::Result<String> {
    let folder = folder.canonicalize()?;
    Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn is_repo_file(name: &str) -> bool {
    name == HUB_JSON || name.ends_with(".safetensors") || name.ends_with(".index.json")
}

impl Repo {
    /// Loads a repository from a folder and its subfolders. The files stay on disk.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or `hub.json` is invalid.
    pub fn load(folder: &Path, id: &str) -> io::Result<Self> {
        let path = folder.join(HUB_JSON);
        let hub_json = match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|e| at(&path)(e.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => HubJson::default(),
            Err(error) => return Err(at(&path)(error)),
        };
        let repo = Self::new(id);
        let repo = match &hub_json.commit {
            Some(commit) => repo.commit(commit),
            None => repo,
        };
        repo.add_folder(folder, "", &hub_json.sizes)
    }

    fn add_folder(
        mut self,
        folder: &Path,
        prefix: &str,
        sizes: &HashMap<String, u64>,
    ) -> io::Result<Self> {
        for (name, path) in entries(folder)? {
            let name = join(prefix, &name);
            if path.is_dir() {
                self = self.add_folder(&path, &name, sizes)?;
            } else if name != HUB_JSON {
                let file = File::on_disk(&path, sizes.get(&name).copied()).map_err(at(&path))?;
                self = self.file(&name, file);
            }
        }
        Ok(self)
    }
}

/// Returns the entries of a folder, sorted by name, without hidden ones.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    entries.retain(|(name, _)| !name.starts_with('.'));
    entries.sort();
    Ok(entries)
}

/// Adds the path to an I/O error.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") }
}
