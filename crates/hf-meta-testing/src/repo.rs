//! Repositories: files by commit, references and access.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::file::{File, GIT_HASH_LENGTH, placeholder_hash};

/// The access to a repository.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Visibility {
    #[default]
    Public,
    Gated,
    Private,
    Disabled,
}

/// The sender of a request, identified by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Anonymous,
    /// A valid token without access to private and gated repositories.
    Unprivileged,
    /// A token with access to everything.
    Member,
}

/// A set of models that are generated on request, so that a Hub can have millions of them.
///
/// A model is identified by its index. Its files must depend only on its index and the pushes so far, and every
/// commit that the Hub has returned must stay readable.
pub trait LazyRepos: Send + Sync {
    /// Returns the number of models.
    fn count(&self) -> u64;

    /// Returns the index of the model with this name, or `None` if there is none.
    fn index_of(&self, id: &str) -> Option<u64>;

    /// Returns the model with an index below [`LazyRepos::count`]. Models with higher indexes must have later
    /// `createdAt` times.
    fn repo(&self, index: u64) -> Repo;

    /// Returns the time of the last push to a model in ISO 8601, by which listings can be sorted.
    fn last_modified(&self, index: u64) -> String;
}

/// A repository: its files at each commit, its branches, and its visibility.
#[derive(Clone, Default)]
#[must_use]
pub struct Repo {
    id: String,
    former_ids: Vec<String>,
    pub(crate) visibility: Visibility,
    /// Properties to show in the list of models, by name.
    pub(crate) listed: Map<String, Value>,
    /// The response to a request for all headers; `None` to compute it from the files.
    fake_headers: Option<String>,
    /// The commit that [`Repo::file`] adds files to.
    current: String,
    pub(crate) references: HashMap<String, String>,
    commits: HashMap<String, BTreeMap<String, File>>,
}

impl Repo {
    /// Creates an empty public repository named `name`, `org/name`, `datasets/org/name` or `spaces/org/name`.
    pub fn new(id: &str) -> Self {
        let repo = Self { id: id.to_owned(), ..Self::default() };
        repo.commit(&placeholder_hash(id)[..GIT_HASH_LENGTH])
    }

    /// Returns a copy of the repository with a different name.
    pub fn renamed(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    /// Starts a commit with the given hash of 40 hexadecimal digits. `main` points to it, and [`Repo::file`] adds
    /// files to it. Commits without files are dropped.
    pub fn commit(mut self, commit: &str) -> Self {
        self.commits.retain(|_, files| !files.is_empty());
        self.commits.entry(commit.to_owned()).or_default();
        commit.clone_into(&mut self.current);
        self.revision("main", commit)
    }

    /// Adds or moves a branch or tag.
    pub fn revision(mut self, name: &str, commit: &str) -> Self {
        self.references.insert(name.to_owned(), commit.to_owned());
        self
    }

    /// Adds a file to the current commit.
    pub fn file(mut self, path: &str, file: File) -> Self {
        self.commits.entry(self.current.clone()).or_default().insert(path.to_owned(), file);
        self
    }

    /// Makes the repository gated: only tokens with access can read its files.
    pub fn gated(self) -> Self {
        Self { visibility: Visibility::Gated, ..self }
    }

    /// Makes the repository private: only tokens with access can see it.
    pub fn private(self) -> Self {
        Self { visibility: Visibility::Private, ..self }
    }

    /// Disables access to the repository, as if the Hub had taken it down.
    pub fn disabled(self) -> Self {
        Self { visibility: Visibility::Disabled, ..self }
    }

    /// Adds a former name, from which requests are redirected.
    pub fn renamed_from(mut self, id: &str) -> Self {
        self.former_ids.push(id.to_owned());
        self
    }

    /// Adds a parameter count that the Hub reports for a dtype, regardless of the files.
    pub fn hub_reported_count(mut self, dtype: &str, parameters: u64) -> Self {
        let empty = || json!({ "parameters": {}, "total": 0 });
        let counts = self.listed.entry("safetensors").or_insert_with(empty);
        let total = counts["total"].as_u64().unwrap_or(0).saturating_add(parameters);
        counts["parameters"][dtype] = parameters.into();
        counts["total"] = total.into();
        self
    }

    /// Sets a property in the list of models, such as `downloads`, `createdAt`, `lastModified`, `pipeline_tag`,
    /// `library_name`, or `tags` with the license and the base model. Other properties are derived from the files.
    pub fn listed(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.listed.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the JSON with which the Hub responds to requests for all headers, regardless of the files.
    pub fn hub_headers(self, json: &str) -> Self {
        Self { fake_headers: Some(json.to_owned()), ..self }
    }

    /// Returns the name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a file at a commit, or `None` if it does not exist.
    pub fn find_file(&self, commit: &str, path: &str) -> Option<&File> {
        self.commits.get(commit)?.get(path)
    }

    /// Returns the files at a commit, sorted by path.
    pub(crate) fn files(&self, commit: &str) -> impl Iterator<Item = (&String, &File)> {
        self.commits.get(commit).into_iter().flatten()
    }

    /// Returns the commit of a branch, a tag, a pull request or a commit hash.
    pub(crate) fn find_commit(&self, revision: &str) -> Option<&str> {
        let revision = if revision == "HEAD" { "main" } else { revision };
        let commit = self.references.get(revision).map_or(revision, String::as_str);
        self.commits.get_key_value(commit).map(|(commit, _)| commit.as_str())
    }

    /// Returns whether a name redirects to this repository: a former name, or another letter case.
    pub(crate) fn has_alias(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id) || self.former_ids.iter().any(|former| former == id)
    }

    /// Returns whether the caller may know that the repository exists.
    pub(crate) fn is_visible_to(&self, caller: Caller) -> bool {
        self.visibility != Visibility::Private || caller == Caller::Member
    }

    /// Returns the part of the name before the slash.
    pub(crate) fn author(&self) -> Option<&str> {
        self.id.split_once('/').map(|(author, _)| author)
    }

    /// Returns the tags of a model: the ones that were set, and the formats of its files.
    pub(crate) fn tags(&self, commit: &str) -> Vec<String> {
        let set = self.listed.get("tags").and_then(Value::as_array).into_iter().flatten();
        let mut tags: Vec<_> = set.filter_map(|tag| tag.as_str().map(str::to_owned)).collect();
        for format in ["safetensors", "gguf"] {
            if self.files(commit).any(|(path, _)| path.ends_with(&format!(".{format}"))) {
                tags.push(format.to_owned());
            }
        }
        tags
    }

    /// Returns the headers of all shards of an index, as JSON; `None` if there are none.
    pub(crate) fn headers(&self, commit: &str, index: &str) -> Option<String> {
        if let Some(fake) = &self.fake_headers {
            return Some(fake.clone());
        }
        let json = self.find_file(commit, index)?.start(u64::MAX).ok()?;
        let folder = index.rfind('/').map_or("", |slash| &index[..=slash]);
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
}
