//! What people paste, as one of the three things it can name.

mod grammar;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use url::Url;

use crate::formats::{PathError, RepoPath};
use crate::http::SafeUrl;
use crate::hub::{Endpoint, IdError, RepoId, Revision};

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
        grammar::parse(text, endpoint)
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

#[cfg(test)]
mod tests;
