//! The source of weights: a repository, a URL or a local path.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;
use url::Url;

use crate::formats::safetensors::is_index_name;
use crate::formats::{Formats, PathError, RepoPath};
use crate::http::SafeUrl;
use crate::hub::{Endpoint, IdError, RepoId, Revision};

/// The location of a checkpoint: a repository on the Hub, a URL or a local path.
///
/// | text | source |
/// |---|---|
/// | `org/name`, `name`, `datasets/org/name` | a repository on the Hub |
/// | `org/name@revision` | a revision of a repository |
/// | `org/name:Q4_K_M` | a quantization in a repository |
/// | `hf://org/name@revision/path` | a file or folder in a repository |
/// | `https://huggingface.co/org/name[/{tree,blob,resolve,raw}/revision[/path]]` | a repository, revision and path |
/// | `https://huggingface.co/org/name?show_file_info=x.gguf` | a file in the viewer of the Hub |
/// | `https://huggingface.co/org/name/discussions/5` | the pull request with that number, `refs/pr/5` |
/// | `https://example.org/x.safetensors`, `…/x.safetensors.index.json` | a file on any server |
/// | `./folder`, `/folder`, `folder/`, `~/folder`, `x.safetensors`, `x.index.json`, `file://…` | a local file or folder |
///
/// `name` and `org/name` never refer to a local folder, so their meaning does not depend on the working directory.
/// Use `./name` or `name/` for a folder: a text that ends with a slash is never looked up on the Hub. `~` is the home
/// folder. The page of a file that contains no weights, such as a README, refers to its
/// repository. The scheme of `huggingface.co/…` and `hf.co/…` may be omitted.
///
/// The `Display` output parses back to the same source, except that secrets in a URL are omitted.
///
/// ```
/// use hf_meta::Source;
///
/// let pasted: Source = "https://huggingface.co/bigscience/bloom/tree/main/7b".parse()?;
/// assert_eq!(pasted.to_string(), "hf://bigscience/bloom@main/7b");
/// # Ok::<(), hf_meta::SourceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A repository on the Hub.
    Repo {
        /// The name of the repository.
        repo: RepoId,
        /// The revision; `None` means `main`.
        revision: Option<Revision>,
        /// A file or folder; `None` means the root folder.
        path: Option<RepoPath>,
    },
    /// A file on any web server.
    Url(Url),
    /// A local file or folder.
    Local(PathBuf),
}

/// The error returned when parsing a [`Source`] fails.
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

