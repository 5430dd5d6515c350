//! Names of files inside a repo.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use super::clip;

/// A plain relative path inside a repo, with `/` between its segments.
///
/// A value of this type cannot leave the folder it is joined to, nor turn into a URL of its own:
/// no leading `/`, no empty, `.` or `..` segment, no `\`, no `:` (a scheme or a drive), no control
/// character, at most 1,024 bytes. An index that names a shard by `..` otherwise reaches another
/// repo with the reader's token (`huggingface_hub` #4916).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RepoPath(Box<str>);

/// Why a text is not a [`RepoPath`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct PathError {
    /// The text, cut to 200 characters.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl RepoPath {
    const LONGEST: usize = 1_024;

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments between the slashes, at least one, none of them empty.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The name of a file as its reader gave it, who is no stranger to be guarded against.
    pub(crate) fn new_unchecked(name: &str) -> Self {
        Self(name.into())
    }

    /// Another path, taken as relative to the folder that this file is in.
    pub(crate) fn sibling(&self, other: &Self) -> Self {
        match self.0.rsplit_once('/') {
            Some((folder, _)) => Self(format!("{folder}/{other}").into()),
            None => other.clone(),
        }
    }

    /// A file of a plain name in a folder, or at the top.
    pub(crate) fn join(folder: Option<&Self>, name: &str) -> Self {
        match folder {
            Some(folder) => Self(format!("{folder}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// The folder that this file is in; `None` at the top.
    pub(crate) fn folder(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(folder, _)| Self(folder.into()))
    }

    /// The last segment.
    pub(crate) fn file_name(&self) -> Self {
        Self(self.0.rsplit_once('/').map_or(&*self.0, |(_, name)| name).into())
    }

    pub(crate) fn is_safetensors(&self) -> bool {
        self.0.ends_with(".safetensors")
    }

    pub(crate) fn is_index(&self) -> bool {
        names_index(&self.0)
    }
}

impl FromStr for RepoPath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        match find_reason(path) {
            None => Ok(Self(path.into())),
            Some(reason) => Err(PathError { path: clip(path), reason }),
        }
    }
}

/// Whether a path is that of an index by its name. The index of a variant has it in its name, mostly at
/// the end: `model.safetensors.index.fp16.json`.
pub(crate) fn names_index(path: &str) -> bool {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let is_variant = |name: &str| name.contains(".safetensors.index.");
    file.ends_with(".index.json") || file.strip_suffix(".json").is_some_and(is_variant)
}

/// What keeps a text from being a plain relative path.
fn find_reason(path: &str) -> Option<&'static str> {
    let has = |test: fn(char) -> bool| path.contains(test);
    if path.is_empty() {
        Some("is empty")
    } else if path.len() > RepoPath::LONGEST {
        Some("is longer than 1,024 bytes")
    } else if path.starts_with('/') {
        Some("is absolute")
    } else if has(|c| c == '\\') {
        Some("holds a backslash")
    } else if has(|c| c == ':') {
        Some("holds a colon, as URLs and drives do")
    } else if has(char::is_control) {
        Some("holds a control character")
    } else if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        Some("holds an empty, `.` or `..` segment")
    } else {
        None
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_pass() {
        for path in
            ["model.safetensors", "7b/1/model.safetensors", "a..b/.hidden", "[x]^|% +ü", "..."]
        {
            assert_eq!(path.parse::<RepoPath>().unwrap().as_str(), path);
        }
    }

    #[test]
    fn everything_that_could_lead_elsewhere_is_refused() {
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
    fn shards_are_beside_their_index() {
        let [index, nested, shard] =
            ["model.safetensors.index.json", "7b/1/model.safetensors.index.json", "a.safetensors"]
                .map(|path| path.parse::<RepoPath>().unwrap());
        assert_eq!(index.sibling(&shard).as_str(), "a.safetensors");
        assert_eq!(nested.sibling(&shard).as_str(), "7b/1/a.safetensors");
    }
}
