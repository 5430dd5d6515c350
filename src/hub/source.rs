//! The source of weights: a repository, a URL or a local path.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hf_meta_format::formats::RepoPath;
use url::Url;

use crate::http::SafeUrl;
use crate::hub::{
    Endpoint, PUBLIC_HUB_HOSTS, RepoId, RepoSource, Revision, SourceError, is_local_path,
};

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

impl Source {
    /// Parses a source according to the table above. URLs on `endpoint` and on `huggingface.co` refer to
    /// repositories.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a valid repository, URL or path.
    pub fn parse(text: &str, endpoint: &Endpoint) -> Result<Self, SourceError> {
        let text = text.trim();
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("file") => parse_file(text),
            Some("http" | "https") => parse_url(text, endpoint),
            None if is_on_hub_host(text) => parse_url(&format!("https://{text}"), endpoint),
            None if is_local_path(text) => Ok(Self::Local(Self::local_path(text))),
            _ => text.parse().map(|source: RepoSource| source.into()),
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

impl From<RepoSource> for Source {
    fn from(RepoSource { repo, revision, path }: RepoSource) -> Self {
        Self::Repo { repo, revision, path }
    }
}

impl From<RepoId> for Source {
    fn from(repo: RepoId) -> Self {
        Self::Repo { repo, revision: None, path: None }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clone() {
            Self::Repo { repo, revision, path } => RepoSource { repo, revision, path }.fmt(f),
            Self::Url(url) => SafeUrl::from(&url).fmt(f),
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

/// Returns whether a text without a scheme is the URL of a page on the public Hub.
fn is_on_hub_host(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    PUBLIC_HUB_HOSTS.iter().any(|known| host.eq_ignore_ascii_case(known))
}

fn parse_file(text: &str) -> Result<Source, SourceError> {
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    path.map(Source::Local).ok_or(SourceError::Url { reason: "it is not the URL of a local file" })
}

/// Parses an HTTP URL: a page or file on a Hub, or a file on another server.
fn parse_url(text: &str, endpoint: &Endpoint) -> Result<Source, SourceError> {
    let url = Url::parse(text).map_err(|_| SourceError::Url { reason: "it is malformed" })?;
    let Some(page) = hub_path(&url, endpoint) else { return Ok(Source::Url(url)) };
    let shown = url.query_pairs().find(|(name, _)| name == "show_file_info");
    RepoSource::from_page(page, shown.as_ref().map(|(_, file)| &**file)).map(Source::from)
}

/// Returns the path of a URL on the endpoint or on the public Hub; `None` for other servers.
fn hub_path<'a>(url: &'a Url, endpoint: &Endpoint) -> Option<&'a str> {
    if url.origin() == endpoint.url().origin() {
        let below = url.path().strip_prefix(endpoint.path())?;
        return (below.is_empty() || below.starts_with('/')).then_some(below);
    }
    PUBLIC_HUB_HOSTS.contains(&url.host_str()?).then(|| url.path())
}

#[cfg(test)]
mod tests;
