//! A repository as people write it: its name, a URL, or the address of one of its pages.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::formats::safetensors::is_index_name;
use crate::formats::{Formats, PathError, RepoPath};
use crate::ids::{IdError, RepoId, Revision};

/// A repository on a Hub, and the part of it to read.
///
/// ```
/// use hf_meta_format::RepoSource;
///
/// let page = RepoSource::from_page("bigscience/bloom/tree/main/7b", None)?;
/// assert_eq!(page.to_string(), "hf://bigscience/bloom@main/7b");
/// assert_eq!(page, "hf://bigscience/bloom@main/7b".parse()?);
/// # Ok::<(), hf_meta_format::SourceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoSource {
    /// The name of the repository.
    pub repo: RepoId,
    /// The revision; `None` means `main`.
    pub revision: Option<Revision>,
    /// A file, a folder or a quantization; `None` means the root folder.
    pub path: Option<RepoPath>,
}

/// The error returned when parsing a source of weights fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The repository name or the revision is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The path in the repository is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The URL is invalid, or its scheme is unsupported.
    #[error("invalid URL: {reason}")]
    Url {
        /// The violated rule.
        reason: &'static str,
    },
    /// The revision after `@` is missing.
    #[error("the revision after `@` is missing")]
    NoRevision,
    /// A revision was set for a source that is not a repository, or a path was set for a URL.
    #[error("cannot set a {option} for `{text}`")]
    NotARepo {
        /// The URL or the local path.
        text: String,
        /// The option: `revision` or `path`.
        option: &'static str,
    },
}

/// The hosts of the public Hub. Their URLs are repositories with any endpoint, so an address copied from a browser
/// can be read through a mirror.
pub const PUBLIC_HUB_HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

/// Returns whether a text without a scheme is a local path, judging by its start, its end or its file name. Names of
/// repositories never are, so their meaning does not depend on the working directory. Shells complete the names of
/// folders with a slash, which no name of a repository ends with.
pub fn is_local_path(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\", "\\"];
    let is_on_a_drive = text.as_bytes().get(1) == Some(&b':');
    matches!(text, "." | "..")
        || is_on_a_drive
        || text.ends_with(['/', '\\'])
        || starts.iter().any(|start| text.starts_with(start))
        || is_weights(text)
}

impl RepoSource {
    /// Parses the path of a page on the Hub, without its host: `org/name[/{view}/{revision}[/{path}]]`, or
    /// `org/name/discussions/{number}`, which is the pull request with this number. The page of a file that contains no
    /// weights means its repository. `shown` is the query parameter `show_file_info`: a file in the viewer of the Hub.
    ///
    /// # Errors
    ///
    /// Returns an error if the page does not belong to a repository.
    pub fn from_page(page: &str, shown: Option<&str>) -> Result<Self, SourceError> {
        let page = page.trim_matches('/');
        let source = if is_bucket(page) { Err(BUCKET) } else { parse_page(page) }?;
        match shown.filter(|file| is_weights(file)) {
            Some(file) => source.with_path(file),
            None => Ok(source),
        }
    }

    /// Sets the revision.
    ///
    /// # Errors
    ///
    /// Returns an error if the revision is invalid.
    pub fn with_revision(self, revision: &str) -> Result<Self, SourceError> {
        Ok(Self { revision: Some(revision.parse()?), ..self })
    }

    /// Sets the path. A slash at its end is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is invalid.
    pub fn with_path(self, path: &str) -> Result<Self, SourceError> {
        Ok(Self { path: Some(path.trim_end_matches('/').parse()?), ..self })
    }
}

impl FromStr for RepoSource {
    type Err = SourceError;

    /// Parses `org/name`, `org/name@revision`, `org/name:quantization` or `hf://org/name@revision/path`.
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let Some((scheme, rest)) = text.split_once("://") else { return parse_repo(text) };
        let unsupported = |reason| Err(SourceError::Url { reason });
        match scheme.to_ascii_lowercase().as_str() {
            "hf" if is_bucket(rest) => Err(BUCKET),
            "hf" => parse_hf(rest),
            "ms" => unsupported("repositories of ModelScope are not supported"),
            _ => unsupported("the scheme is not `hf`, `https`, `http` or `file`"),
        }
    }
}

impl fmt::Display for RepoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names contain no control characters, so only `%` needs encoding.
        let encoded = |text: &str| text.replace('%', "%25");
        match self {
            Self { repo, revision: None, path: None } => repo.fmt(f),
            Self { repo, revision: Some(revision), path: None } => write!(f, "{repo}@{revision}"),
            Self { repo, revision, path: Some(path) } => {
                // The revision before a path is one segment. It is always written, because the first segment of the
                // path would otherwise look like part of a single-part name.
                let revision = revision.clone().unwrap_or_default();
                let revision = encoded(revision.as_str()).replace('/', "%2F");
                write!(f, "hf://{repo}@{revision}/{}", encoded(path.as_str()))
            }
        }
    }
}

/// A bucket has no commits, and its files have other URLs.
const BUCKET: SourceError =
    SourceError::Url { reason: "buckets of the Hub are not supported, only repositories" };

