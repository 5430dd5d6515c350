//! What people paste, as one of the three things it can name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;
use url::Url;

use crate::http::SafeUrl;
use crate::hub::{Endpoint, IdError, RepoId, Revision};
use crate::safetensors::{PathError, RepoPath, names_index};

/// Hosts that are the Hub whatever the endpoint is, so that an address copied from a browser works
/// through a mirror too.
const HUB_HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

/// Where a set of weights is.
///
/// | text | names |
/// |---|---|
/// | `org/name`, `name`, `datasets/org/name` | a repo on the Hub |
/// | `org/name@revision` | a revision of it |
/// | `hf://org/name@revision/path` | a file or a folder in it |
/// | `https://huggingface.co/org/name[/tree\|/blob\|/resolve\|/raw/revision[/path]]` | the same |
/// | `https://example.org/x.safetensors`, `…/x.safetensors.index.json` | a file on any server |
/// | `./folder`, `/folder`, `x.safetensors`, `x.index.json`, `file://…` | a local file or folder |
///
/// A bare `name` or `org/name` is never a local folder, so that what it means does not depend on
/// where it is said; write `./name` for a folder. The page of a file that is not weights, such as a
/// README, names its repo.
///
/// `Display` gives a text that names the same, but for the secrets of a URL.
///
/// ```
/// use hf_meta::Source;
///
/// let pasted: Source = "https://huggingface.co/bigscience/bloom/tree/main/7b".parse()?;
/// assert_eq!(pasted.to_string(), "hf://bigscience/bloom@main/7b");
/// # Ok::<(), hf_meta::SourceError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A repo on the Hub.
    Repo {
        /// Its name.
        repo: RepoId,
        /// A revision of it; `main` where there is none.
        revision: Option<Revision>,
        /// A file or a folder in it; the whole repo where there is none.
        path: Option<RepoPath>,
    },
    /// A file on any server.
    Url(Url),
    /// A local file or folder.
    Local(PathBuf),
}

/// Why a text names no source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The part that should name a repo or a revision does not.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The part that should name a file in a repo does not.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A URL that is none, or of a scheme that is not read.
    #[error("not a URL that can be read: {reason}")]
    Url {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The text ends after the `@` that a revision should follow.
    #[error("a revision is missing after the `@`")]
    NoRevision,
    /// A revision or a path was given for something that is not a repo.
    #[error("`{text}` is not a repo, so it has no {what}")]
    NotARepo {
        /// The URL or the local path.
        text: String,
        /// What was given.
        what: &'static str,
    },
}

