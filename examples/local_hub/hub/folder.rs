//! Repos from a folder tree: fixtures with their `hub.json`, or ordinary downloaded models.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use super::file::File;
use super::repo::Repo;

/// What a repo's `hub.json` tells about files that were cut.
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
        let name = folder
            .canonicalize()?
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let id = if id.is_empty() {
            name.unwrap_or_default()
        } else {
            id.to_owned()
        };
        repos.push(Repo::load(folder, &id)?);
        return Ok(());
    }
    let folders = entries.iter().filter(|(_, path)| path.is_dir());
    folders
        .into_iter()
        .try_for_each(|(name, path)| collect(path, &join(id, name), repos))
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
        let about = match fs::read(folder.join(ABOUT)) {
            Ok(json) => serde_json::from_slice(&json)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => About::default(),
            Err(error) => return Err(error),
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
                let file = File::on_disk(&path, sizes.get(&name).copied())?;
                self = self.file(&name, file);
            }
        }
        Ok(self)
    }
}

/// What a folder holds, by name, hidden entries left out.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let named = |entry: fs::DirEntry| {
        (
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        )
    };
    let read =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| entry.map(named)).collect());
    let mut entries: Vec<_> =
        read.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
    entries.retain(|(name, _)| !name.starts_with('.'));
    entries.sort();
    Ok(entries)
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}/{name}")
    }
}
