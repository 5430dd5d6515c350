//! The folder of a file on any web server, and the errors of files that are read over HTTP.

use std::ops::Range;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use hf_meta_format::formats::RepoPath;
use hf_meta_inspect::OpenIndex;
use tracing::{Instrument, Span, debug_span};
use url::Url;

use super::source::{self, Fetch, Fetched, FileSource, ListFuture};
use crate::base::FilePart;
use crate::error::{Error, ErrorKind};
use crate::http::{Http, HttpError, HttpErrorKind, HubError, ResponseChain, SafeUrl};
use crate::hub::{CommitSha, RepoId, Revision};

/// The header that carries the commit of a file on a Hub. The CDN does not send it, and some mirrors send it only
/// with the last response.
pub(super) const X_REPO_COMMIT: &str = "x-repo-commit";

/// The folder of the file at `url`.
#[derive(Clone, Debug)]
pub(crate) struct WebFolder {
    pub(crate) http: Http,
    pub(crate) url: Url,
    /// The name of the file at `url`.
    pub(crate) file: RepoPath,
}

impl FileSource for WebFolder {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart> {
        async move {
            let read = self.http.read_range(&self.url(path), &range).await;
            let failed = |failure| explain(self.file_name(path), failure, None);
            let (value, chain) = read.map_err(failed)?;
            Ok(Fetched::new(value, commit(&chain)))
        }
        .instrument(self.span(path))
        .boxed()
    }

    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        async move {
            let read = self.http.read_all(&self.url(path), limit).await;
            let failed = |failure| explain(self.file_name(path), failure, None);
            let (value, chain) = read.map_err(failed)?;
            Ok(Fetched::new(value, commit(&chain)))
        }
        .instrument(self.span(path))
        .boxed()
    }

    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        let (file, url, http) = (self.file_name(path), self.url(path), self.http.clone());
        let failed = move |failure| explain(file, failure, None);
        let opened = source::open_over_http(http, url, path, limit, commit, failed);
        opened.instrument(self.span(path)).boxed()
    }

    fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        self.http.has_quota(&self.url(path), requests as u64)
    }

    /// Web servers have no reliable listing.
    fn list<'a>(&'a self, _folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        ready(Ok(None)).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        SafeUrl::from(&self.url(path)).to_string()
    }
}

impl WebFolder {
    fn url(&self, path: &RepoPath) -> Url {
        sibling(&self.url, &self.file, path)
    }

    /// Returns the tracing span for all requests for a file.
    fn span(&self, path: &RepoPath) -> Span {
        debug_span!("file", file = self.file_name(path))
    }
}

/// Returns the commit of a response, because the URL may lead to a Hub.
pub(super) fn commit(chain: &ResponseChain) -> Option<CommitSha> {
    chain.header(X_REPO_COMMIT)?.parse().ok()
}

/// Returns the URL of another file in the same folder. The query is dropped: it belongs to one file and is often its
/// signature.
fn sibling(url: &Url, file: &RepoPath, other: &RepoPath) -> Url {
    if file == other {
        return url.clone();
    }
    let mut sibling = url.clone();
    sibling.set_query(None);
    if let Ok(mut segments) = sibling.path_segments_mut() {
        segments.pop().extend(other.segments());
    }
    sibling
}

/// Converts a request failure to the error for a file. `repo` is `None` on servers without repositories.
pub(crate) fn explain(file: String, error: HttpError, repo: Option<(&RepoId, &Revision)>) -> Error {
    if let Some(refusal) = error.refusal() {
        return refusal.into();
    }
    let attempts = error.attempts;
    let message = match attempts {
        0 | 1 => format!("failed to fetch `{file}`"),
        _ => format!("failed to fetch `{file}` in {attempts} attempts"),
    };
    let response = match error.kind {
        HttpErrorKind::TooLarge { limit } => return Error::TooLarge { file, limit },
        HttpErrorKind::Status(response) => response,
        _ => return Error::RequestFailed { message, source: Arc::new(error) },
    };
    let (kind, source) = (refusal_kind(&response, repo.is_some()), Arc::<HubError>::from(response));
    let message = match (kind, repo) {
        (ErrorKind::FileNotFound, _) => return Error::FileNotFound { file, source },
        (ErrorKind::RepoNotFound, Some((repo, _))) => {
            format!("repository `{repo}` not found or not accessible")
        }
        (ErrorKind::RevisionNotFound, Some((repo, revision))) => {
            format!("revision `{revision}` not found in `{repo}`")
        }
        (ErrorKind::Gated, Some((repo, _))) => {
            format!("repository `{repo}` is gated, and access has not been granted")
        }
        (ErrorKind::RejectedToken, _) => "the Hub rejected the token".to_owned(),
        (ErrorKind::Forbidden, _) => format!("access to `{file}` denied"),
        _ => message,
    };
    Error::Refused { kind, message, attempts, source }
}

/// Returns the kind of an error response. A server without repositories only lacks a file, or denies the access to it.
fn refusal_kind(response: &HubError, has_repos: bool) -> ErrorKind {
    let is_of_other_server = has_repos && response.is_foreign();
    let kind = if is_of_other_server { None } else { response.kind() };
    match kind {
        Some(ErrorKind::FileNotFound) => ErrorKind::FileNotFound,
        Some(kind) if has_repos => kind,
        Some(_) if response.status == 404 => ErrorKind::FileNotFound,
        Some(_) => ErrorKind::Forbidden,
        None if response.status == 429 => ErrorKind::RateLimited,
        None => ErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_keep_the_folder_and_drop_the_query() {
        let url = Url::parse("https://example.org/a/model.safetensors.index.json?sig=x").unwrap();
        let path = |text: &str| text.parse::<RepoPath>().unwrap();
        let file = path("model.safetensors.index.json");
        assert_eq!(sibling(&url, &file, &file), url);
        let shard = sibling(&url, &file, &path("b/x y%.safetensors"));
        assert_eq!(shard.as_str(), "https://example.org/a/b/x%20y%25.safetensors");
    }
}
