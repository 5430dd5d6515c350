//! Parses request paths.
//!
//! Revisions and file paths are percent-decoded. Repository names are never encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// `/{repo}/resolve/{revision}/{path}`
    Resolve,
    /// `/{repo}/raw/{revision}/{path}`
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

pub(super) struct Route {
    pub action: Action,
    pub repo: String,
    pub revision: String,
    pub path: String,
}

impl Route {
    /// Parses a path of the Hub.
    pub(super) fn parse(path: &str) -> Option<Self> {
        match segments(path)?.as_slice() {
            ["api", "resolve-cache", stored @ ..] => Self::parse_stored(stored),
            ["api", kind, info @ ..] => Self::parse_info(kind, info),
            file => Self::parse_file(file),
        }
    }

    /// Parses a path of the CDN, as written by [`storage_path`].
    pub(super) fn parse_storage_path(path: &str) -> Option<Self> {
        Self::parse_stored(&segments(path)?)
    }

    fn parse_file(segments: &[&str]) -> Option<Self> {
        let kind = usize::from(matches!(segments, ["datasets" | "spaces", ..]));
        let action = |at: usize| match *segments.get(at)? {
            "resolve" => Some((at, Action::Resolve)),
            "raw" => Some((at, Action::Raw)),
            _ => None,
        };
        let (at, action) = action(kind + 1).or_else(|| action(kind + 2))?;
        let (repo, rest) = segments.split_at(at);
        let [_, revision, path @ ..] = rest else {
            return None;
        };
        Some(Self::new(action, repo.join("/"), revision, path))
    }

    fn parse_stored(segments: &[&str]) -> Option<Self> {
        let (kind, segments) = segments.split_first()?;
        let at = segments.iter().take(3).position(|segment| is_commit(segment))?;
        let (repo, rest) = segments.split_at(at);
        let (commit, path) = rest.split_first()?;
        Some(Self::new(Action::StoredFile, id(kind, repo)?, commit, path))
    }

    fn parse_info(kind: &str, segments: &[&str]) -> Option<Self> {
        let tree = segments.iter().take(3).position(|segment| *segment == "tree");
        if let Some((repo, [_, revision, path @ ..])) = tree.map(|at| segments.split_at(at)) {
            return Some(Self::new(Action::Tree, id(kind, repo)?, revision, path));
        }
        let headers = segments.iter().position(|segment| *segment == "safetensors-metadata");
        if let Some((repo, [_, path @ ..])) = headers.map(|at| segments.split_at(at)) {
            return Some(Self::new(Action::Headers, id(kind, repo)?, "main", path));
        }
        let (repo, revision) = match segments {
            [repo @ .., "revision", revision] => (repo, *revision),
            repo => (repo, "HEAD"),
        };
        Some(Self::new(Action::Info, id(kind, repo)?, revision, &[]))
    }

    fn new(action: Action, repo: String, revision: &str, path: &[&str]) -> Self {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Self { action, repo, revision: decode(revision), path: decode(&path.join("/")) }
    }
}

fn segments(path: &str) -> Option<Vec<&str>> {
    Some(path.strip_prefix('/')?.split('/').collect())
}

/// Returns the storage path of a file: `models/{repo}/{commit}/{path}`, or the same with a `datasets` or `spaces`
/// prefix.
pub(super) fn storage_path(repo: &str, commit: &str, path: &str) -> String {
    let kind =
        if repo.starts_with("datasets/") || repo.starts_with("spaces/") { "" } else { "models/" };
    format!("{kind}{repo}/{commit}/{}", encode(path, &PATH))
}

pub(super) fn encode_component(text: &str) -> String {
    encode(text, &COMPONENT)
}

fn encode(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
}

const COMPONENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: AsciiSet = COMPONENT.remove(b'/');

fn id(kind: &str, repo: &[&str]) -> Option<String> {
    let name = matches!(repo, [_] | [_, _]).then(|| repo.join("/"))?;
    match kind {
        "models" => Some(name),
        "datasets" | "spaces" => Some(format!("{kind}/{name}")),
        _ => None,
    }
}

fn is_commit(segment: &str) -> bool {
    segment.len() == 40 && segment.bytes().all(|byte| byte.is_ascii_hexdigit())
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
