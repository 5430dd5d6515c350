//! Repos: files by commit, names for commits, and who may read them.

use std::collections::{BTreeMap, HashMap};

use super::digest::Digest;
use super::file::File;
use super::refusal::Refusal;
use super::site::Caller;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Public,
    Gated,
    Private,
    Disabled,
}

#[derive(Clone)]
pub struct Repo {
    id: String,
    former_ids: Vec<String>,
    access: Access,
    claimed: Vec<(String, u64)>,
    /// The commit that [`Repo::file`] adds to.
    current: String,
    references: HashMap<String, String>,
    commits: HashMap<String, BTreeMap<String, File>>,
}

impl Repo {
    /// An empty public repo whose id is `name`, `org/name`, `datasets/org/name` or `spaces/org/name`.
    pub fn new(id: &str) -> Self {
        let repo = Self {
            id: id.to_owned(),
            former_ids: Vec::new(),
            access: Access::Public,
            claimed: Vec::new(),
            current: String::new(),
            references: HashMap::new(),
            commits: HashMap::new(),
        };
        repo.commit(&Digest::of(id).sha1())
    }

    /// Begins this commit, 40 hex digits: `main` points to it, and the files that follow are its files. A commit left
    /// without files is forgotten.
    #[must_use]
    pub fn commit(mut self, commit: &str) -> Self {
        self.commits.retain(|_, files| !files.is_empty());
        self.commits.entry(commit.to_owned()).or_default();
        commit.clone_into(&mut self.current);
        self.revision("main", commit)
    }

    /// Names a commit; `main` may be moved so too.
    #[must_use]
    pub fn revision(mut self, name: &str, commit: &str) -> Self {
        self.point(name, commit);
        self
    }

    #[must_use]
    pub fn file(mut self, path: &str, file: File) -> Self {
        self.commits.entry(self.current.clone()).or_default().insert(path.to_owned(), file);
        self
    }

    /// Files of which the beginnings are given, each with its path and its size.
    #[must_use]
    pub fn padded_files(self, files: impl IntoIterator<Item = (String, Vec<u8>, u64)>) -> Self {
        files
            .into_iter()
            .fold(self, |repo, (path, head, size)| repo.file(&path, File::padded(head, size)))
    }

    /// Readable to those whom its authors let in.
    #[must_use]
    pub fn gated(self) -> Self {
        Self { access: Access::Gated, ..self }
    }

    #[must_use]
    pub fn private(self) -> Self {
        Self { access: Access::Private, ..self }
    }

    /// Taken down.
    #[must_use]
    pub fn disabled(self) -> Self {
        Self { access: Access::Disabled, ..self }
    }

    /// Had this id before it was renamed, and is still found by it.
    #[must_use]
    pub fn renamed_from(mut self, id: &str) -> Self {
        self.former_ids.push(id.to_owned());
        self
    }

    /// Returns whether another id redirects here: a former one, or one in different case.
    pub fn is_also(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id) || self.former_ids.iter().any(|former| former == id)
    }

    /// Sets the number of parameters of a dtype that the Hub itself reports, independent of the files.
    #[must_use]
    pub fn hub_reports(mut self, dtype: &str, parameters: u64) -> Self {
        self.claimed.push((dtype.to_owned(), parameters));
        self
    }

    /// The parameters of each dtype that it is shown with.
    pub fn claimed(&self) -> &[(String, u64)] {
        &self.claimed
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn is_private(&self) -> bool {
        self.access == Access::Private
    }

    pub fn is_gated(&self) -> bool {
        self.access == Access::Gated
    }

    pub fn point(&mut self, name: &str, commit: &str) {
        self.references.insert(name.to_owned(), commit.to_owned());
    }

    /// Returns whether the repo exists for the caller.
    pub fn is_visible_to(&self, caller: Caller) -> bool {
        !self.is_private() || caller == Caller::Member
    }

    /// Returns whether the caller may read its files.
    pub fn admit(&self, caller: Caller) -> Result<(), Refusal> {
        match self.access {
            Access::Disabled => Err(Refusal::Disabled),
            Access::Gated if caller != Caller::Member => {
                Err(Refusal::Gated { repo: self.id.clone(), caller })
            }
            _ => Ok(()),
        }
    }

    /// The commit that a branch, a tag, a pull request or the commit's own hash names.
    pub fn find_commit(&self, revision: &str) -> Option<&str> {
        let revision = if revision == "HEAD" { "main" } else { revision };
        let commit = self.references.get(revision).map_or(revision, String::as_str);
        self.commits.get_key_value(commit).map(|(commit, _)| commit.as_str())
    }

    pub fn find_file(&self, commit: &str, path: &str) -> Option<&File> {
        self.commits.get(commit)?.get(path)
    }

    pub fn paths(&self, commit: &str) -> impl Iterator<Item = &str> {
        self.commits.get(commit).into_iter().flat_map(|files| files.keys().map(String::as_str))
    }
}
