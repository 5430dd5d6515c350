//! Validated names: repositories, revisions and commits.

use std::str::FromStr;

use thiserror::Error;

use crate::base::text::{clip, first_violated, text_type};

/// The kind of a repository. Each kind has its own URL path on the Hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RepoKind {
    /// A model: `org/name`.
    #[default]
    Model,
    /// A dataset: `datasets/org/name`.
    Dataset,
    /// A Space: `spaces/org/name`.
    Space,
}

impl RepoKind {
    /// Returns the URL path before the name: empty for models.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
            Self::Space => "spaces/",
        }
    }

    /// Returns the name of the kind in API URLs and in the disk cache of `huggingface_hub`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            kind => kind.prefix().trim_end_matches('/'),
        }
    }
}

/// The name of a repository on the Hub: `org/name`, or just `name` for some old models. Names of datasets and Spaces
/// start with `datasets/` or `spaces/`.
///
/// The rules are those of `huggingface_hub`: each part consists of 1 to 96 letters, digits, `-`, `_` and `.`, does
/// not contain `--` or `..`, and does not start or end with `-` or `.`.
///
/// ```
/// use hf_meta_format::{RepoId, RepoKind};
///
/// let repo: RepoId = "datasets/org/name".parse()?;
/// assert_eq!(repo.kind(), RepoKind::Dataset);
/// assert_eq!(repo.name(), "org/name");
/// assert!("org/name/".parse::<RepoId>().is_err());
/// # Ok::<(), hf_meta_format::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoId {
    kind: RepoKind,
    /// The name, including the prefix of its kind.
    full_name: Box<str>,
}

/// The error returned when parsing a [`RepoId`], [`Revision`] or [`CommitSha`] fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {expected}: {reason}")]
#[non_exhaustive]
pub struct IdError {
    /// The input, truncated to 200 characters.
    pub text: String,
    /// The expected kind of name, such as `a repository name`.
    pub expected: &'static str,
    /// The violated rule.
    pub reason: &'static str,
}

impl RepoId {
    /// Returns the kind of the repository.
    pub fn kind(&self) -> RepoKind {
        self.kind
    }

    /// Returns the name, including the prefix of its kind.
    pub fn as_str(&self) -> &str {
        &self.full_name
    }

    /// Returns the name without the prefix of its kind, such as `org/name`.
    pub fn name(&self) -> &str {
        &self.full_name[self.kind.prefix().len()..]
    }

    fn check(text: &str) -> Result<Self, &'static str> {
        let kinds = [RepoKind::Dataset, RepoKind::Space];
        let with_kind =
            kinds.into_iter().find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)));
        let (kind, name) = with_kind.unwrap_or((RepoKind::Model, text));
        let invalid = match name.split_once('/') {
            Some((org, name)) => invalid_part(org).or_else(|| invalid_part(name)),
            None => invalid_part(name),
        };
        invalid.map_or_else(|| Ok(Self { kind, full_name: text.into() }), Err)
    }
}

/// Returns the rule that a part of a repository name breaks; `None` if it is valid.
fn invalid_part(part: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = ['-', '.'];
    first_violated(&[
        (part.is_empty(), "a part is empty"),
        (part.contains('/'), "it has more than two parts"),
        (part.len() > 96, "a part is longer than 96 characters"),
        (!part.chars().all(allowed), "only letters, digits, `-`, `_` and `.` are allowed"),
        (part.contains("--") || part.contains(".."), "`--` and `..` are not allowed"),
        (
            part.starts_with(ends) || part.ends_with(ends),
            "no part may start or end with `-` or `.`",
        ),
    ])
}

/// A branch, a tag, a ref such as `refs/pr/1`, or a commit. Defaults to `main`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(Box<str>);

impl Revision {
    // Most file systems limit file names to 255 bytes, and git stores branches as files.
    const MAX_BYTES: usize = 255;

    /// Returns the revision as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<Self, &'static str> {
        let is_relative = |segment| matches!(segment, "." | "..");
        let invalid = first_violated(&[
            (text.is_empty(), "it is empty"),
            (text.len() > Self::MAX_BYTES, "it is longer than 255 bytes"),
            (text.contains(char::is_control), "it contains a control character"),
            (text.split('/').any(is_relative), "it contains a relative path"),
        ]);
        invalid.map_or_else(|| Ok(Self(text.into())), Err)
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

/// The full hash of a commit: 40 lowercase hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSha(Box<str>);

impl CommitSha {
    /// Returns the hash as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<Self, &'static str> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_valid = text.len() == 40 && text.bytes().all(is_digit);
        let reason = "it does not have 40 lowercase hexadecimal digits";
        if is_valid { Ok(Self(text.into())) } else { Err(reason) }
    }
}

/// Implements the parsers and conversions of names that `check` validates.
macro_rules! validated_names {
    ($($type:ident, $expected:literal;)+) => {$(
        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let expected = $expected;
                Self::check(text).map_err(|reason| IdError { text: clip(text), expected, reason })
            }
        }

        text_type!($type);
    )+};
}

validated_names! {
    RepoId, "a repository name";
    Revision, "a revision";
    CommitSha, "a commit";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_repository_names_parse_and_round_trip() {
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
    fn invalid_repository_names_are_errors() {
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
    fn revisions_and_commits_are_validated() {
        for revision in ["main", "refs/pr/1", "v1.0", "feature/ü x"] {
            assert_eq!(revision.parse::<Revision>().unwrap().as_str(), revision);
        }
        for revision in ["", "..", "../..", "a/../b", "a/.", "a\nb", &"a".repeat(256)] {
            assert!(revision.parse::<Revision>().is_err(), "{revision:?}");
        }
        let sha = "053d9cd9fbe814e091294f67fcfedb3397b954bb";
        assert_eq!(sha.parse::<CommitSha>().unwrap().as_str(), sha);
        for text in ["", "main", &sha[1..], &sha.to_uppercase()] {
            assert!(text.parse::<CommitSha>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_are_checked_when_they_are_deserialized() {
        let json = r#"["datasets/org/name","gpt2"]"#;
        let repos: Vec<RepoId> = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&repos).unwrap(), json);
        assert!(repos[1] < repos[0], "models come before datasets");
        let error = serde_json::from_str::<RepoId>(r#""a--b""#).unwrap_err().to_string();
        assert!(error.contains("a--b"), "{error}");
        assert!(serde_json::from_str::<CommitSha>(r#""main""#).is_err());
        assert!(serde_json::from_str::<Revision>("5").is_err());
    }
}