/// Returns whether the path of a `hf` URL or of a Hub page is a bucket: `buckets/org/name`.
fn is_bucket(path: &str) -> bool {
    path.strip_prefix("buckets/").is_some_and(|name| name.trim_end_matches('/').contains('/'))
}

/// Parses `org/name`, `org/name@revision` or `org/name:quantization`. The revision may contain slashes.
fn parse_repo(text: &str) -> Result<RepoSource, SourceError> {
    let (text, path) = split_quantization(text);
    let (repo, revision) = match text.split_once('@') {
        Some((_, "")) => return Err(SourceError::NoRevision),
        Some((repo, revision)) => (repo, Some(revision.parse()?)),
        None => (text, None),
    };
    Ok(RepoSource { repo: repo.parse()?, revision, path: path.map(str::parse).transpose()? })
}

/// Splits a quantization from a repository, as in `org/name-GGUF:Q4_K_M`, the form of llama.cpp and Ollama. The error
/// for an unknown one lists those that exist.
fn split_quantization(text: &str) -> (&str, Option<&str>) {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match text.rsplit_once(':') {
        Some((repo, name)) if is_name(name) => (repo, Some(name)),
        _ => (text, None),
    }
}

/// Parses `org/name[@revision][/path]`. Without a revision the first two segments are the name, so a single-part name
/// with a path needs a revision.
fn parse_hf(text: &str) -> Result<RepoSource, SourceError> {
    let text = text.strip_prefix("models/").unwrap_or(text).trim_end_matches('/');
    let (name, path) = split_after(text, 2 + kind_segments(text));
    // After the name, `@` is an ordinary path character.
    if !name.contains('@') {
        return repo_source(name, None, path);
    }
    let (repo, rest) = text.split_once('@').unwrap_or((text, ""));
    let (revision, path) = split_revision(rest);
    repo_source(repo, Some(revision), path)
}

/// The pages of a repository at a revision: `/{view}/{revision}[/{path}]`.
const VIEWS: [&str; 7] = ["tree", "blob", "resolve", "raw", "blame", "commit", "commits"];

/// Parses the path of a Hub page: `org/name[/{view}/{revision}[/{path}]]`, or `org/name/discussions/{N}`.
fn parse_page(page: &str) -> Result<RepoSource, SourceError> {
    let is_view = |part: &str| VIEWS.contains(&part) || part == "discussions";
    let max_segments = 2 + kind_segments(page);
    // Models with a single-part name have pages such as `/gpt2/tree/main`.
    let has_short_name = page.split('/').nth(max_segments - 1).is_some_and(is_view);
    let (repo, rest) = split_after(page, max_segments - usize::from(has_short_name));
    match rest.and_then(|rest| rest.split_once('/')) {
        // Pull requests are discussions and share their numbering.
        Some(("discussions", rest)) => {
            let (number, _) = split_after(rest, 1);
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let revision = is_number.then(|| format!("refs/pr/{number}"));
            repo_source(repo, revision.as_deref(), None)
        }
        Some((view, rest)) if is_view(view) => {
            let (revision, path) = split_revision(rest);
            let has_weights = |path: &&str| view == "tree" || is_weights(path);
            repo_source(repo, Some(revision), path.filter(has_weights))
        }
        // Other pages, such as the list of discussions, mean the repository.
        _ => repo_source(repo, None, None),
    }
}

fn is_weights(path: &str) -> bool {
    Formats::built_in().find(path).is_some() || is_index_name(path)
}

/// Returns the number of segments before the name of a repository: 1 for datasets and spaces, 0 for models.
fn kind_segments(text: &str) -> usize {
    usize::from(text.starts_with("datasets/") || text.starts_with("spaces/"))
}

/// Splits a revision from the path after it. A revision is one segment with encoded slashes. The Hub's references,
/// `refs/pr/N` and `refs/convert/X`, are an exception, because people write them without encoding.
fn split_revision(text: &str) -> (&str, Option<&str>) {
    let segments =
        if text.starts_with("refs/pr/") || text.starts_with("refs/convert/") { 3 } else { 1 };
    split_after(text, segments)
}

/// Splits a text after `segments` segments. The second part is `None` if nothing follows.
fn split_after(text: &str, segments: usize) -> (&str, Option<&str>) {
    match text.match_indices('/').nth(segments - 1) {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..]).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

fn repo_source(
    repo: &str,
    revision: Option<&str>,
    path: Option<&str>,
) -> Result<RepoSource, SourceError> {
    if revision == Some("") {
        return Err(SourceError::NoRevision);
    }
    let revision = revision.map(|revision| decode(revision)?.parse().map_err(SourceError::from));
    let (repo, quantization) = split_quantization(repo);
    let path = path.or(quantization);
    let path =
        path.map(|path| decode(path)?.trim_end_matches('/').parse().map_err(SourceError::from));
    Ok(RepoSource { repo: repo.parse()?, revision: revision.transpose()?, path: path.transpose()? })
}

fn decode(text: &str) -> Result<String, SourceError> {
    let invalid = SourceError::Url { reason: "the decoded path is not valid UTF-8" };
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| invalid)
}
