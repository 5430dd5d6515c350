//! Listings of a repo's files, in pages.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::digest::Digest;
use super::file::File;
use super::repo::Repo;
use super::site::is_large;

/// Some entries of a listing, and the query that asks for those after them.
pub struct Page {
    pub json: String,
    pub next: Option<String>,
}

/// A page of the listing of a folder, at most `most` entries long; `None` if there is no such folder.
pub fn page(repo: &Repo, commit: &str, folder: &str, query: &str, most: usize) -> Option<Page> {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let is_recursive = value("recursive").is_some_and(|value| value == "true" || value == "1");
    let entries = entries(repo, commit, folder, is_recursive);
    if entries.is_empty() && !folder.is_empty() {
        return None;
    }
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(most).min(most);
    let start = value("cursor").and_then(position).unwrap_or(0).min(entries.len());
    let end = entries.len().min(start + limit);
    let listed: Vec<_> = entries.into_values().collect();
    let others = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    let next = others.chain([&*cursor(end)]).collect::<Vec<_>>().join("&");
    Some(Page {
        json: Value::from(&listed[start..end]).to_string(),
        next: (end < listed.len()).then_some(next),
    })
}

/// A place in the listing, in a form that is only to be handed back, with a character that URLs encode.
fn cursor(at: usize) -> String {
    format!("cursor=at{at}%3D")
}

fn position(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("at")?.strip_suffix("%3D")?.parse().ok()
}

/// The files and folders in a folder, by their paths; with `is_recursive`, of its folders, too.
fn entries(repo: &Repo, commit: &str, folder: &str, is_recursive: bool) -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    for path in repo.paths(commit).filter(|path| path.starts_with(&prefix)) {
        let Some(file) = repo.find_file(commit, path) else { continue };
        let slashes = path[prefix.len()..].match_indices('/').map(|(at, _)| prefix.len() + at);
        let folders: Vec<_> = slashes.collect();
        for end in folders.iter().take(if is_recursive { folders.len() } else { 1 }) {
            entries.insert(path[..*end].to_owned(), folder_entry(&path[..*end]));
        }
        if is_recursive || folders.is_empty() {
            entries.insert(path.to_owned(), file_entry(path, file));
        }
    }
    entries
}

fn folder_entry(path: &str) -> Value {
    json!({ "type": "directory", "oid": Digest::of(path).sha1(), "size": 0, "path": path })
}

fn file_entry(path: &str, file: &File) -> Value {
    let (digest, size) = (file.digest(), file.size());
    let mut entry = json!({ "type": "file", "oid": digest.sha1(), "size": size, "path": path });
    if is_large(file, path) {
        entry["lfs"] = json!({ "oid": digest.sha256(), "size": size, "pointerSize": 134 });
    }
    entry
}
