//! Parses queries for the weights of a repository.

use std::borrow::Cow;
use std::collections::HashSet;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use hf_meta::{Client, Model};
use hf_meta::{CommitSha, Endpoint, RepoId, Revision, Source};
use hf_meta_badge::Metric;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::Plan;
use hf_meta_format::formats::RepoPath;

use super::failure::Failure;

/// The maximum length of a query string in bytes. Longer ones are rejected.
const MAX_QUERY_LENGTH: usize = 4_096;

/// A query for the weights of a repository, optionally at a revision and below a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WeightsQuery {
    repo: RepoId,
    revision: Option<Revision>,
    path: Option<RepoPath>,
    /// The conditions for which the memory of the model is requested.
    memory: Option<MemoryOptions>,
    /// `true` if the answer of an engine is requested.
    has_engine: bool,
}

/// The parameters of the memory, which are the options of the command: the name in [`MemoryOptions::set`], and the reason on
/// a badge if the value is invalid.
const CONDITIONS: [(&str, &str, &str); 11] = [
    ("engine", "engine", "invalid engine"),
    ("gpu", "gpu", "invalid gpu"),
    ("pp", "pp", "invalid pp"),
    ("tp", "tp", "invalid tp"),
    ("fit", "budget", "invalid size"),
    ("context", "context", "invalid context"),
    ("batch", "batch", "invalid batch"),
    ("cache-dtype", "cacheDtype", "invalid dtype"),
    ("reserve", "reserve", "invalid size"),
    ("max-num-batched-tokens", "maxNumBatchedTokens", "invalid tokens"),
    ("gpu-memory-utilization", "gpuMemoryUtilization", "invalid share"),
];

/// Returns the conditions for the memory of a model, if it is requested.
fn conditions(query: &QueryString<'_>) -> Result<Option<MemoryOptions>, Failure> {
    let mut memory = MemoryOptions::default();
    let mut has_memory = query.get("show") == Some("memory");
    for (name, option, reason) in CONDITIONS {
        let Some(value) = query.get(name) else { continue };
        let invalid = |error| Failure::invalid_option(reason, format!("`{name}`: {error}"));
        memory.set(option, value).map_err(invalid)?;
        has_memory |= matches!(name, "engine" | "gpu" | "fit" | "context");
    }
    memory.finish().map_err(|error| Failure::invalid_option("invalid options", error))?;
    Ok(has_memory.then_some(memory))
}

impl WeightsQuery {
    /// Parses the repository name from a URL path, and the revision and path from a query string.
    pub(super) fn parse(repo: &str, query: &QueryString<'_>) -> Result<Self, Failure> {
        if query.is_too_long {
            return Err(Failure::query_too_long());
        }
        let invalid = |reason| Failure::invalid(reason, reason);
        let repo = percent_decode_str(repo).decode_utf8().ok();
        let repo =
            repo.and_then(|repo| repo.parse().ok()).ok_or_else(|| invalid("invalid name"))?;
        let revision = query.get("revision").map(str::parse).transpose();
        let path = query.get("path").map(|path| path.trim_end_matches('/').parse()).transpose();
        Ok(Self {
            repo,
            revision: revision.map_err(|_| invalid("invalid revision"))?,
            path: path.map_err(|_| invalid("invalid path"))?,
            memory: conditions(query)?,
            has_engine: query.get("engine").is_some(),
        })
    }

    /// Parses any text that names a repository, such as the URL of its page. A revision and a path in the query
    /// string take precedence.
    pub(super) fn from_source(
        text: &str,
        endpoint: &Endpoint,
        query: &QueryString<'_>,
    ) -> Result<Self, Failure> {
        let invalid = |error: &str| Failure::invalid("invalid name", error);
        let source = Source::parse(text, endpoint).map_err(|error| invalid(&error.to_string()))?;
        let Source::Repo { repo, revision, path } = source else {
            return Err(invalid("not a repository on the Hub"));
        };
        let given = Self::parse(repo.as_ref(), query)?;
        Ok(Self { revision: given.revision.or(revision), path: given.path.or(path), ..given })
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
        client.source(self.source()).plan(Plan::Prefetch)
    }

    /// Returns the conditions for which to compute the memory of the model, if it is requested.
    pub(super) fn memory(&self) -> Option<MemoryOptions> {
        self.memory
    }

    /// Returns whether the answer of an engine is requested.
    pub(super) fn has_engine(&self) -> bool {
        self.has_engine
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
    pub(super) is_too_long: bool,
}

impl<'a> QueryString<'a> {
    pub(super) fn parse(query: Option<&'a str>) -> Self {
        let is_too_long = query.is_some_and(|query| query.len() > MAX_QUERY_LENGTH);
        let query = if is_too_long { "" } else { query.unwrap_or_default() };
        let (mut names, pairs) = (HashSet::new(), form_urlencoded::parse(query.as_bytes()));
        let pairs = pairs.filter(|(name, _)| names.insert(name.clone())).collect();
        Self { pairs, is_too_long }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the requested metric, or the default if there is none with this name.
    pub(super) fn metric(&self) -> Metric {
        self.get("show").and_then(|name| name.parse().ok()).unwrap_or_default()
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

    /// Parses a query, or returns the reason on the badge.
    fn parse(repo: &str, query: &str) -> Result<WeightsQuery, String> {
        let parsed = WeightsQuery::parse(repo, &QueryString::parse(Some(query)));
        parsed.map_err(|failure| failure.badge(Metric::Params).message)
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
            ("a/b/c", "", "invalid name"),
            ("", "", "invalid name"),
            ("../etc/passwd", "", "invalid name"),
            ("%2e%2e/x", "", "invalid name"),
            ("a/%ff", "", "invalid name"),
            ("a/b%0d%0aX:y", "", "invalid name"),
            ("a/b", "revision=%0d%0aX:y", "invalid revision"),
            ("a/b", "path=../../c", "invalid path"),
            ("a/b", "path=%2e%2e%2fc", "invalid path"),
            ("a/b", "path=http://x", "invalid path"),
            ("a/b", "fit=24", "invalid size"),
            ("a/b", "context=bogus", "invalid context"),
            ("a/b", "engine=tgi", "invalid engine"),
            ("a/b", "engine=vllm&gpu=h1000", "invalid gpu"),
            ("a/b", "engine=vllm&tp=0", "invalid tp"),
            ("a/b", "engine=vllm&tp=99999999999999999999", "invalid tp"),
            ("a/b", "engine=llama.cpp&tp=2", "invalid options"),
            ("a/b", "engine=vllm&gpu=h100&fit=80GB", "invalid options"),
        ];
        for (repo, query, invalid) in cases {
            assert_eq!(parse(repo, query), Err(invalid.to_owned()), "{repo}?{query}");
        }
    }

    #[test]
    fn an_oversized_query_string_is_rejected() {
        let long = format!("revision=v1&label={}", "x".repeat(MAX_QUERY_LENGTH));
        assert_eq!(parse("a/b", &long), Err("query too long".to_owned()));
    }

    #[test]
    fn the_first_value_of_a_parameter_counts() {
        let query = QueryString::parse(Some("revision=v1&label=a&revision=v2&label=b"));
        assert_eq!(query.pairs().collect::<Vec<_>>(), [("revision", "v1"), ("label", "a")]);
        assert_eq!(parse("a/b", "revision=&revision=v1"), parse("a/b", ""));
    }
}
