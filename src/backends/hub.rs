//! A repository on a Hub.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, FutureExt};
use hf_meta_format::formats::RepoPath;
use hf_meta_inspect::{Listing, OpenIndex};
use tracing::{Instrument, Span, debug_span};
use url::Url;

use super::source::{self, Fetch, Fetched, FileSource, ListFuture};
use super::web;
use crate::base::FilePart;
use crate::error::{Error, ErrorKind};
use crate::http::{Http, HttpError, ResponseChain};
use crate::hub::{
    CommitSha, Endpoint, HubReportedCount, HubWarnings, ManifestFile, RepoId, Revision, api,
};

/// The header that carries the SHA-256 hash of an LFS file. The Hub sends it with the redirect to the file.
const X_LINKED_ETAG: &str = "x-linked-etag";

/// A revision of a repository on a Hub.
#[derive(Clone, Debug)]
pub(crate) struct HubRepo {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    pub(crate) repo: RepoId,
    /// The canonical name of the repository, from the Hub's redirect. It is shared, so a call is redirected only
    /// once.
    pub(crate) canonical: Arc<OnceLock<RepoId>>,
    pub(crate) revision: Revision,
    pub(crate) warnings: Arc<HubWarnings>,
}

impl FileSource for HubRepo {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart> {
        async move {
            let read = self.http.read_range(&self.url(path), &range).await;
            self.fetched(|| self.file_name(path), read)
        }
        .instrument(self.span(path))
        .boxed()
    }

    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        async move {
            let read = self.http.read_all(&self.url(path), limit).await;
            self.fetched(|| self.file_name(path), read)
        }
        .instrument(self.span(path))
        .boxed()
    }

    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        let (repo, file) = (self.clone(), self.file_name(path));
        let explain = move |failure| repo.explain(file, failure);
        let (repo, url, http) = (self.clone(), self.url(path), self.http.clone());
        let commit = move |chain: &ResponseChain| repo.commit(chain);
        let opened = source::open_over_http(http, url, path, limit, commit, explain);
        opened.instrument(self.span(path)).boxed()
    }

    fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        self.http.has_quota(&self.url(path), requests as u64)
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let Self { http, endpoint, repo, revision, .. } = self;
        async move {
            let url = endpoint.tree_url(repo, revision, folder);
            match api::list_files(http, url).await {
                Ok((files, chain)) => {
                    let files = files.into_iter().map(Into::into).collect();
                    Ok(Some(Listing { files, commit: self.commit(&chain), is_complete: true }))
                }
                Err(failure) => self.without_listing(failure).map(|()| None),
            }
        }
        .instrument(debug_span!("listing", %repo))
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        format!("{}/{path}", self.repo)
    }
}

impl HubRepo {
    /// Returns the repository at a commit.
    pub(super) fn at_commit(&self, commit: &CommitSha) -> Self {
        Self { revision: commit.into(), ..self.clone() }
    }

    /// Requests the current commit of the revision with one request for `path`, which need not exist. Returns `None` if
    /// the server does not report a commit.
    pub(crate) async fn current_commit(&self, path: &RepoPath) -> Result<Option<CommitSha>, Error> {
        let chain = self.http.head(&self.url(path), web::X_REPO_COMMIT).await;
        let chain = chain.map_err(|failure| self.explain(self.file_name(path), failure))?;
        Ok(self.commit(&chain))
    }

    /// Requests all headers of an index at once, in the form parsed by the Hub. Returns `None` if the Hub does not
    /// have them.
    pub(crate) async fn parsed_headers(
        &self,
        index: &RepoPath,
        limit: u64,
    ) -> Result<Option<Fetched<Vec<u8>>>, Error> {
        if self.revision != Revision::default() {
            return Ok(None);
        }
        let url = self.endpoint.headers_url(&self.repo, index);
        let read = self.http.read_all(&url, limit);
        let read = read.instrument(self.span(index)).await;
        match self.fetched(|| self.file_name(index), read) {
            Ok(read) => Ok(Some(read)),
            // For any other status, the requests for the individual files will report a more precise error.
            Err(error)
                if error.is_transient() && matches!(error.status(), None | Some(408 | 429)) =>
            {
                Err(error)
            }
            Err(error) => {
                tracing::debug!(%error, "the Hub did not provide the headers");
                Ok(None)
            }
        }
    }

