//! URLs: the paths of the Hub, and the signed URLs of its CDN.
//!
//! Revisions and file paths are percent-decoded. Repository names are never encoded.

use std::hash::{BuildHasher, RandomState};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `/{repo}/resolve/{revision}/{path}`
    Resolve,
    /// `/{repo}/raw/{revision}/{path}`, which huggingface.js reads
    Raw,
    /// `/api/models/{repo}` and `/api/models/{repo}/revision/{revision}`
    Info,
    /// `/api/models/{repo}/tree/{revision}[/{folder}]`
    Tree,
    /// `/api/models/{repo}/safetensors-metadata/{index}`
    Headers,
    /// `/api/resolve-cache/models/{repo}/{commit}/{path}`, the redirect target of small files
    StoredFile,
}

impl Action {
    /// Returns whether responses are JSON and need no access to the files of a gated repository.
    pub(crate) fn is_api(self) -> bool {
        matches!(self, Self::Info | Self::Tree | Self::Headers)
    }
}

pub(crate) struct Route {
    pub action: Action,
    pub repo: String,
    pub revision: String,
    pub path: String,
}

impl Route {
    /// Parses a path of the Hub.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let segments: Vec<_> = path.strip_prefix('/')?.split('/').collect();
        let (api, segments) = match segments.as_slice() {
            ["api", "resolve-cache", rest @ ..] => ("cache", rest),
            ["api", rest @ ..] if has_kind(rest) => ("api", rest),
            file => ("", file),
        };
        let (repo, rest) = split_repo(segments)?;
        let (action, revision, path) = match (api, rest) {
            ("", ["resolve", revision, path @ ..]) => (Action::Resolve, *revision, path),
            ("", ["raw", revision, path @ ..]) => (Action::Raw, *revision, path),
            ("cache", [commit, path @ ..]) => (Action::StoredFile, *commit, path),
            ("api", []) => (Action::Info, "HEAD", rest),
            ("api", ["revision", revision]) => (Action::Info, *revision, &[][..]),
            ("api", ["tree", revision, path @ ..]) => (Action::Tree, *revision, path),
            ("api", ["safetensors-metadata", path @ ..]) => (Action::Headers, "main", path),
            _ => return None,
        };
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(Self { action, repo, revision: decode(revision), path: decode(&path.join("/")) })
    }

    /// Parses a path of the CDN, which is a [`storage_path`].
    pub(crate) fn parse_storage_path(path: &str) -> Option<Self> {
        Self::parse(&format!("/api/resolve-cache{path}"))
    }
}

/// Splits after a repository name of one or two segments, which may follow a kind. It ends before the name of an
/// endpoint, before a commit, or at the end.
fn split_repo<'a, 'b>(segments: &'a [&'b str]) -> Option<(String, &'a [&'b str])> {
    let is_end = |segment: &&str| match *segment {
        "resolve" | "raw" | "revision" | "tree" | "safetensors-metadata" => true,
        _ => segment.len() == 40 && segment.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    let first = usize::from(has_kind(segments)) + 1;
    let end = (first..first + 2).find(|end| segments.get(*end).is_none_or(is_end))?;
    let (repo, rest) = segments.split_at_checked(end)?;
    Some((repo.strip_prefix(&["models"]).unwrap_or(repo).join("/"), rest))
}

fn has_kind(segments: &[&str]) -> bool {
    matches!(segments, ["models" | "datasets" | "spaces", ..])
}

/// Returns the storage path of a file: `models/{repo}/{commit}/{path}`, or the same with a `datasets` or `spaces`
/// prefix.
pub(crate) fn storage_path(repo: &str, commit: &str, path: &str) -> String {
    let kind =
        if repo.starts_with("datasets/") || repo.starts_with("spaces/") { "" } else { "models/" };
    format!("{kind}{repo}/{commit}/{}", utf8_percent_encode(path, &PATH))
}

pub(crate) fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, &COMPONENT).to_string()
}

const COMPONENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: AsciiSet = COMPONENT.remove(b'/');

/// A signer of URLs with a random key.
///
/// A signed URL is valid for one path and one `Range` header.
#[derive(Default)]
pub(crate) struct UrlSigner(RandomState);

impl UrlSigner {
    /// Returns the query that signs a path and a range.
    pub(crate) fn sign(&self, path: &str, range: Option<&str>) -> String {
        let policy = encode_component(range.unwrap_or("*"));
        let signature = self.0.hash_one((path, range));
        format!("Policy={policy}&Signature={signature:016x}&Key-Pair-Id=LOCAL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(route: Option<Route>) -> String {
        route.map_or("nothing".to_owned(), |route| {
            let Route { action, repo, revision, path } = route;
            format!("{action:?} {repo} @ {revision} : {path}")
        })
    }

    #[test]
    fn revision_and_path_are_decoded() {
        for (path, expected) in [
            ("/a/resolve/main/x", "Resolve a @ main : x"),
            ("/a/b/resolve/main/x/y", "Resolve a/b @ main : x/y"),
            ("/datasets/a/b/resolve/main/x", "Resolve datasets/a/b @ main : x"),
            ("/a/raw/refs%2Fpr%2F1/%C3%A4%20b", "Raw a @ refs/pr/1 : ä b"),
            ("/a/b/c/resolve/main/x", "nothing"),
            ("/api/models/a/b", "Info a/b @ HEAD : "),
            ("/api/models/a/revision/x%2Fy", "Info a @ x/y : "),
            ("/api/models/a/b/tree/main", "Tree a/b @ main : "),
            ("/api/datasets/a/tree/x%2Fy/b%20c/d", "Tree datasets/a @ x/y : b c/d"),
            ("/api/models/a/b/safetensors-metadata/x/y.json", "Headers a/b @ main : x/y.json"),
            ("/api/models/a/b/tree", "nothing"),
            ("/api/whoami-v2", "nothing"),
        ] {
            assert_eq!(described(Route::parse(path)), expected);
        }
    }

    #[test]
    fn a_storage_path_round_trips() {
        let commit = "c0ffee".repeat(7)[..40].to_owned();
        for repo in ["a", "a/b", "datasets/a/b", "spaces/a"] {
            let path = format!("/{}", storage_path(repo, &commit, "x y/z?"));
            let expected = format!("StoredFile {repo} @ {commit} : x y/z?");
            assert_eq!(described(Route::parse_storage_path(&path)), expected);
        }
    }
}
