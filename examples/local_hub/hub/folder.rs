//! Repos from a folder tree: fixtures with their `hub.json`, or ordinary downloaded models.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use super::file::File;
use super::repo::Repo;

/// The part of a repo's `hub.json` about files that were cut.
#[derive(Default, Deserialize)]
struct About {
    commit: Option<String>,
    #[serde(default)]
    sizes: HashMap<String, u64>,
}

const ABOUT: &str = "hub.json";

/// The repos in a tree: every folder that holds weights is one, and its path is its id. When the folder itself holds
/// weights, it is the only repo and its name is the id.
///
/// # Errors
///
/// When something in the tree cannot be read.
pub fn load_folder(folder: &Path) -> io::Result<Vec<Repo>> {
    let mut repos = Vec::new();
    collect(folder, "", &mut repos)?;
    Ok(repos)
}

fn collect(folder: &Path, id: &str, repos: &mut Vec<Repo>) -> io::Result<()> {
    let entries = entries(folder)?;
    if entries.iter().any(|(name, _)| marks_a_repo(name)) {
        let id = if id.is_empty() { own_name(folder)? } else { id.to_owned() };
        repos.push(Repo::load(folder, &id)?);
        return Ok(());
    }
    for (name, path) in entries.iter().filter(|(_, path)| path.is_dir()) {
        collect(path, &join(id, name), repos)?;
    }
    Ok(())
}

/// The last part of the path, also when that is written as `.` or `..`.
fn own_name(folder: &Path) -> io::Result<String> {
    let folder = folder.canonicalize()?;
    Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn marks_a_repo(name: &str) -> bool {
    name == ABOUT || name.ends_with(".safetensors") || name.ends_with(".index.json")
}

impl Repo {
    /// The files of a folder, subfolders included. They stay on disk.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or `hub.json` is not what it should be.
    pub fn load(folder: &Path, id: &str) -> io::Result<Self> {
        let path = folder.join(ABOUT);
        let about = match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|e| at(&path)(e.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => About::default(),
            Err(error) => return Err(at(&path)(error)),
        };
        let repo = Self::new(id);
        let repo = match &about.commit {
            Some(commit) => repo.commit(commit),
            None => repo,
        };
        repo.add_folder(folder, "", &about.sizes)
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
            } else if name != ABOUT {
                let file = File::on_disk(&path, sizes.get(&name).copied()).map_err(at(&path))?;
                self = self.file(&name, file);
            }
        }
        Ok(self)
    }
}

/// Returns the entries of a folder by name, without hidden ones.
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

/// Puts the path in front of an error that would not name it.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") }
}
