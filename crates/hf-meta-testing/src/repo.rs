//! Repositories: files by commit, references and access.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::digest::Digest;
use super::error_response::ErrorResponse;
use super::file::File;
use super::state::Caller;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Public,
    Gated,
    Private,
    Disabled,
}

/// A repository: its files at each commit, its branches, and its visibility.
#[derive(Clone)]
pub struct Repo {
    id: String,
    former_ids: Vec<String>,
    visibility: Visibility,
    reported_counts: Vec<(String, u64)>,
    /// Properties to show in the list of models, by name.
    listed: Map<String, Value>,
    /// The response to a request for all headers; `None` to compute it from the files.
    claimed_headers: Option<String>,
    /// The commit that [`Repo::file`] adds files to.
    current: String,
    references: HashMap<String, String>,
    commits: HashMap<String, BTreeMap<String, File>>,
}

impl Repo {
    /// Returns a copy of the repository with a different name.
    #[must_use]
    pub fn renamed(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    /// Creates an empty public repository named `name`, `org/name`, `datasets/org/name` or `spaces/org/name`.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let repo = Self {
            id: id.to_owned(),
            former_ids: Vec::new(),
            visibility: Visibility::Public,
            reported_counts: Vec::new(),
            listed: Map::new(),
            claimed_headers: None,
            current: String::new(),
            references: HashMap::new(),
            commits: HashMap::new(),
        };
        repo.commit(&Digest::new(id).sha1())
    }

    /// Starts a commit with the given hash of 40 hexadecimal digits. `main` points to it, and [`Repo::file`] adds
    /// files to it. Commits without files are dropped.
    #[must_use]
    pub fn commit(mut self, commit: &str) -> Self {
        self.commits.retain(|_, files| !files.is_empty());
        self.commits.entry(commit.to_owned()).or_default();
        commit.clone_into(&mut self.current);
        self.revision("main", commit)
    }

    /// Adds or moves a branch or tag.
    #[must_use]
    pub fn revision(mut self, name: &str, commit: &str) -> Self {
        self.set_reference(name, commit);
        self
    }

    /// Adds a file to the current commit.
    #[must_use]
    pub fn file(mut self, path: &str, file: File) -> Self {
        self.commits.entry(self.current.clone()).or_default().insert(path.to_owned(), file);
        self
    }

    /// Adds zero-padded files, each given by its path, its first bytes and its size.
    #[must_use]
    pub fn padded_files(self, files: impl IntoIterator<Item = (String, Vec<u8>, u64)>) -> Self {
        files
            .into_iter()
            .fold(self, |repo, (path, head, size)| repo.file(&path, File::padded(head, size)))
    }

    /// Makes the repository gated: only tokens with access can read its files.
    #[must_use]
    pub fn gated(self) -> Self {
        Self { visibility: Visibility::Gated, ..self }
    }

    /// Makes the repository private: only tokens with access can see it.
    #[must_use]
    pub fn private(self) -> Self {
        Self { visibility: Visibility::Private, ..self }
    }

    /// Disables access to the repository, as if the Hub had taken it down.
    #[must_use]
    pub fn disabled(self) -> Self {
        Self { visibility: Visibility::Disabled, ..self }
    }

    /// Adds a former name, from which requests are redirected.
    #[must_use]
    pub fn renamed_from(mut self, id: &str) -> Self {
        self.former_ids.push(id.to_owned());
        self
    }

    /// Returns whether a name redirects to this repository: a former name, or another letter case.
    pub(super) fn has_alias(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id) || self.former_ids.iter().any(|former| former == id)
    }

    /// Adds a parameter count that the Hub reports for a dtype, regardless of the files.
    #[must_use]
    pub fn hub_reported_count(mut self, dtype: &str, parameters: u64) -> Self {
        self.reported_counts.push((dtype.to_owned(), parameters));
        self
    }

    /// Sets a property in the list of models, such as `downloads`, `createdAt`, `lastModified`, `pipeline_tag`,
    /// `library_name`, or `tags` with the license and the base model. Other properties are derived from the files.
    #[must_use]
    pub fn listed(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.listed.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn listed_properties(&self) -> &Map<String, Value> {
        &self.listed
    }

    /// Returns the tags of a model: the ones that were set, and the formats of its files.
    pub(super) fn tags(&self, commit: &str) -> Vec<String> {
        let set = self.listed.get("tags").and_then(Value::as_array);
        let set = set.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let has =
            |format: &&str| self.paths(commit).any(|path| path.ends_with(&format!(".{format}")));
        set.chain(
            ["safetensors", "gguf"]
                .iter()
                .filter(|format| has(format))
                .map(|format| (*format).to_owned()),
        )
        .collect()
    }

    /// Returns the parameter counts that the Hub reports, by dtype.
    pub(super) fn reported_counts(&self) -> &[(String, u64)] {
        &self.reported_counts
    }

    /// Sets the JSON with which the Hub responds to requests for all headers, regardless of the files.
    #[must_use]
    pub fn hub_headers(self, json: &str) -> Self {
        Self { claimed_headers: Some(json.to_owned()), ..self }
    }

    /// Returns the headers of all shards of an index, as JSON; `None` if there are none.
    pub(super) fn headers(&self, commit: &str, index: &str) -> Option<String> {
        if let Some(claimed) = &self.claimed_headers {
            return Some(claimed.clone());
        }
        let json = self.find_file(commit, index)?.start(u64::MAX).ok()?;
        let folder =
            index.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let index: Value = serde_json::from_slice(&json).ok()?;
        let shards = index.get("weight_map")?.as_object()?.values().filter_map(Value::as_str);
        let mut headers = Map::new();
        for shard in shards.collect::<BTreeSet<_>>() {
            let file = self.find_file(commit, &format!("{folder}{shard}"))?;
            let length = u64::from_le_bytes(file.start(8).ok()?.as_ref().try_into().ok()?);
            let start = file.start(length.checked_add(8)?).ok()?;
            headers.insert(shard.to_owned(), serde_json::from_slice(&start[8..]).ok()?);
        }
        let metadata = index.get("metadata");
        Some(json!({ "index": { "metadata": metadata }, "headers": headers }).to_string())
    }

    /// Returns the name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn is_private(&self) -> bool {
        self.visibility == Visibility::Private
    }

    /// Returns the part of the name before the slash.
    pub(super) fn author(&self) -> Option<&str> {
        self.id.split_once('/').map(|(author, _)| author)
    }

    pub(super) fn is_disabled(&self) -> bool {
        self.visibility == Visibility::Disabled
    }

    pub(super) fn is_gated(&self) -> bool {
        self.visibility == Visibility::Gated
    }

    pub(super) fn set_reference(&mut self, name: &str, commit: &str) {
        self.references.insert(name.to_owned(), commit.to_owned());
    }

    /// Returns whether the caller may know that the repository exists.
    pub(super) fn is_visible_to(&self, caller: Caller) -> bool {
        !self.is_private() || caller == Caller::Member
    }

    /// Checks that the caller may read the files.
    pub(super) fn check_access(&self, caller: Caller) -> Result<(), ErrorResponse> {
        match self.visibility {
            Visibility::Disabled => Err(ErrorResponse::Disabled),
            Visibility::Gated if caller != Caller::Member => {
                Err(ErrorResponse::Gated { repo: self.id.clone(), caller })
            }
            _ => Ok(()),
        }
    }

    /// Returns the commit of a branch, a tag, a pull request or a commit hash.
    pub(super) fn find_commit(&self, revision: &str) -> Option<&str> {
        let revision = if revision == "HEAD" { "main" } else { revision };
        let commit = self.references.get(revision).map_or(revision, String::as_str);
        self.commits.get_key_value(commit).map(|(commit, _)| commit.as_str())
    }

    /// Returns a file at a commit, or `None` if it does not exist.
    #[must_use]
    pub fn find_file(&self, commit: &str, path: &str) -> Option<&File> {
        self.commits.get(commit)?.get(path)
    }

    pub(super) fn paths(&self, commit: &str) -> impl Iterator<Item = &str> {
        self.commits.get(commit).into_iter().flat_map(|files| files.keys().map(String::as_str))
    }
}
