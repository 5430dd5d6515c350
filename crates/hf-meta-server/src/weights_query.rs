//! Parses queries for the weights of a repository.

use std::borrow::Cow;
use std::collections::HashSet;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use hf_meta::formats::RepoPath;
use hf_meta::memory::{MemoryOptions, parse_tokens};
use hf_meta::report::Plan;
use hf_meta::{Client, Model};
use hf_meta::{CommitSha, Endpoint, RepoId, Revision, Source};

/// The maximum length of a query string in bytes. Longer ones are rejected.
const MAX_QUERY_LENGTH: usize = 4_096;

/// The kind of result that a query requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum QueryKind {
    Counts,
    /// The largest modules and the files. Only the page shows them, and reading them takes more memory.
    Details,
    /// The names of the sets of weights.
    Listing,
}

/// A query for the weights of a repository, optionally at a revision and below a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WeightsQuery {
    repo: RepoId,
    revision: Option<Revision>,
    path: Option<RepoPath>,
    /// The conditions for which the memory of the model is requested.
    memory: Option<MemoryOptions>,
    kind: QueryKind,
}

/// The part of a query that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidQuery {
    Repo,
    Revision,
    Path,
    /// The query string is too long.
    TooLong,
}

impl InvalidQuery {
    /// Returns a description that fits on a badge.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Repo => "invalid name",
            Self::Revision => "invalid revision",
            Self::Path => "invalid path",
            Self::TooLong => "query too long",
        }
    }
}

impl WeightsQuery {
    /// Parses the repository name from a URL path, and the revision and path from a query string.
    pub(super) fn parse(repo: &str, query: &QueryString<'_>) -> Result<Self, InvalidQuery> {
        if query.is_too_long {
            return Err(InvalidQuery::TooLong);
        }
        let repo = percent_decode_str(repo).decode_utf8().map_err(|_| InvalidQuery::Repo)?;
        let repo = repo.parse().map_err(|_| InvalidQuery::Repo)?;
        let revision = query.get("revision").map(str::parse);
        let path = query.get("path").map(|path| path.trim_end_matches('/').parse());
        let context = query.get("context").and_then(parse_tokens);
        let memory = MemoryOptions { context, ..MemoryOptions::default() };
        let has_memory = context.is_some() || query.get("show") == Some("memory");
        Ok(Self {
            repo,
            revision: revision.transpose().map_err(|_| InvalidQuery::Revision)?,
            path: path.transpose().map_err(|_| InvalidQuery::Path)?,
            memory: Some(memory).filter(|_| has_memory),
            kind: QueryKind::Counts,
        })
    }

    /// Parses any text that names a repository, such as the URL of its page. A revision and a path in the query
    /// string take precedence.
    pub(super) fn from_source(
        text: &str,
        endpoint: &Endpoint,
        query: &QueryString<'_>,
    ) -> Result<Self, String> {
        let source = Source::parse(text, endpoint).map_err(|error| error.to_string())?;
        let Source::Repo { repo, revision, path } = source else {
            return Err("not a repository on the Hub".to_owned());
        };
        let given =
            Self::parse(repo.as_ref(), query).map_err(|invalid| invalid.as_str().to_owned())?;
        Ok(Self { revision: given.revision.or(revision), path: given.path.or(path), ..given })
    }

    /// Returns a query for the names of all sets of weights, at `commit` if it is known.
    pub(super) fn listing(&self, commit: Option<&CommitSha>) -> Self {
        let revision = commit.map(Revision::from).or_else(|| self.revision.clone());
        Self { revision, kind: QueryKind::Listing, ..self.clone() }
    }

    /// Returns a query for the details of counted weights, at `commit` if it is known.
    pub(super) fn details(&self, commit: Option<&CommitSha>) -> Self {
        Self { kind: QueryKind::Details, ..self.listing(commit) }
    }

    /// Returns the query for a commit, with a canonical spelling of the repository. `name` is its canonical name, if
    /// it differs from the requested one. Names on the Hub are unique regardless of case.
    pub(super) fn at_commit(&self, commit: &CommitSha, name: Option<&str>) -> Self {
        let name = name.map_or_else(|| self.repo.to_string(), str::to_owned).to_ascii_lowercase();
        let repo = name.parse().unwrap_or_else(|_| self.repo.clone());
        Self { repo, revision: Some(commit.into()), ..self.clone() }
    }

