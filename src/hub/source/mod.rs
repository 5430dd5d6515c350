//! The source of weights: a repository, a URL or a local path.

mod parse;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use url::Url;

use crate::formats::{PathError, RepoPath};
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
/// | `./folder`, `/folder`, `x.safetensors`, `x.index.json`, `file://…` | a local file or folder |
///
/// A slash after the name of a repository is ignored. `name` and `org/name` never refer to a local folder, so their meaning does not depend on the working directory.
/// Use `./name` for a folder. The page of a file that contains no weights, such as a README, refers to its
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
        parse::parse(text, endpoint)
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

#[cfg(test)]
mod tests;