impl Source {
    /// Parses a source according to the table above. URLs on `endpoint` and on `huggingface.co` refer to
    /// repositories.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a valid repository, URL or path.
    pub fn parse(text: &str, endpoint: &Endpoint) -> Result<Self, SourceError> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                text if is_on_hub_host(text) => parse_url(&format!("https://{text}"), endpoint),
                text if is_local(text) => Ok(Self::Local(Self::local_path(text))),
                text => parse_repo(text),
            };
        };
        let unsupported = |reason| Err(SourceError::Url { reason });
        match scheme.to_ascii_lowercase().as_str() {
            "hf" if is_bucket(rest) => Err(BUCKET),
            "hf" => parse_hf(rest),
            "ms" => unsupported("repositories of ModelScope are not supported"),
            "file" => parse_file(text),
            "http" | "https" => parse_url(text, endpoint),
            _ => unsupported("the scheme is not `hf`, `https`, `http` or `file`"),
        }
    }

    /// Returns a local path, with the home folder in place of `~`, as in a shell.
    pub fn local_path(text: &str) -> PathBuf {
        let rest = text.strip_prefix('~');
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with(['/', '\\']));
        let Some((home, rest)) = std::env::home_dir().zip(rest) else { return text.into() };
        match rest.trim_start_matches(['/', '\\']) {
            "" => home,
            rest => home.join(rest),
        }
    }

    /// Returns the text from which this source was parsed, unless it may contain a password or a signature. Otherwise,
    /// returns the `Display` output.
    pub fn as_given(&self, text: &str) -> String {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_url = scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("hf"));
        if is_url && text.contains(['?', '@']) { self.to_string() } else { text.trim().to_owned() }
    }

    /// Sets the revision of this repository.
    pub(crate) fn with_revision(self, revision: &str) -> Result<Self, SourceError> {
        match self {
            Self::Repo { repo, path, .. } => {
                Ok(Self::Repo { repo, revision: Some(revision.parse()?), path })
            }
            other => Err(SourceError::NotARepo { text: other.to_string(), option: "revision" }),
        }
    }

    /// Appends the path of a file or folder to this repository or local folder.
    pub(crate) fn with_path(self, path: &str) -> Result<Self, SourceError> {
        match self {
            Self::Repo { repo, revision, .. } => {
                let path = path.trim_end_matches('/').parse()?;
                Ok(Self::Repo { repo, revision, path: Some(path) })
            }
            Self::Local(folder) => {
                let path: RepoPath = path.trim_end_matches('/').parse()?;
                Ok(Self::Local(folder.join(path.as_str())))
            }
            other => Err(SourceError::NotARepo { text: other.to_string(), option: "path" }),
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    /// Parses a source like [`Source::parse`], with the default endpoint.
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
        // Names contain no control characters, so only `%` needs encoding.
        let encoded = |text: &str| text.replace('%', "%25");
        match self {
            Self::Repo { repo, revision: None, path: None } => repo.fmt(f),
            Self::Repo { repo, revision: Some(revision), path: None } => {
                write!(f, "{repo}@{revision}")
            }
            Self::Repo { repo, revision, path: Some(path) } => {
                // The revision before a path is one segment. It is always written, because the first segment of the
                // path would otherwise look like part of a single-part name.
                let revision = revision.clone().unwrap_or_default();
                let revision = encoded(revision.as_str()).replace('/', "%2F");
                write!(f, "hf://{repo}@{revision}/{}", encoded(path.as_str()))
            }
            Self::Url(url) => SafeUrl::from(url).fmt(f),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

/// Formats the source like `Display`, without the secrets in a URL.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// The hosts of the public Hub. Their URLs are repositories with any endpoint, so an address copied from a browser
/// can be read through a mirror.
const PUBLIC_HUB_HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

/// A bucket has no commits, and its files have other URLs.
const BUCKET: SourceError =
    SourceError::Url { reason: "buckets of the Hub are not supported, only repositories" };

/// Returns whether the path of a `hf` URL or of a Hub page is a bucket: `buckets/org/name`.
fn is_bucket(path: &str) -> bool {
    path.strip_prefix("buckets/").is_some_and(|name| name.trim_end_matches('/').contains('/'))
}

/// Returns whether a text without a scheme is the URL of a page on the public Hub.
fn is_on_hub_host(text: &str) -> bool {
    let (host, _) = split_after(text, 1);
    PUBLIC_HUB_HOSTS.iter().any(|known| host.eq_ignore_ascii_case(known))
}

/// Returns whether a text without a scheme is a local path, judging by its start, its end or its file name. Shells
/// complete the names of folders with a slash, which no name of a repository ends with.
fn is_local(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\", "\\"];
    let is_on_a_drive = text.as_bytes().get(1) == Some(&b':');
    matches!(text, "." | "..")
        || is_on_a_drive
        || text.ends_with(['/', '\\'])
        || starts.iter().any(|start| text.starts_with(start))
        || is_weights(text)
}

fn parse_file(text: &str) -> Result<Source, SourceError> {
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    path.map(Source::Local).ok_or(SourceError::Url { reason: "it is not the URL of a local file" })
}

/// Parses `org/name`, `org/name@revision` or `org/name:quantization`. The revision may contain slashes.
fn parse_repo(text: &str) -> Result<Source, SourceError> {
    let (text, path) = split_quantization(text);
    let (repo, revision) = match text.split_once('@') {
        Some((_, "")) => return Err(SourceError::NoRevision),
        Some((repo, revision)) => (repo, Some(revision.parse()?)),
        None => (text, None),
    };
    Ok(Source::Repo { repo: repo.parse()?, revision, path: path.map(str::parse).transpose()? })
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
fn parse_hf(text: &str) -> Result<Source, SourceError> {
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

/// Parses an HTTP URL: a page or file on a Hub, or a file on another server.
fn parse_url(text: &str, endpoint: &Endpoint) -> Result<Source, SourceError> {
    let url = Url::parse(text).map_err(|_| SourceError::Url { reason: "it is malformed" })?;
    let Some(path) = hub_path(&url, endpoint) else { return Ok(Source::Url(url)) };
    let page = path.trim_matches('/');
    let source = if is_bucket(page) { Err(BUCKET) } else { parse_page(page) }?;
    match shown_file(&url) {
        Some(file) => source.with_path(&file),
        None => Ok(source),
    }
}

/// Returns the weight file that the viewer of the Hub shows, as in `/org/name?show_file_info=x.gguf`.
fn shown_file(url: &Url) -> Option<String> {
    let mut query = url.query_pairs();
    let (_, file) = query.find(|(name, _)| name == "show_file_info")?;
    is_weights(&file).then(|| file.into_owned())
}

/// The pages of a repository at a revision: `/{view}/{revision}[/{path}]`.
const VIEWS: [&str; 7] = ["tree", "blob", "resolve", "raw", "blame", "commit", "commits"];

/// Parses the path of a Hub page: `org/name[/{view}/{revision}[/{path}]]`, or `org/name/discussions/{N}`.
fn parse_page(page: &str) -> Result<Source, SourceError> {
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

/// Returns the path of a URL on the endpoint or on the public Hub; `None` for other servers.
fn hub_path<'a>(url: &'a Url, endpoint: &Endpoint) -> Option<&'a str> {
    if url.origin() == endpoint.url().origin() {
        let below = url.path().strip_prefix(endpoint.path())?;
        return (below.is_empty() || below.starts_with('/')).then_some(below);
    }
    PUBLIC_HUB_HOSTS.contains(&url.host_str()?).then(|| url.path())
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
) -> Result<Source, SourceError> {
    if revision == Some("") {
        return Err(SourceError::NoRevision);
    }
    let revision = revision.map(|revision| decode(revision)?.parse().map_err(SourceError::from));
    let (repo, quantization) = split_quantization(repo);
    let path = path.or(quantization);
    let path =
        path.map(|path| decode(path)?.trim_end_matches('/').parse().map_err(SourceError::from));
    Ok(Source::Repo {
        repo: repo.parse()?,
        revision: revision.transpose()?,
        path: path.transpose()?,
    })
}

fn decode(text: &str) -> Result<String, SourceError> {
    let invalid = SourceError::Url { reason: "the decoded path is not valid UTF-8" };
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| invalid)
}

#[cfg(test)]
mod tests;
