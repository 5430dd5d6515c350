//! The address of a Hub and the URLs of its files and its API.

use std::fmt;

use hf_meta_format::formats::RepoPath;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use thiserror::Error;
use url::Url;

use super::{RepoId, Revision};
use crate::http::SafeUrl;

/// All characters except the unreserved ones of RFC 3986, section 2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The URL of a Hub: `https://huggingface.co`, a mirror, or a repository manager that serves a Hub under a path.
///
/// ```
/// use hf_meta::Endpoint;
///
/// let endpoint = Endpoint::parse("https://repo.example/api/hf/")?;
/// assert_eq!(endpoint.to_string(), "https://repo.example/api/hf");
/// assert_eq!(Endpoint::default().to_string(), Endpoint::HUGGING_FACE);
/// # Ok::<(), hf_meta::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(Url);

/// The error returned when parsing an [`Endpoint`] fails. It omits the input, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid endpoint: {reason}")]
#[non_exhaustive]
pub struct EndpointError {
    /// The violated rule.
    pub reason: &'static str,
}

impl Endpoint {
    /// The URL of the public Hub.
    pub const HUGGING_FACE: &'static str = "https://huggingface.co";

    /// Parses the URL of a Hub, with or without a path.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not an `http` or `https` URL with a host, or if it contains a user, a
    /// password, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let invalid = |reason| Err(EndpointError { reason });
        let Ok(mut url) = Url::parse(text) else {
            return invalid("it is not a URL");
        };
        if !matches!(url.scheme(), "http" | "https") {
            return invalid("the scheme is neither `https` nor `http`");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return invalid("it contains a user or a password; use a token instead");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return invalid("it has a query or a fragment");
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }

    /// Returns the URL. Its origin is the only one that receives the token.
    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// Returns the path of the Hub on its server, without a trailing slash.
    pub(crate) fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// Returns the URL of a file: `{endpoint}/{repo}/resolve/{revision}/{path}`.
    ///
    /// Slashes in the repository name and the path are not encoded. Encoded slashes would count towards the Hub's
    /// `pages` quota, which is 30 times smaller than `resolvers` (polars #25389).
    pub(crate) fn file_url(&self, repo: &RepoId, revision: &Revision, path: &RepoPath) -> Url {
        self.join(&format!("/{repo}/resolve/{}", encode_revision(revision)), Some(path))
    }

    /// Returns the repository that a file's redirect leads to; `None` if it leads elsewhere.
    pub(crate) fn redirected_repo(&self, location: &str) -> Option<RepoId> {
        let target =
            self.0.join(location).ok().filter(|target| target.origin() == self.0.origin())?;
        let path = target.path().strip_prefix(self.path())?.strip_prefix('/')?;
        path.split_once("/resolve/")?.0.parse().ok()
    }

    /// Returns the URL of the first page of the file listing of a repository or of a folder in it:
    /// `{endpoint}/api/{kind}/{name}/tree/{revision}/{folder}?recursive=true`.
    pub(crate) fn tree_url(
        &self,
        repo: &RepoId,
        revision: &Revision,
        folder: Option<&RepoPath>,
    ) -> Url {
        let tree = format!("{}/tree/{}", api_path(repo), encode_revision(revision));
        with_query(self.join(&tree, folder), "recursive=true")
    }

    /// Returns the URL of all headers of an index on `main`, as parsed by the Hub:
    /// `{endpoint}/api/models/{name}/safetensors-metadata/{index}`.
    pub(crate) fn headers_url(&self, repo: &RepoId, index: &RepoPath) -> Url {
        self.join(&format!("{}/safetensors-metadata", api_path(repo)), Some(index))
    }

    /// Returns the URL of the Hub's own parameter count:
    /// `{endpoint}/api/{kind}/{name}/revision/{revision}?expand=safetensors`.
    pub(crate) fn reported_count_url(&self, repo: &RepoId, revision: &Revision) -> Url {
        let page = format!("{}/revision/{}", api_path(repo), encode_revision(revision));
        with_query(self.join(&page, None), "expand=safetensors")
    }