    /// Lists all files with their hashes. Returns the commit, if the server reports it.
    pub(crate) async fn hashed_files(
        &self,
    ) -> Result<(Vec<ManifestFile>, Option<CommitSha>), Error> {
        let url = self.endpoint.tree_url(&self.repo, &self.revision, None);
        let listed = api::list_files(&self.http, url)
            .instrument(debug_span!("listing", repo = %self.repo))
            .await;
        let failed = |failure| self.explain(format!("list of files of {}", self.repo), failure);
        let (files, chain) = listed.map_err(failed)?;
        Ok((files, self.commit(&chain)))
    }

    /// Requests the parameter count that the Hub itself reports. Returns `None` if it reports none.
    pub(crate) async fn reported_count(&self) -> Result<Option<HubReportedCount>, Error> {
        let url = self.endpoint.reported_count_url(&self.repo, &self.revision);
        let read = self.http.read_all(&url, HubReportedCount::MAX_BYTES).await;
        let (json, _) = read.map_err(|failure| self.explain(self.repo.to_string(), failure))?;
        Ok(HubReportedCount::from_json(&json))
    }

    fn url(&self, path: &RepoPath) -> Url {
        let repo = self.canonical.get().unwrap_or(&self.repo);
        self.endpoint.file_url(repo, &self.revision, path)
    }

    /// Returns the tracing span for all requests for a file.
    fn span(&self, path: &RepoPath) -> Span {
        debug_span!("file", repo = %self.repo, file = %path)
    }

    fn fetched<T>(
        &self,
        name: impl FnOnce() -> String,
        read: Result<(T, ResponseChain), HttpError>,
    ) -> Result<Fetched<T>, Error> {
        let (value, chain) = read.map_err(|failure| self.explain(name(), failure))?;
        let sha256 = chain.header(X_LINKED_ETAG).and_then(sha256);
        Ok(Fetched { value, commit: self.commit(&chain), sha256 })
    }

    /// Returns the commit of a response. Also logs the Hub's notice and keeps the canonical name.
    fn commit(&self, chain: &ResponseChain) -> Option<CommitSha> {
        self.warnings.warn_once(chain.header("x-hf-warning"));
        let target = chain.header("location").and_then(|to| self.endpoint.redirected_repo(to));
        if let Some(repo) = target.filter(|repo| *repo != self.repo) {
            self.canonical.get_or_init(|| repo);
        }
        web::commit(chain)
    }

    fn explain(&self, file: String, failure: HttpError) -> Error {
        web::explain(file, failure, Some((&self.repo, &self.revision)))
    }

    /// Ignores failures that mean the server has no listing. Mirrors serve files, and each rejects listings in its
    /// own way.
    fn without_listing(&self, failure: HttpError) -> Result<(), Error> {
        use ErrorKind::{FileNotFound, Forbidden, Gated, RepoNotFound, RevisionNotFound};
        let error = self.explain(format!("list of files of {}", self.repo), failure);
        match (error.kind(), &error) {
            (FileNotFound | Forbidden | Gated | RepoNotFound | RevisionNotFound, _) => Ok(()),
            (ErrorKind::Refused, Error::Refused { source, .. })
                if matches!(source.status, 405 | 501) || source.is_foreign() =>
            {
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Returns the SHA-256 hash in the entity tag of an LFS file; `None` for other tags.
fn sha256(etag: &str) -> Option<String> {
    let hash = etag.trim_start_matches("W/").trim_matches('"');
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.to_ascii_lowercase())
}