impl Source {
    /// The source that a text names, where `endpoint` is the Hub that is asked.
    ///
    /// # Errors
    ///
    /// When the text names none, with the part of it that is wrong.
    pub fn parse(text: &str, endpoint: &Endpoint) -> Result<Self, SourceError> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return if is_local(text) { Ok(Self::Local(text.into())) } else { parse_repo(text) };
        };
        match scheme.to_ascii_lowercase().as_str() {
            "hf" => parse_hf(rest),
            "file" => parse_file(text),
            "http" | "https" => parse_url(text, endpoint),
            _ => Err(SourceError::Url { reason: "its scheme is not hf, https, http or file" }),
        }
    }

    /// The same repo at another revision.
    pub(crate) fn with_revision(self, revision: &str) -> Result<Self, SourceError> {
        match self {
            Self::Repo { repo, path, .. } => {
                Ok(Self::Repo { repo, revision: Some(revision.parse()?), path })
            }
            other => Err(SourceError::NotARepo { text: other.to_string(), what: "revision" }),
        }
    }

    /// Another file or folder of the same repo.
    pub(crate) fn with_path(self, path: &str) -> Result<Self, SourceError> {
        match self {
            Self::Repo { repo, revision, .. } => {
                let path = path.trim_end_matches('/').parse()?;
                Ok(Self::Repo { repo, revision, path: Some(path) })
            }
            other => Err(SourceError::NotARepo { text: other.to_string(), what: "path" }),
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    /// As [`Source::parse`], with the Hub itself as the endpoint.
    fn from_str(text: &str) -> Result<Self, SourceError> {
        Self::parse(text, &Endpoint::default())
    }
}

impl From<RepoId> for Source {
    fn from(repo: RepoId) -> Self {
        Self::Repo { repo, revision: None, path: None }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All that would be read as something else: control characters are in neither part.
        let encoded = |text: &str| text.replace('%', "%25");
        match self {
            Self::Repo { repo, revision: None, path: None } => repo.fmt(f),
            Self::Repo { repo, revision: Some(revision), path: None } => {
                write!(f, "{repo}@{revision}")
            }
            Self::Repo { repo, revision, path: Some(path) } => {
                // Before a path, a revision is one part, and one-part names need one.
                let revision = revision.clone().unwrap_or_default();
                let revision = encoded(revision.as_str()).replace('/', "%2F");
                write!(f, "hf://{repo}@{revision}/{}", encoded(path.as_str()))
            }
            Self::Url(url) => SafeUrl::from(url).fmt(f),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

/// As `Display`, so without the secrets of a URL.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// Whether a text without a scheme is a local path: by its start, or by the name of its file.
fn is_local(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\", "\\"];
    let is_on_a_drive = text.as_bytes().get(1) == Some(&b':');
    matches!(text, "." | "..")
        || is_on_a_drive
        || starts.iter().any(|start| text.starts_with(start))
        || is_weights(text)
}

fn parse_file(text: &str) -> Result<Source, SourceError> {
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    path.map(Source::Local).ok_or(SourceError::Url { reason: "it is not the URL of a local file" })
}

/// `org/name` or `org/name@revision`, where the revision is all that follows.
fn parse_repo(text: &str) -> Result<Source, SourceError> {
    let (repo, revision) = match text.split_once('@') {
        Some((_, "")) => return Err(SourceError::NoRevision),
        Some((repo, revision)) => (repo, Some(revision.parse()?)),
        None => (text, None),
    };
    Ok(Source::Repo { repo: repo.parse()?, revision, path: None })
}

/// `org/name[@revision][/path]`. Without a revision the first two parts are the name, so a repo of
/// one part with a path needs the `@`.
fn parse_hf(text: &str) -> Result<Source, SourceError> {
    let text = text.strip_prefix("models/").unwrap_or(text).trim_end_matches('/');
    let (name, path) = split_after(text, 2 + kind_parts(text));
    // Behind the name an `@` is a character like any other.
    if !name.contains('@') {
        return repo_source(name, None, path);
    }
    let (repo, rest) = text.split_once('@').unwrap_or((text, ""));
    let (revision, path) = split_revision(rest);
    repo_source(repo, Some(revision), path)
}

/// A URL of a repo on a Hub, else of a file.
fn parse_url(text: &str, endpoint: &Endpoint) -> Result<Source, SourceError> {
    let url = Url::parse(text).map_err(|_| SourceError::Url { reason: "it is malformed" })?;
    match hub_path(&url, endpoint) {
        Some(path) => parse_page(path.trim_matches('/')),
        None => Ok(Source::Url(url)),
    }
}

/// A page of a repo: `org/name`, then a view, a revision and a path.
fn parse_page(page: &str) -> Result<Source, SourceError> {
    let is_view = |part: &str| matches!(part, "tree" | "blob" | "resolve" | "raw");
    let longest = 2 + kind_parts(page);
    // The files of a model whose name has one part are at `/gpt2/tree/main`.
    let has_short_name = page.split('/').nth(longest - 1).is_some_and(is_view);
    let (repo, rest) = split_after(page, longest - usize::from(has_short_name));
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((view, rest)) if is_view(view) => {
            let (revision, path) = split_revision(rest);
            let names_weights = |path: &&str| view == "tree" || is_weights(path);
            repo_source(repo, Some(revision), path.filter(names_weights))
        }
        // Other pages of a repo, such as its discussions, name the repo.
        _ => repo_source(repo, None, None),
    }
}

fn is_weights(path: &str) -> bool {
    path.ends_with(".safetensors") || names_index(path)
}

/// How many parts stand before the name of a repo that is not a model.
fn kind_parts(text: &str) -> usize {
    usize::from(text.starts_with("datasets/") || text.starts_with("spaces/"))
}

/// The path of a URL below the endpoint, or below the Hub itself.
fn hub_path<'a>(url: &'a Url, endpoint: &Endpoint) -> Option<&'a str> {
    if url.origin() == endpoint.origin() {
        let below = url.path().strip_prefix(endpoint.path())?;
        return (below.is_empty() || below.starts_with('/')).then_some(below);
    }
    HUB_HOSTS.contains(&url.host_str()?).then(|| url.path())
}

/// Splits a revision from the path after it. A revision is one part, with its slashes encoded, but
/// for the Hub's own refs, which people write as they are.
fn split_revision(text: &str) -> (&str, Option<&str>) {
    let parts =
        if text.starts_with("refs/pr/") || text.starts_with("refs/convert/") { 3 } else { 1 };
    split_after(text, parts)
}

/// Splits a text after so many parts; the second half is `None` where nothing is left.
fn split_after(text: &str, parts: usize) -> (&str, Option<&str>) {
    match text.match_indices('/').nth(parts - 1) {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..]).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

fn repo_source(
    repo: &str,
    revision: Option<&str>,
    path: Option<&str>,
) -> Result<Source, SourceError> {
    if revision == Some("") {
        return Err(SourceError::NoRevision);
    }
    let revision = revision.map(|revision| decode(revision)?.parse().map_err(SourceError::from));
    let path =
        path.map(|path| decode(path)?.trim_end_matches('/').parse().map_err(SourceError::from));
    Ok(Source::Repo {
        repo: repo.parse()?,
        revision: revision.transpose()?,
        path: path.transpose()?,
    })
}

fn decode(text: &str) -> Result<String, SourceError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| SourceError::Url { reason: "it is not UTF-8 when decoded" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_names_a_repo() {
        let cases = [
            ("gpt2", "gpt2"),
            (" bigscience/bloom ", "bigscience/bloom"),
            ("bigscience/bloom@v1.0", "bigscience/bloom@v1.0"),
            ("bigscience/bloom@refs/pr/1", "bigscience/bloom@refs/pr/1"),
            ("datasets/org/name", "datasets/org/name"),
            ("hf://gpt2", "gpt2"),
            ("hf://gpt2@main/model.safetensors", "hf://gpt2@main/model.safetensors"),
            ("hf://org/name/7b/x.safetensors", "hf://org/name@main/7b/x.safetensors"),
            ("hf://org/name@refs/pr/1/7b", "hf://org/name@refs%2Fpr%2F1/7b"),
            ("hf://org/name@refs%2Fpr%2F1/7b/", "hf://org/name@refs%2Fpr%2F1/7b"),
            ("hf://org/name/a@b.safetensors", "hf://org/name@main/a@b.safetensors"),
            ("hf://org/name@a%2Fb/50%25.safetensors", "hf://org/name@a%2Fb/50%25.safetensors"),
            ("HTTPS://huggingface.co/gpt2", "gpt2"),
            ("https://huggingface.co/org/name/blob/main/README.md", "org/name@main"),
            ("hf://models/org/name", "org/name"),
            ("hf://datasets/org/name/x.safetensors", "hf://datasets/org/name@main/x.safetensors"),
            ("https://huggingface.co/gpt2", "gpt2"),
            ("https://huggingface.co/gpt2/", "gpt2"),
            ("https://hf.co/org/name", "org/name"),
            ("https://huggingface.co/org/name?library=transformers#files", "org/name"),
            ("https://huggingface.co/org/name/discussions/3", "org/name"),
            ("https://huggingface.co/gpt2/tree/main", "gpt2@main"),
            ("https://huggingface.co/org/name/tree", "org/name"),
            ("https://huggingface.co/org/name/tree/main", "org/name@main"),
            ("https://huggingface.co/org/name/tree/main/7b/1", "hf://org/name@main/7b/1"),
            (
                "https://huggingface.co/org/name/tree/refs%2Fpr%2F1/7b",
                "hf://org/name@refs%2Fpr%2F1/7b",
            ),
            (
                "https://huggingface.co/org/name/blob/main/x%20y.safetensors",
                "hf://org/name@main/x y.safetensors",
            ),
            (
                "https://huggingface.co/org/name/resolve/main/x.safetensors?download=true",
                "hf://org/name@main/x.safetensors",
            ),
            (
                "https://huggingface.co/datasets/org/name/blob/main/x.safetensors",
                "hf://datasets/org/name@main/x.safetensors",
            ),
        ];
        for (text, shown) in cases {
            let source: Source = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(matches!(source, Source::Repo { .. }), "{text}");
            assert_eq!(source.to_string(), shown, "{text}");
            let again: Source = shown.parse().unwrap();
            assert_eq!(
                (again.clone().with_revision("x"), again.to_string()),
                (source.with_revision("x"), shown.to_owned())
            );
        }
    }

    #[test]
    fn urls_below_the_endpoint_are_repos_of_it() {
        let endpoint = Endpoint::parse("https://repo.example/api/hf").unwrap();
        let cases = [
            ("https://repo.example/api/hf/org/name/tree/main", "org/name@main"),
            ("https://huggingface.co/org/name", "org/name"),
        ];
        for (text, shown) in cases {
            let source = Source::parse(text, &endpoint).unwrap();
            assert!(matches!(source, Source::Repo { .. }));
            assert_eq!(source.to_string(), shown);
        }
        let elsewhere =
            Source::parse("https://repo.example/files/x.safetensors", &endpoint).unwrap();
        assert!(matches!(elsewhere, Source::Url(_)));
    }

    #[test]
    fn files_elsewhere() {
        for text in [
            "https://example.org/x.safetensors",
            "http://127.0.0.1:1/a/model.safetensors.index.json?sig=s3cr3t",
        ] {
            let source: Source = text.parse().unwrap();
            assert!(matches!(source, Source::Url(_)), "{text}");
            assert!(!source.to_string().contains("s3cr3t"));
        }
    }

    #[test]
    fn local_paths() {
        let cases = [
            (".", PathBuf::from(".")),
            ("./gpt2", PathBuf::from("./gpt2")),
            ("/models/gpt2", PathBuf::from("/models/gpt2")),
            ("model.safetensors", PathBuf::from("model.safetensors")),
            ("x.index.json", PathBuf::from("x.index.json")),
            ("a/b/model.safetensors.index.json", PathBuf::from("a/b/model.safetensors.index.json")),
            ("file:///models/gpt%202", PathBuf::from("/models/gpt 2")),
        ];
        for (text, path) in cases {
            assert_eq!(text.parse(), Ok(Source::Local(path)), "{text}");
        }
    }

    #[test]
    fn what_names_nothing() {
        let cases = [
            "",
            "a/b/c",
            "gpt2@",
            "@main",
            "org/name@\n",
            "hf://",
            "hf://org/name@",
            "hf://org/name@/x",
            "hf://org/name@main/../x",
            "hf://org/name@main/%2e%2e/x",
            "hf://org/name/%ff",
            "ftp://x/y",
            "https://",
            "https://huggingface.co",
            "https://huggingface.co/org/name/blob/main/..%2Fx.safetensors",
            "s3://bucket/x",
            "file://x",
        ];
        for text in cases {
            assert!(text.parse::<Source>().is_err(), "{text:?}: {:?}", text.parse::<Source>());
        }
    }
}
