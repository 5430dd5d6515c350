//! The state of both servers, and their responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::header::{CONTENT_TYPE, ETAG, LINK, LOCATION};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::MockHubBuilder;
use super::cdn::Cdn;
use super::computed::LazyRepos;
use super::connection::Connections;
use super::error_response::ErrorResponse;
use super::fault::FaultInjector;
use super::file::File;
use super::header_names::{X_LINKED_ETAG, X_LINKED_SIZE, X_REPO_COMMIT, X_REQUEST_ID};
use super::log::{Host, Log, LoggedRequest};
use super::model_list;
use super::quota::Quotas;
use super::repo::Repo;
use super::response::ResponseSpec;
use super::route::{self, Action, Route};
use super::tree;

/// The number of entries on one page of a listing.
const TREE_PAGE_SIZE: usize = 1000;

/// The sender of a request, identified by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Anonymous,
    /// A valid token without access to private and gated repositories.
    Outsider,
    /// A token with access to everything.
    Member,
}

/// The state shared by both servers.
pub(super) struct HubState {
    pub cdn: Cdn,
    pub log: Log,
    pub faults: FaultInjector,
    pub quotas: Quotas,
    pub computed: Option<Box<dyn LazyRepos>>,
    connections: [Connections; 2],
    repos: Mutex<HashMap<String, Arc<Repo>>>,
    callers: HashMap<String, Caller>,
    origin: String,
    base_path: String,
    pub tree_page: usize,
    is_mirror: bool,
    request_count: AtomicU64,
}

impl HubState {
    pub(super) fn new(builder: MockHubBuilder, origin: String, cdn_origin: String) -> Self {
        Self {
            cdn: Cdn::new(cdn_origin),
            log: Log::new(!builder.is_without_log),
            faults: FaultInjector::default(),
            quotas: Quotas::new(builder.quota),
            computed: builder.lazy_repos,
            connections: Default::default(),
            repos: Mutex::new(
                builder.repos.into_iter().map(|(id, repo)| (id, Arc::new(repo))).collect(),
            ),
            callers: builder.callers,
            origin,
            base_path: builder.base_path,
            tree_page: builder.tree_page.unwrap_or(TREE_PAGE_SIZE).max(1),
            is_mirror: builder.is_mirror,
            request_count: AtomicU64::new(0),
        }
    }

    pub(super) fn connections(&self, host: Host) -> &Connections {
        let [hub, cdn] = &self.connections;
        if host == Host::Hub { hub } else { cdn }
    }

    pub(super) fn move_branch(&self, repo: &str, branch: &str, commit: &str) -> bool {
        let mut repos = self.repos();
        let repo = repos.get_mut(repo);
        repo.map(|repo| Arc::make_mut(repo).set_reference(branch, commit)).is_some()
    }

    /// Returns the response to a request to either server. Applies mirror behavior and faults.
    pub(super) fn respond(&self, request: &LoggedRequest) -> ResponseSpec {
        let number = self.request_count.fetch_add(1, Ordering::Relaxed);
        let response = self.quotas.respond(request, || match request.host {
            Host::Hub => self.respond_as_hub(request),
            Host::Cdn => self.respond_as_cdn(request),
        });
        let response = if self.is_mirror { move_metadata(response, request) } else { response };
        let response = match self.faults.next(request) {
            Some(fault) => fault.apply(response, request),
            None => response,
        };
        response.with(X_REQUEST_ID, format!("Root=1-{number:08x}"))
    }

    /// Returns a stored file. Access must already have been checked.
    pub(super) fn stored(&self, route: &Route) -> Option<File> {
        self.find_repo(&route.repo)?.find_file(&route.revision, &route.path).cloned()
    }

    /// Returns the stored repositories, without computed ones.
    pub(super) fn stored_repos(&self) -> Vec<Arc<Repo>> {
        self.repos().values().cloned().collect()
    }

    fn find_repo(&self, id: &str) -> Option<Arc<Repo>> {
        let stored = self.repos().get(id).cloned();
        stored.or_else(|| {
            let computed = self.computed.as_ref()?;
            Some(Arc::new(computed.repo(computed.index_of(id)?)))
        })
    }

    fn respond_as_hub(&self, request: &LoggedRequest) -> ResponseSpec {
        let path = request.path.strip_prefix(&self.base_path);
        if path == Some("/api/models") && request.method == Method::GET {
            return self.list_models(request).unwrap_or_else(ErrorResponse::into_json);
        }
        match path.and_then(Route::parse) {
            Some(route) if matches!(request.method, Method::GET | Method::HEAD) => {
                self.serve(request, &route).unwrap_or_else(|error| {
                    if matches!(route.action, Action::Info | Action::Tree | Action::Headers) {
                        error.into_json()
                    } else {
                        error.into_text()
                    }
                })
            }
            _ => ErrorResponse::UnknownRoute.into_text(),
        }
    }