    /// Joins a folder on this Hub, which is already encoded, and a path, which is encoded here.
    fn join(&self, folder: &str, path: Option<&RepoPath>) -> Url {
        let folder = format!("{}{folder}", self.path());
        let mut encoded = folder.clone();
        for segment in path.into_iter().flat_map(RepoPath::segments) {
            encoded.push('/');
            encoded.extend(utf8_percent_encode(segment, ENCODED));
        }
        let mut url = self.0.clone();
        url.set_path(&encoded);
        debug_assert!(url.path().starts_with(&folder), "validated names contain no `..`");
        url
    }
}

fn with_query(mut url: Url, query: &str) -> Url {
    url.set_query(Some(query));
    url
}

/// Returns the path of a repository in the Hub's API: `/api/{kind}/{name}`.
fn api_path(repo: &RepoId) -> String {
    format!("/api/{}/{}", repo.kind().plural(), repo.name())
}

/// Encodes a revision as one path segment, including its slashes.
fn encode_revision(revision: &Revision) -> PercentEncode<'_> {
    utf8_percent_encode(revision.as_str(), ENCODED)
}

impl Default for Endpoint {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "the tests parse this constant")]
        Self::parse(Self::HUGGING_FACE).expect("the constant is a URL")
    }
}

/// The URL as a string. It ends with a slash if it has no path.
impl AsRef<str> for Endpoint {
    fn as_ref(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = SafeUrl::from(&self.0).to_string();
        f.write_str(shown.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::proptest_config::config;
    use percent_encoding::percent_decode_str;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn resolve(endpoint: &str, repo: &str, revision: &str, path: &str) -> String {
        let endpoint = Endpoint::parse(endpoint).unwrap();
        endpoint
            .file_url(&repo.parse().unwrap(), &revision.parse().unwrap(), &path.parse().unwrap())
            .to_string()
    }

    fn tree(endpoint: &str, repo: &str, revision: &str, folder: &str) -> String {
        let endpoint = Endpoint::parse(endpoint).unwrap();
        let folder = folder.parse().ok();
        endpoint
            .tree_url(&repo.parse().unwrap(), &revision.parse().unwrap(), folder.as_ref())
            .to_string()
    }

    fn reported_count(endpoint: &str, repo: &str, revision: &str) -> String {
        let endpoint = Endpoint::parse(endpoint).unwrap();
        endpoint.reported_count_url(&repo.parse().unwrap(), &revision.parse().unwrap()).to_string()
    }

    #[test]
    fn a_redirect_within_the_hub_names_a_repository() {
        let endpoint = Endpoint::parse("https://hub.example/hf").unwrap();
        let cases = [
            ("/hf/org/name/resolve/main/x", Some("org/name")),
            ("https://hub.example/hf/datasets/a/b/resolve/main/x", Some("datasets/a/b")),
            ("https://cdn.example/hf/org/name/resolve/main/x", None),
            ("/hf/api/resolve-cache/models/org/name/c0ffee/x", None),
            ("/org/name/resolve/main/x", None),
            ("/hf/a/../..//resolve/main/x", None),
            ("https://[", None),
        ];
        for (location, repo) in cases {
            let found = endpoint.redirected_repo(location).map(|repo| repo.to_string());
            assert_eq!(found.as_deref(), repo, "{location}");
        }
    }

    #[test]
    fn repository_revision_and_path_are_encoded_in_urls() {
        let hub = Endpoint::HUGGING_FACE;
        assert_eq!(Endpoint::default().to_string(), hub);
        let cases = [
            (
                resolve(hub, "gpt2", "main", "model.safetensors"),
                "/gpt2/resolve/main/model.safetensors",
            ),
            (
                resolve(hub, "a/b", "refs/pr/1", "7b/1/x.json"),
                "/a/b/resolve/refs%2Fpr%2F1/7b/1/x.json",
            ),
            (resolve(hub, "datasets/a/b", "v1", "x"), "/datasets/a/b/resolve/v1/x"),
            (
                resolve(hub, "a/b", "main", "[x] ^|+%ü?#&"),
                "/a/b/resolve/main/%5Bx%5D%20%5E%7C%2B%25%C3%BC%3F%23%26",
            ),
            (resolve(hub, "a/b", "main", "%2e%2e/x"), "/a/b/resolve/main/%252e%252e/x"),
            (tree(hub, "gpt2", "main", ""), "/api/models/gpt2/tree/main?recursive=true"),
            (
                tree(hub, "a/b", "refs/pr/1", "7b/x ?"),
                "/api/models/a/b/tree/refs%2Fpr%2F1/7b/x%20%3F?recursive=true",
            ),
            (tree(hub, "spaces/a/b", "v1", "c"), "/api/spaces/a/b/tree/v1/c?recursive=true"),
            (
                reported_count(hub, "gpt2", "main"),
                "/api/models/gpt2/revision/main?expand=safetensors",
            ),
            (
                reported_count(hub, "datasets/a/b", "refs/pr/1"),
                "/api/datasets/a/b/revision/refs%2Fpr%2F1?expand=safetensors",
            ),
        ];
        for (url, path) in cases {
            assert_eq!(url, format!("{hub}{path}"));
        }
    }

    #[test]
    fn an_endpoint_may_have_a_port_and_a_path() {
        for endpoint in
            ["http://127.0.0.1:8080", "https://repo.example/api/hf", "https://repo.example/api/hf/"]
        {
            let base = endpoint.trim_end_matches('/');
            let cases = [
                (resolve(endpoint, "a/b", "main", "x"), "a/b/resolve/main/x"),
                (tree(endpoint, "a/b", "main", "x"), "api/models/a/b/tree/main/x?recursive=true"),
                (
                    reported_count(endpoint, "a/b", "main"),
                    "api/models/a/b/revision/main?expand=safetensors",
                ),
            ];
            for (url, path) in cases {
                assert_eq!(url, format!("{base}/{path}"));
            }
        }
    }

    #[test]
    fn other_text_is_not_an_endpoint() {
        for text in [
            "",
            "huggingface.co",
            "file:///x",
            "ftp://x",
            "https://",
            "https://x/?q",
            "https://x/#f",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    fn endpoint() -> impl Strategy<Value = &'static str> {
        select(&[Endpoint::HUGGING_FACE, "http://[::1]:8080", "https://repo.example/api/h%20f"][..])
    }

    fn repo() -> impl Strategy<Value = RepoId> {
        let kind = select(&["", "datasets/", "spaces/"][..]);
        let name = "[A-Za-z0-9_]{1,9}(/[A-Za-z0-9_]{1,9}(\\.[a-z0-9]{1,3})?)?";
        (kind, name).prop_map(|(kind, name)| format!("{kind}{name}").parse().unwrap())
    }

    /// Generates text with the special characters of URLs.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[a-z./%?#@:&=+ \\\\\\[\\]^|ü-]{1,20}", "(%2e|\\.|/|%2F){1,9}"]
    }

    fn decoded(text: &str) -> String {
        percent_decode_str(text).decode_utf8().unwrap().into_owned()
    }

    proptest! {
        #![proptest_config(config(2_000))]

        #[test]
        fn urls_stay_inside_the_repository_and_decode_to_their_parts(
            endpoint in endpoint(),
            repo in repo(),
            revision in text().prop_filter_map("not a revision", |text| text.parse::<Revision>().ok()),
            path in vec(text(), 1..4)
                .prop_filter_map("not a path", |parts| parts.join("/").parse::<RepoPath>().ok()),
        ) {
            let url = Endpoint::parse(endpoint).unwrap().file_url(&repo, &revision, &path);
            let rest = url.as_str().strip_prefix(&format!("{endpoint}/{repo}/resolve/"));
            let (in_revision, in_path) = rest.unwrap().split_once('/').unwrap();
            prop_assert_eq!(decoded(in_revision), revision.as_str());
            let segments: Vec<_> = in_path.split('/').map(decoded).collect();
            prop_assert_eq!(segments, path.segments().collect::<Vec<_>>());
            prop_assert!(url.query().is_none() && url.fragment().is_none());
            prop_assert_eq!(Url::parse(url.as_str()), Ok(url));
        }
    }
}
