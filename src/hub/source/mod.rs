//! The source of weights that a text names: a repository, a URL or a local path.

mod grammar;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use url::Url;

use crate::formats::{PathError, RepoPath};
use crate::http::SafeUrl;
use crate::hub::{Endpoint, IdError, RepoId, Revision};

/// The source of a set of weights: a repository on the Hub, a URL or a local path.
///
/// | text | source |
/// |---|---|
/// | `org/name`, `name`, `datasets/org/name` | a repository on the Hub |
/// | `org/name@revision` | a revision of a repository |
/// | `hf://org/name@revision/path` | a file or folder in a repository |
/// | `https://huggingface.co/org/name[/tree\|/blob\|/resolve\|/raw/revision[/path]]` | a repository, revision, file or folder, as the page shows it |
/// | `https://huggingface.co/org/name/discussions/5` | the pull request of that number, `refs/pr/5` |
/// | `https://example.org/x.safetensors`, `…/x.safetensors.index.json` | a file on any server |
/// | `./folder`, `/folder`, `x.safetensors`, `x.index.json`, `file://…` | a local file or folder |
///
/// `name` and `org/name` never mean a local folder, so that their meaning does not depend on the working
/// directory. Use `./name` for a folder. The page of a file without weights, such as a README, means its
/// repository. The scheme of `huggingface.co/…` and `hf.co/…` may be left out.
///
/// `Display` writes a text that parses to the same source, except that secrets in a URL are left out.
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

/// An error parsing a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The repository name or the revision is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The path in the repository is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The URL is invalid, or its scheme is not supported.
    #[error("invalid URL: {reason}")]
    Url {
        /// The rule that the URL breaks.
        reason: &'static str,
    },
    /// No revision follows the `@`.
    #[error("the revision after `@` is missing")]
    NoRevision,
    /// A revision was set for a URL or a local path, or a path for a URL.
    #[error("a {option} cannot be set for `{text}`")]
    NotARepo {
        /// The URL or the local path.
        text: String,
        /// The option: `revision` or `path`.
        option: &'static str,
    },
}

impl Source {
    /// Parses a text by the table above. URLs of `endpoint` and of `huggingface.co` become repositories.
    ///
    /// # Errors
    ///
    /// If the text is not a repository, URL or path.
    pub fn parse(text: &str, endpoint: &Endpoint) -> Result<Self, SourceError> {
        grammar::parse(text, endpoint)
    }

    /// Returns this repository at another revision.
    pub(crate) fn with_revision(self, revision: &str) -> Result<Self, SourceError> {
        match self {
            Self::Repo { repo, path, .. } => {
                Ok(Self::Repo { repo, revision: Some(revision.parse()?), path })
            }
            other => Err(SourceError::NotARepo { text: other.to_string(), option: "revision" }),
        }
    }

    /// Returns a file or folder in this repository or local folder.
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

    /// Parses a text like [`Source::parse`], with the default endpoint.
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
        // Names contain no control characters, so `%` is the only character that parsing would change.
        let encoded = |text: &str| text.replace('%', "%25");
        match self {
            Self::Repo { repo, revision: None, path: None } => repo.fmt(f),
            Self::Repo { repo, revision: Some(revision), path: None } => {
                write!(f, "{repo}@{revision}")
            }
            Self::Repo { repo, revision, path: Some(path) } => {
                // Before a path, a revision is one segment. It is always written, because the first
                // segment of the path would look like a part of a one-part name.
                let revision = revision.clone().unwrap_or_default();
                let revision = encoded(revision.as_str()).replace('/', "%2F");
                write!(f, "hf://{repo}@{revision}/{}", encoded(path.as_str()))
            }
            Self::Url(url) => SafeUrl::from(url).fmt(f),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

/// Writes the same text as `Display`, without the secrets of a URL.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

#[cfg(test)]
mod tests;
