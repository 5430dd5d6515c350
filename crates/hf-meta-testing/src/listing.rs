//! Paginated listings: the files of a repository, and the models of the Hub with their properties.
//!
//! Only the parameters that clients of the tests send: <https://huggingface.co/docs/hub/api>. Models are sorted in
//! descending order, and files are always listed with all subfolders.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::file::{File, GIT_HASH_LENGTH, placeholder_hash};
use crate::repo::{Caller, LazyRepos, Repo, Visibility};
use crate::response::ErrorResponse;

/// A page of a listing, and the query of the next page.
pub(crate) struct Page {
    pub json: String,
    pub next: Option<String>,
}

impl Page {
    /// Takes the entries from the start of a query up to its limit.
    fn new(mut entries: impl Iterator<Item = (usize, Value)>, query: &ListQuery) -> Self {
        let page: Value = entries.by_ref().take(query.limit).map(|(_, entry)| entry).collect();
        let next = entries.next().map(|(at, _)| query.next(at));
        Self { json: page.to_string(), next }
    }
}

/// The parameters of a listing.
#[derive(Default)]
pub(crate) struct ListQuery<'a> {
    text: &'a str,
    filters: Vec<String>,
    author: Option<String>,
    is_by_time_of_change: bool,
    limit: usize,
    start: usize,
    expand: Vec<String>,
}

impl<'a> ListQuery<'a> {
    /// Parses a query. Ignores unknown parameters, like the Hub, and invalid values.
    pub(crate) fn parse(text: &'a str, page_size: usize) -> Self {
        let mut query = Self { text, limit: page_size, ..Self::default() };
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            match key.trim_end_matches("[]") {
                "filter" => query.filters.push(value.into_owned()),
                "author" => query.author = Some(value.into_owned()),
                "sort" => query.is_by_time_of_change = value == "lastModified",
                "limit" => query.limit = value.parse().unwrap_or(page_size).clamp(1, page_size),
                "cursor" => query.start = parse_cursor(&value).unwrap_or(0),
                "expand" => query.expand.push(value.into_owned()),
                _ => {}
            }
        }
        query
    }

    /// Returns the query of the page that starts at a position. The cursor contains a character that must be encoded
    /// in URLs.
    fn next(&self, at: usize) -> String {
        let pairs = self.text.split('&');
        let others = pairs.filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
        others.chain([&*format!("cursor=at{at}%3D")]).collect::<Vec<_>>().join("&")
    }

    fn accepts(&self, repo: &Repo) -> bool {
        let tags = || repo.tags(repo.find_commit("main").unwrap_or_default());
        self.author.as_deref().is_none_or(|author| repo.author() == Some(author))
            && self.filters.iter().all(|filter| tags().contains(filter))
    }

    /// Returns the entry of a model: its name and the properties to expand.
    fn entry(&self, repo: &Repo) -> Value {
        let mut properties = properties(repo, repo.find_commit("main").unwrap_or_default());
        properties.retain(|name, _| name == "_id" || name == "id" || self.expand.contains(name));
        properties.into()
    }
}

/// Returns the position of a decoded cursor.
fn parse_cursor(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("at")?.strip_suffix('=')?.parse().ok()
}

/// Returns a page of the list of models: first the stored ones, then the generated ones.
pub(crate) fn model_page(
    mut stored: Vec<Arc<Repo>>,
    lazy: Option<&dyn LazyRepos>,
    caller: Caller,
    query: &ListQuery<'_>,
) -> Page {
    let sort = if query.is_by_time_of_change { "lastModified" } else { "createdAt" };
    stored.retain(|repo| !repo.id().starts_with("datasets/") && !repo.id().starts_with("spaces/"));
    stored.sort_by_cached_key(|repo| {
        let time = properties(repo, "").remove(sort).unwrap_or_default();
        (time.as_str().map(str::to_owned), repo.id().to_owned())
    });
    let skipped = query.start.saturating_sub(stored.len());
    let lazy = lazy.into_iter().flat_map(|lazy| {
        let indices = lazy_indices(lazy, query).skip(skipped);
        indices.map(|index| Arc::new(lazy.repo(index)))
    });
    let models = stored.into_iter().rev().skip(query.start).chain(lazy);
    let entries = (query.start..).zip(models);
    let entries = entries.filter(|(_, repo)| repo.is_visible_to(caller) && query.accepts(repo));
    Page::new(entries.map(|(at, repo)| (at, query.entry(&repo))), query)
}