    pub(super) fn kind(&self) -> QueryKind {
        self.kind
    }

    /// Returns whether the query is for a repository. The Hub ignores letter case.
    pub(super) fn matches_repo(&self, repo: &str) -> bool {
        self.repo.as_ref().eq_ignore_ascii_case(repo)
    }

    pub(super) fn repo(&self) -> &RepoId {
        &self.repo
    }

    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_ref().map(Revision::as_str)
    }

    pub(super) fn path(&self) -> Option<&str> {
        self.path.as_ref().map(RepoPath::as_str)
    }

    /// Returns whether the revision is a commit, so that the result never changes.
    pub(super) fn is_pinned(&self) -> bool {
        self.revision().is_some_and(|revision| revision.parse::<CommitSha>().is_ok())
    }

    /// Returns the model to read, with as few requests as possible.
    pub(super) fn model(&self, client: &Client) -> Model {
        let model = client.source(self.source()).plan(Plan::Prefetch);
        self.memory.map_or(model.clone(), |memory| model.memory(memory))
    }

    /// Returns the source of the weights.
    pub(super) fn source(&self) -> Source {
        let Self { repo, revision, path, .. } = self.clone();
        Source::Repo { repo, revision, path }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        let texts = [Some(self.repo.name()), self.revision(), self.path()];
        size_of::<Self>() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }
}

/// The decoded parameters of a query string. The first value of a repeated name counts.
pub(super) struct QueryString<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// True if the string was too long to parse. A truncated query could have another meaning.
    is_too_long: bool,
}

impl<'a> QueryString<'a> {
    pub(super) fn parse(query: Option<&'a str>) -> Self {
        let is_too_long = query.is_some_and(|query| query.len() > MAX_QUERY_LENGTH);
        let query = query.filter(|_| !is_too_long).unwrap_or_default();
        let (mut names, pairs) = (HashSet::new(), form_urlencoded::parse(query.as_bytes()));
        let pairs = pairs.filter(|(name, _)| names.insert(name.clone())).collect();
        Self { pairs, is_too_long }
    }

    pub(super) fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a parameter, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs().find(|(found, _)| *found == name);
        found.map(|(_, value)| value).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(repo: &str, query: &str) -> Result<WeightsQuery, InvalidQuery> {
        WeightsQuery::parse(repo, &QueryString::parse(Some(query)))
    }

    #[test]
    fn equivalent_spellings_are_equal_queries() {
        assert_eq!(parse("org/name", "path="), parse("org%2Fname", "v=2"));
        assert_ne!(parse("org/name", "revision=v1"), parse("org/name", ""));
        assert!(parse("gpt2", &format!("revision={}", "1".repeat(40))).unwrap().is_pinned());
        assert!(!parse("gpt2", "revision=main").unwrap().is_pinned());
    }

    #[test]
    fn invalid_names_revisions_and_paths_are_rejected() {
        let cases = [
            ("a/b/c", "", InvalidQuery::Repo),
            ("", "", InvalidQuery::Repo),
            ("../etc/passwd", "", InvalidQuery::Repo),
            ("%2e%2e/x", "", InvalidQuery::Repo),
            ("a/%ff", "", InvalidQuery::Repo),
            ("a/b%0d%0aX:y", "", InvalidQuery::Repo),
            ("a/b", "revision=%0d%0aX:y", InvalidQuery::Revision),
            ("a/b", "path=../../c", InvalidQuery::Path),
            ("a/b", "path=%2e%2e%2fc", InvalidQuery::Path),
            ("a/b", "path=http://x", InvalidQuery::Path),
        ];
        for (repo, query, invalid) in cases {
            assert_eq!(parse(repo, query), Err(invalid), "{repo}?{query}");
        }
    }

    #[test]
    fn an_oversized_query_string_is_rejected() {
        let long = format!("revision=v1&label={}", "x".repeat(MAX_QUERY_LENGTH));
        assert_eq!(parse("a/b", &long), Err(InvalidQuery::TooLong));
    }

    #[test]
    fn the_first_value_of_a_parameter_counts() {
        let query = QueryString::parse(Some("revision=v1&label=a&revision=v2&label=b"));
        assert_eq!(query.pairs().collect::<Vec<_>>(), [("revision", "v1"), ("label", "a")]);
        assert_eq!(parse("a/b", "revision=&revision=v1"), parse("a/b", ""));
    }
}
