//! What of the Hub a request is about.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use crate::client::Client;
use crate::client::Model;
use crate::formats::RepoPath;
use crate::hub::Source;
use crate::hub::{CommitSha, Endpoint, RepoId, Revision};

/// The longest query that is looked at, in bytes. What is beyond it is as if it had not been asked.
const LONGEST_QUERY: usize = 4_096;

/// A repo, a revision of it, and a file or folder in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    repo: RepoId,
    revision: Option<Revision>,
    path: Option<RepoPath>,
    /// Whether it is looked at for the names of the sets of weights alone.
    is_listing: bool,
}

/// A request for something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadPlace {
    Repo,
    Revision,
    Path,
}

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repo => "invalid name",
            Self::Revision => "invalid revision",
            Self::Path => "invalid path",
        })
    }
}

impl Place {
    /// From the name of a repo as it stands in a path, and from a query.
    pub(super) fn parse(repo: &str, query: &Query<'_>) -> Result<Self, BadPlace> {
        let repo = percent_decode_str(repo).decode_utf8().map_err(|_| BadPlace::Repo)?;
        let repo = repo.parse().map_err(|_| BadPlace::Repo)?;
        let revision = query.get("revision").map(str::parse);
        let path = query.get("path").map(|path| path.trim_end_matches('/').parse());
        Ok(Self {
            repo,
            revision: revision.transpose().map_err(|_| BadPlace::Revision)?,
            path: path.transpose().map_err(|_| BadPlace::Path)?,
            is_listing: false,
        })
    }

    /// From whatever names a repo on the Hub, such as its page; revision and path of the query come first.
    pub(super) fn named(
        text: &str,
        endpoint: &Endpoint,
        query: &Query<'_>,
    ) -> Result<Self, String> {
        let source = Source::parse(text, endpoint).map_err(|error| error.to_string())?;
        let Source::Repo { repo, revision, path } = source else {
            return Err("that is not a repository on the Hub".to_owned());
        };
        let asked = Self::parse(&repo.to_string(), query).map_err(|bad| bad.to_string())?;
        Ok(Self { revision: asked.revision.or(revision), path: asked.path.or(path), ..asked })
    }

    /// The sets of weights that are there, of a commit where that is known.
    pub(super) fn listing(&self, commit: Option<&CommitSha>) -> Self {
        let revision = commit.map(Revision::from).or_else(|| self.revision.clone());
        Self { revision, is_listing: true, ..self.clone() }
    }

    pub(super) fn is_listing(&self) -> bool {
        self.is_listing
    }

    /// The repo as it stands in a URL.
    pub(super) fn repo(&self) -> String {
        self.repo.to_string()
    }

    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_ref().map(Revision::as_str)
    }

    pub(super) fn path(&self) -> Option<&str> {
        self.path.as_ref().map(RepoPath::as_str)
    }

    /// Whether it is of a commit, and so will never change.
    pub(super) fn is_pinned(&self) -> bool {
        self.revision().is_some_and(|revision| revision.parse::<CommitSha>().is_ok())
    }

    /// What is to be read of it, in as few requests as possible.
    pub(super) fn model(&self, client: &Client) -> Model {
        let mut model = client.model(self.repo()).prefetch(true);
        if let Some(revision) = self.revision() {
            model = model.revision(revision);
        }
        if let Some(path) = self.path() {
            model = model.path(path);
        }
        model
    }

    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        let texts = [Some(self.repo.name()), self.revision(), self.path()];
        size_of::<Self>() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }
}

/// The parameters of a query that are not empty, decoded.
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(super) fn parse(query: Option<&'a str>) -> Self {
        let query = query.filter(|query| query.len() <= LONGEST_QUERY).unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).collect())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The first value of a parameter; an empty one is none.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs().find(|(found, _)| *found == name);
        found.map(|(_, value)| value).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(repo: &str, query: &str) -> Result<Place, BadPlace> {
        Place::parse(repo, &Query::parse(Some(query)))
    }

    #[test]
    fn places() {
        assert_eq!(place("org/name", "path="), place("org%2Fname", "v=2"));
        assert_ne!(place("org/name", "revision=v1"), place("org/name", ""));
        assert!(place("gpt2", &format!("revision={}", "1".repeat(40))).unwrap().is_pinned());
        assert!(!place("gpt2", "revision=main").unwrap().is_pinned());
    }

    #[test]
    fn what_is_no_place() {
        let cases = [
            ("a/b/c", "", BadPlace::Repo),
            ("", "", BadPlace::Repo),
            ("../etc/passwd", "", BadPlace::Repo),
            ("%2e%2e/x", "", BadPlace::Repo),
            ("a/%ff", "", BadPlace::Repo),
            ("a/b%0d%0aX:y", "", BadPlace::Repo),
            ("a/b", "revision=%0d%0aX:y", BadPlace::Revision),
            ("a/b", "path=../../c", BadPlace::Path),
            ("a/b", "path=%2e%2e%2fc", BadPlace::Path),
            ("a/b", "path=http://x", BadPlace::Path),
        ];
        for (repo, query, bad) in cases {
            assert_eq!(place(repo, query), Err(bad), "{repo}?{query}");
        }
    }

    #[test]
    fn a_query_that_is_too_long_is_none() {
        let long = format!("revision=v1&label={}", "x".repeat(LONGEST_QUERY));
        assert_eq!(place("a/b", &long), place("a/b", ""));
    }
}