/// Returns the indices of generated models in the order of a query.
fn lazy_indices(lazy: &dyn LazyRepos, query: &ListQuery) -> Box<dyn Iterator<Item = u64>> {
    let indices = 0..lazy.count();
    if !query.is_by_time_of_change {
        return Box::new(indices.rev());
    }
    let mut sorted: Vec<_> = indices.collect();
    sorted.sort_by_cached_key(|index| (lazy.last_modified(*index), *index));
    Box::new(sorted.into_iter().rev())
}

/// Returns the properties of a repository at a commit.
pub(crate) fn properties(repo: &Repo, commit: &str) -> Map<String, Value> {
    let siblings = repo.files(commit).map(|(path, _)| json!({ "rfilename": path }));
    let gated = if repo.visibility == Visibility::Gated { json!("auto") } else { json!(false) };
    let mut properties = Map::from_iter([
        ("_id".to_owned(), placeholder_hash(repo.id())[..24].into()),
        ("id".to_owned(), repo.id().into()),
        ("author".to_owned(), repo.author().into()),
        ("sha".to_owned(), commit.into()),
        ("private".to_owned(), (repo.visibility == Visibility::Private).into()),
        ("disabled".to_owned(), (repo.visibility == Visibility::Disabled).into()),
        ("gated".to_owned(), gated),
        ("createdAt".to_owned(), "2022-03-02T23:29:04.000Z".into()),
        ("lastModified".to_owned(), "2025-01-01T00:00:00.000Z".into()),
        ("downloads".to_owned(), 0.into()),
        ("likes".to_owned(), 0.into()),
        ("siblings".to_owned(), siblings.collect()),
        ("config".to_owned(), listed_config(repo, commit)),
    ]);
    properties.extend(repo.listed.clone());
    properties.insert("tags".to_owned(), repo.tags(commit).into());
    properties.retain(|_, value| !value.is_null());
    properties
}

/// Returns `config.json`, of which the Hub lists a part.
fn listed_config(repo: &Repo, commit: &str) -> Value {
    let file = repo.find_file(commit, "config.json");
    let json = file.and_then(|file| file.start(u64::MAX).ok()).unwrap_or_default();
    serde_json::from_slice(&json).unwrap_or_default()
}

/// Returns a page of the files and folders in a folder and its subfolders.
///
/// # Errors
///
/// Returns an error if the folder does not exist.
pub(crate) fn tree_page(
    repo: &Repo,
    commit: &str,
    folder: &str,
    query: &ListQuery<'_>,
) -> Result<Page, ErrorResponse> {
    let entries = tree_entries(repo, commit, folder);
    if entries.is_empty() && !folder.is_empty() {
        return Err(ErrorResponse::entry_not_found());
    }
    Ok(Page::new(entries.into_values().enumerate().skip(query.start), query))
}

/// Returns the files and folders in a folder and its subfolders, by path.
fn tree_entries(repo: &Repo, commit: &str, folder: &str) -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    for (path, file) in repo.files(commit).filter(|(path, _)| path.starts_with(&prefix)) {
        for (at, _) in path[prefix.len()..].match_indices('/') {
            let path = &path[..prefix.len() + at];
            let oid = &placeholder_hash(path)[..GIT_HASH_LENGTH];
            let folder = json!({ "type": "directory", "oid": oid, "size": 0, "path": path });
            entries.insert(path.to_owned(), folder);
        }
        entries.insert(path.clone(), file_entry(path, file));
    }
    entries
}

fn file_entry(path: &str, file: &File) -> Value {
    let (oid, size) = (file.git_hash(), file.size());
    let mut entry = json!({ "type": "file", "oid": oid, "size": size, "path": path });
    if file.is_large(path) {
        entry["lfs"] = json!({ "oid": file.lfs_hash(), "size": size, "pointerSize": 134 });
    }
    entry
}
