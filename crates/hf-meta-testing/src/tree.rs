//! Paginated file listings.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::digest::Digest;
use super::file::File;
use super::repo::Repo;
use super::state::is_large;

/// A page of a listing and the query of the next page.
pub(super) struct Page {
    pub json: String,
    pub next: Option<String>,
}

/// Returns a page of a listing with at most `max_entries` entries; `None` if the folder does not exist.
pub(super) fn page(
    repo: &Repo,
    commit: &str,
    folder: &str,
    query: &str,
    max_entries: usize,
) -> Option<Page> {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let is_recursive = value("recursive").is_some_and(|value| value == "true" || value == "1");
    let entries = entries(repo, commit, folder, is_recursive);
    if entries.is_empty() && !folder.is_empty() {
        return None;
    }
    let limit =
        value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(max_entries).min(max_entries);
    let start = value("cursor")
        .and_then(|cursor| position(&cursor.replace("%3D", "=")))
        .unwrap_or(0)
        .min(entries.len());
    let end = entries.len().min(start + limit);
    let listed: Vec<_> = entries.into_values().collect();
    Some(Page {
        json: Value::from(&listed[start..end]).to_string(),
        next: (end < listed.len()).then(|| next_query(query, end)),
    })
}

/// Returns the query of the page that starts at a position.
pub(super) fn next_query(query: &str, at: usize) -> String {
    let others = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    others.chain([&*cursor(at)]).collect::<Vec<_>>().join("&")
}

/// Returns the opaque cursor for a position. It contains a character that must be encoded in URLs.
fn cursor(at: usize) -> String {
    format!("cursor=at{at}%3D")
}

/// Returns the position of a decoded cursor.
pub(super) fn position(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("at")?.strip_suffix('=')?.parse().ok()
}

/// Returns the files and folders in a folder, or with `is_recursive` in all its subfolders, by path.
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
    json!({ "type": "directory", "oid": Digest::new(path).sha1(), "size": 0, "path": path })
}

fn file_entry(path: &str, file: &File) -> Value {
    let (digest, size) = (file.digest(), file.size());
    let mut entry = json!({ "type": "file", "oid": digest.sha1(), "size": size, "path": path });
    if is_large(file, path) {
        entry["lfs"] = json!({ "oid": digest.sha256(), "size": size, "pointerSize": 134 });
    }
    entry
}