    /// Checks the token, then the repository, then its contents. This order decides which error is returned if
    /// several apply.
    fn serve(&self, request: &LoggedRequest, route: &Route) -> Result<ResponseSpec, ErrorResponse> {
        let caller = self.caller(request)?;
        let named = self.find_repo(&route.repo).filter(|repo| repo.is_visible_to(caller));
        let Some(repo) = named else {
            let is_alias =
                |repo: &&Arc<Repo>| repo.is_visible_to(caller) && repo.has_alias(&route.repo);
            let renamed = self.repos().values().find(is_alias).cloned();
            let renamed = renamed.ok_or(ErrorResponse::RepoNotFound { caller })?;
            let path = request.path.replacen(&route.repo, renamed.id(), 1);
            let query = request.query.as_ref().map(|query| format!("?{query}"));
            let target = path + &query.unwrap_or_default();
            return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, &target));
        };
        if !matches!(route.action, Action::Info | Action::Tree | Action::Headers) {
            repo.check_access(caller)?;
        }
        let (revision, path) = (&route.revision, &route.path);
        let unknown = || ErrorResponse::RevisionNotFound { revision: revision.clone() };
        let commit = repo.find_commit(revision).ok_or_else(unknown)?;
        let missing = || ErrorResponse::EntryNotFound { commit: commit.to_owned() };
        let file = || repo.find_file(commit, path).ok_or_else(missing);
        let response = match route.action {
            Action::Info => {
                json_text(Value::from(model_list::properties(&repo, commit)).to_string())
            }
            Action::Tree => self.tree(request, &repo, commit, path).ok_or_else(missing)?,
            Action::Headers => json_text(repo.headers(commit, path).ok_or_else(missing)?),
            Action::Raw => raw(file()?, path),
            Action::StoredFile => small(file()?, request),
            Action::Resolve => self.resolve(request, route, commit, file()?),
        };
        Ok(response.with(X_REPO_COMMIT, commit))
    }

    pub(super) fn caller(&self, request: &LoggedRequest) -> Result<Caller, ErrorResponse> {
        let Some(authorization) = &request.authorization else {
            return Ok(Caller::Anonymous);
        };
        let token = authorization.strip_prefix("Bearer ");
        token.and_then(|token| self.callers.get(token)).copied().ok_or(ErrorResponse::InvalidToken)
    }

    fn resolve(
        &self,
        request: &LoggedRequest,
        route: &Route,
        commit: &str,
        file: &File,
    ) -> ResponseSpec {
        let path = route::storage_path(&route.repo, commit, &route.path);
        if is_large(file, &route.path) {
            let url = self.cdn.sign(&format!("/{path}"), request.range.as_deref());
            return redirect(StatusCode::FOUND, &url)
                .with(X_LINKED_SIZE, file.size().to_string())
                .with(X_LINKED_ETAG, format!("\"{}\"", file.digest().sha256()));
        }
        let (requested, etag) = (route::encode_component(&request.path), file.digest().sha1());
        let url =
            format!("{}/api/resolve-cache/{path}?{requested}=&etag=%22{etag}%22", self.base_path);
        redirect(StatusCode::TEMPORARY_REDIRECT, &url)
    }

    /// Returns a page of a folder's listing. The `Link` to the next page is an absolute URL of the Hub, even behind a
    /// mirror.
    fn tree(
        &self,
        request: &LoggedRequest,
        repo: &Repo,
        commit: &str,
        folder: &str,
    ) -> Option<ResponseSpec> {
        let query = request.query.as_deref().unwrap_or_default();
        let page = tree::page(repo, commit, folder, query, self.tree_page)?;
        Some(self.with_next_page(json_text(page.json), request, page.next))
    }

    /// Adds a link to the next page with this query.
    pub(super) fn with_next_page(
        &self,
        response: ResponseSpec,
        request: &LoggedRequest,
        next: Option<String>,
    ) -> ResponseSpec {
        let origin = if self.is_mirror { "https://huggingface.co" } else { &self.origin };
        let link = |query| format!("<{origin}{}?{query}>; rel=\"next\"", request.path);
        match next.map(link) {
            Some(link) => response.with(LINK, link),
            None => response,
        }
    }

    fn repos(&self) -> MutexGuard<'_, HashMap<String, Arc<Repo>>> {
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the metadata headers from the redirect to the final response, as some mirrors do.
fn move_metadata(mut response: ResponseSpec, request: &LoggedRequest) -> ResponseSpec {
    if response.status.is_redirection() {
        for name in [X_REPO_COMMIT, X_LINKED_SIZE, X_LINKED_ETAG] {
            response.headers.remove(name);
        }
    }
    match request.host {
        Host::Cdn => match Route::parse_storage_path(&request.path) {
            Some(route) => response.with(X_REPO_COMMIT, route.revision),
            None => response,
        },
        Host::Hub => response,
    }
}

/// Returns whether the CDN serves a file: weights, and all zero-padded files.
pub(super) fn is_large(file: &File, path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    file.is_padded()
        || file.is_on_cdn()
        || ["safetensors", "bin", "gguf", "onnx", "pt"].contains(&extension)
}

fn redirect(status: StatusCode, url: &str) -> ResponseSpec {
    ResponseSpec::text(status, format!("{status}. Redirecting to {url}")).with(LOCATION, url)
}

fn small(file: &File, request: &LoggedRequest) -> ResponseSpec {
    ResponseSpec::file(file, request.range.as_deref())
        .with(CONTENT_TYPE, "text/plain; charset=utf-8")
        .with(ETAG, format!("\"{}\"", file.digest().sha1()))
}

/// Returns the file as stored in git. Large files are Git LFS pointers.
fn raw(file: &File, path: &str) -> ResponseSpec {
    if !is_large(file, path) {
        return ResponseSpec::file(file, None).with(CONTENT_TYPE, "text/plain; charset=utf-8");
    }
    let (oid, size) = (file.digest().sha256(), file.size());
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
    ResponseSpec::text(StatusCode::OK, pointer)
}

pub(super) fn json_text(json: String) -> ResponseSpec {
    ResponseSpec::text(StatusCode::OK, json).with(CONTENT_TYPE, "application/json; charset=utf-8")
}
