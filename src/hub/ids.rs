//! Names of repos, revisions and commits. Each type is proof that its text was checked.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::formats::clip;

/// What a repo holds; the Hub keeps each kind under a path of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepoKind {
    /// A model, `org/name`.
    #[default]
    Model,
    /// A dataset, `datasets/org/name`.
    Dataset,
    /// A space, `spaces/org/name`.
    Space,
}

impl RepoKind {
    /// What stands before the name in a URL: empty for models.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
            Self::Space => "spaces/",
        }
    }

    /// What the Hub's API and its cache call repos of this kind.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
            Self::Space => "spaces",
        }
    }
}

/// The name of a repo: `org/name`, the `name` alone of some old models, or either after `datasets/`
/// or `spaces/`.
///
/// The rules are those of `huggingface_hub`: letters, digits, `-`, `_` and `.`, at most 96 of them
/// in a part, neither `--` nor `..`, and neither `-` nor `.` at either end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoId {
    kind: RepoKind,
    name: Box<str>,
}

/// Why a text is not the name of a repo, a revision or a commit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {what}: {reason}")]
#[non_exhaustive]
pub struct IdError {
    /// The text, cut to 200 characters.
    pub text: String,
    /// What it should have been.
    pub what: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl RepoId {
    /// What the repo holds.
    #[must_use]
    pub fn kind(&self) -> RepoKind {
        self.kind
    }

    /// `org/name`, without the kind.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for RepoId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let kinds = [RepoKind::Dataset, RepoKind::Space];
        let of_kind =
            kinds.into_iter().find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)));
        let (kind, name) = of_kind.unwrap_or((RepoKind::Model, text));
        let reason = match name.split_once('/') {
            Some((org, name)) => part_flaw(org).or_else(|| part_flaw(name)),
            None => part_flaw(name),
        };
        match reason {
            None => Ok(Self { kind, name: name.into() }),
            Some(reason) => Err(IdError { text: clip(text), what: "the name of a repo", reason }),
        }
    }
}

/// What keeps a text from being one part of a repo's name.
fn part_flaw(part: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if part.is_empty() {
        Some("a part of it is empty")
    } else if part.contains('/') {
        Some("it has more than two parts")
    } else if part.len() > 96 {
        Some("a part of it is longer than 96 characters")
    } else if !part.chars().all(allowed) {
        Some("only letters, digits, `-`, `_` and `.` may stand in it")
    } else if part.contains("--") || part.contains("..") {
        Some("neither `--` nor `..` may stand in it")
    } else if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) {
        Some("no part of it may start or end with `-` or `.`")
    } else {
        None
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.kind.prefix(), self.name))
    }
}

/// A branch, a tag, a ref such as `refs/pr/1`, or a commit. `main` by default.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(Box<str>);

impl Revision {
    const LONGEST: usize = 255;

    /// The revision as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Revision {
    fn default() -> Self {
        Self("main".into())
    }
}

impl From<&CommitSha> for Revision {
    fn from(commit: &CommitSha) -> Self {
        Self(commit.0.clone())
    }
}

impl FromStr for Revision {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let reason = if text.is_empty() {
            "it is empty"
        } else if text.len() > Self::LONGEST {
            "it is longer than 255 bytes"
        } else if text.contains(char::is_control) {
            "it holds a control character"
        } else if matches!(text, "." | "..") {
            "it is a relative path"
        } else {
            return Ok(Self(text.into()));
        };
        Err(IdError { text: clip(text), what: "a revision", reason })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A commit by its full hash, 40 lower-case hexadecimal digits: what a revision was at the time of
/// the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct CommitSha(Box<str>);

impl CommitSha {
    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CommitSha {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 40 && text.bytes().all(is_digit) {
            Ok(Self(text.into()))
        } else {
            Err(IdError {
                text: clip(text),
                what: "a commit",
                reason: "it is not 40 hexadecimal digits",
            })
        }
    }
}

impl fmt::Display for CommitSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_repos() {
        for name in [
            "gpt2",
            "bigscience/bloom",
            "Qwen/Qwen2.5-7B_x",
            "datasets/org/name",
            "spaces/org/name",
        ] {
            assert_eq!(name.parse::<RepoId>().unwrap().to_string(), name);
        }
        let dataset: RepoId = "datasets/org/name".parse().unwrap();
        assert_eq!((dataset.kind(), dataset.name()), (RepoKind::Dataset, "org/name"));
    }

    #[test]
    fn what_is_no_name_of_a_repo() {
        let long = "a".repeat(97);
        let cases = [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "a//b",
            "../a",
            "a/..",
            "a b",
            "ä",
            "a/b?c",
            "a%2Fb",
            "-a",
            "a.",
            "a--b",
            "a..b",
            "datasets/",
            "https://huggingface.co/gpt2",
            &long,
        ];
        for name in cases {
            assert!(name.parse::<RepoId>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn revisions_and_commits() {
        for revision in ["main", "refs/pr/1", "v1.0", "feature/ü x"] {
            assert_eq!(revision.parse::<Revision>().unwrap().as_str(), revision);
        }
        for revision in ["", "..", "a\nb", &"a".repeat(256)] {
            assert!(revision.parse::<Revision>().is_err(), "{revision:?}");
        }
        let sha = "053d9cd9fbe814e091294f67fcfedb3397b954bb";
        assert_eq!(sha.parse::<CommitSha>().unwrap().as_str(), sha);
        for text in ["", "main", &sha[1..], &sha.to_uppercase()] {
            assert!(text.parse::<CommitSha>().is_err(), "{text:?}");
        }
    }
}
