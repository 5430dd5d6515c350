//! Paths in a repository, and the numbers in names of shards.

use std::str::FromStr;

use thiserror::Error;

use super::clip;
use crate::base::text::first_violated;

/// A relative path within a repository, with `/` as separator.
///
/// A path cannot escape the folder it is joined to and cannot be a URL: it has no leading `/`, no empty, `.` or `..`
/// segment, no `\`, no `:` (as in a URL scheme or a Windows drive) and no control characters. Its maximum length is
/// 1,024 bytes. Without these rules, an index that lists a shard name with `..` could read another repository with
/// the user's token (`huggingface_hub` #4916).
///
/// ```
/// use hf_meta_format::RepoPath;
///
/// let path: RepoPath = "unet/model.safetensors".parse()?;
/// assert_eq!(path.segments().count(), 2);
/// assert!("../other/model.safetensors".parse::<RepoPath>().is_err());
/// # Ok::<(), hf_meta_format::formats::PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Box<str>);

/// The error returned when parsing a [`RepoPath`] fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct PathError {
    /// The input, truncated to 200 characters.
    pub path: String,
    /// The violated rule, phrased to follow the path.
    pub reason: &'static str,
}

impl RepoPath {
    /// The maximum length of a path in bytes.
    const MAX_BYTES: usize = 1_024;

    /// Returns the path as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments between slashes. There is at least one, and none is empty.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Creates a path without checks. The text must not come from the network.
    pub fn new_unchecked(name: &str) -> Self {
        Self(name.into())
    }

    /// Resolves a path relative to the folder of this file.
    #[must_use]
    pub fn sibling(&self, other: &Self) -> Self {
        Self::join(self.folder().as_ref(), other.as_str())
    }

    /// Joins a folder and a file name. `None` is the root folder.
    pub fn join(folder: Option<&Self>, name: &str) -> Self {
        folder.map_or_else(|| Self(name.into()), |folder| Self(format!("{folder}/{name}").into()))
    }

    /// Returns the folder of this file; `None` for the root folder.
    pub fn folder(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(folder, _)| Self(folder.into()))
    }

    /// Returns the last segment.
    #[must_use]
    pub fn file_name(&self) -> Self {
        Self(split_folder(&self.0).1.into())
    }

    /// Returns whether the path is named like the index of a sharded checkpoint.
    pub fn is_index(&self) -> bool {
        is_index_name(&self.0)
    }
}

super::text_type!(RepoPath);

impl FromStr for RepoPath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        let is_relative = |segment| matches!(segment, "" | "." | "..");
        let violated = first_violated(&[
            (path.is_empty(), "is empty"),
            (path.len() > Self::MAX_BYTES, "is longer than 1,024 bytes"),
            (path.starts_with('/'), "is absolute"),
            (path.contains('\\'), "contains a backslash"),
            (path.contains(':'), "contains a colon, like a URL or a drive letter"),
            (path.contains(char::is_control), "contains a control character"),
            (path.split('/').any(is_relative), "contains an empty, `.` or `..` segment"),
        ]);
        violated.map_or_else(
            || Ok(Self(path.into())),
            |reason| Err(PathError { path: clip(path), reason }),
        )
    }
}

/// Splits a path into its folder, which is empty for the root folder, and its last segment.
pub(super) fn split_folder(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns whether a path has the file name of an index. The name may end with a variant, as in
/// `model.safetensors.index.fp16.json`.
pub fn is_index_name(path: &str) -> bool {
    let (_, file) = split_folder(path);
    let has_variant =
        |name: &str| [".safetensors.index.", ".bin.index."].iter().any(|end| name.contains(end));
    file.ends_with(".index.json") || file.strip_suffix(".json").is_some_and(has_variant)
}

/// A name split at the `-of-` between two numbers. Both consist of any number of digits, possibly none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedName<'a> {
    /// The text before the numbers, `model-`.
    pub stem: &'a str,
    /// The digits of the shard number, `00001`.
    pub number: &'a str,
    /// The digits of the number of shards, `00072`.
    pub total: &'a str,
    /// The text after the numbers, `.fp16.safetensors`.
    pub end: &'a str,
}

impl<'a> NumberedName<'a> {
    /// Splits a name at each `-of-` in it.
    #[doc(hidden)]
    pub fn split(name: &'a str) -> impl Iterator<Item = Self> {
        let is_digit = |c: char| c.is_ascii_digit();
        name.match_indices("-of-").map(move |(at, separator)| {
            let (before, after) = (&name[..at], &name[at + separator.len()..]);
            let stem = before.trim_end_matches(is_digit);
            let end = after.trim_start_matches(is_digit);
            let (number, total) = (&before[stem.len()..], &after[..after.len() - end.len()]);
            Self { stem, number, total, end }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_accepted() {
        for path in
            ["model.safetensors", "7b/1/model.safetensors", "a..b/.hidden", "[x]^|% +ü", "..."]
        {
            assert_eq!(path.parse::<RepoPath>().unwrap().as_str(), path);
        }
    }

    #[test]
    fn paths_that_leave_their_folder_are_rejected() {
        let long = "a".repeat(1_025);
        let cases = [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/./b",
            "a//b",
            "a/",
            "a\\b",
            "..\\x",
            "C:x",
            "https://example.org/x",
            "hf://a/b",
            "a\0b",
            "a\nb",
            "\u{85}",
            &long,
        ];
        for path in cases {
            assert!(path.parse::<RepoPath>().is_err(), "{path:?}");
        }
    }

    #[test]
    fn shards_are_in_the_folder_of_their_index() {
        let [index, nested, shard] =
            ["model.safetensors.index.json", "7b/1/model.safetensors.index.json", "a.safetensors"]
                .map(|path| path.parse::<RepoPath>().unwrap());
        assert_eq!(index.sibling(&shard).as_str(), "a.safetensors");
        assert_eq!(nested.sibling(&shard).as_str(), "7b/1/a.safetensors");
    }
}
