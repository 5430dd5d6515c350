//! The routes of the Hub.
//!
//! Revision and file path come percent-encoded and leave decoded; a repo id is never encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `/{repo}/resolve/{revision}/{path}`
    Resolve,
    /// `/{repo}/raw/{revision}/{path}`
    Raw,
    /// `/api/models/{repo}` and `/api/models/{repo}/revision/{revision}`
    Info,
    /// `/api/models/{repo}/tree/{revision}` and a folder after it
    Tree,
    /// `/api/resolve-cache/models/{repo}/{commit}/{path}`, where small files are redirected to
    Cached,
}

pub struct Route {
    pub action: Action,
    pub repo: String,
    pub revision: String,
    pub path: String,
}

impl Route {
    /// Reads a path of the Hub.
    pub fn parse(path: &str) -> Option<Self> {
        match segments(path)?.as_slice() {
            ["api", "resolve-cache", stored @ ..] => Self::stored(stored),
            ["api", kind, info @ ..] => Self::info(kind, info),
            file => Self::file(file),
        }
    }

    /// Reads a place as [`place`] writes it, which is also how paths of the CDN look.
    pub fn parse_place(path: &str) -> Option<Self> {
        Self::stored(&segments(path)?)
    }

    fn file(segments: &[&str]) -> Option<Self> {
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

    fn stored(segments: &[&str]) -> Option<Self> {
        let (kind, segments) = segments.split_first()?;
        let at = segments.iter().take(3).position(|segment| is_commit(segment))?;
        let (repo, rest) = segments.split_at(at);
        let (commit, path) = rest.split_first()?;
        Some(Self::new(Action::Cached, id(kind, repo)?, commit, path))
    }

    fn info(kind: &str, segments: &[&str]) -> Option<Self> {
        let tree = segments.iter().take(3).position(|segment| *segment == "tree");
        if let Some((repo, [_, revision, path @ ..])) = tree.map(|at| segments.split_at(at)) {
            return Some(Self::new(Action::Tree, id(kind, repo)?, revision, path));
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

/// The place of a file at a commit: `models/{repo}/{commit}/{path}`, or with `datasets` or `spaces` in front.
pub fn place(repo: &str, commit: &str, path: &str) -> String {
    let kind =
        if repo.starts_with("datasets/") || repo.starts_with("spaces/") { "" } else { "models/" };
    format!("{kind}{repo}/{commit}/{}", encode(path, &PATH))
}

pub fn encode_component(text: &str) -> String {
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
    fn paths_are_read_with_revision_and_file_decoded() {
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
            ("/api/models/a/b/tree", "nothing"),
            ("/api/whoami-v2", "nothing"),
        ] {
            assert_eq!(described(Route::parse(path)), expected);
        }
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let commit = "c0ffee".repeat(7)[..40].to_owned();
        for repo in ["a", "a/b", "datasets/a/b", "spaces/a"] {
            let path = format!("/{}", place(repo, &commit, "x y/z?"));
            let expected = format!("Cached {repo} @ {commit} : x y/z?");
            assert_eq!(described(Route::parse_place(&path)), expected);
        }
    }
}
