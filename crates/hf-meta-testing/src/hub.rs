//! The state of both servers, and their responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::header::{CONTENT_TYPE, ETAG, LINK};
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::file::File;
use crate::listing::{self, ListQuery, Page};
use crate::log::{Host, LoggedRequest, lock};
use crate::quota::Quotas;
use crate::repo::{Caller, LazyRepos, Repo, Visibility};
use crate::response::{ErrorResponse, Fault, FaultInjector, ResponseSpec};
use crate::url::{self, Action, Route, UrlSigner};

/// A response of the Hub, or another value that the response needs.
type HubResult<T = ResponseSpec> = Result<T, ErrorResponse>;

const REPO_COMMIT: &str = "x-repo-commit";
const LINKED_SIZE: &str = "x-linked-size";
const LINKED_ETAG: &str = "x-linked-etag";

/// The state shared by both servers.
#[derive(Default)]
pub(crate) struct HubState {
    pub origin: String,
    pub cdn_origin: String,
    pub base_path: String,
    pub callers: HashMap<String, Caller>,
    pub lazy_repos: Option<Box<dyn LazyRepos>>,
    /// The number of entries per page of a listing, if it is not the default.
    pub page_size: Option<usize>,
    pub is_mirror: bool,
    pub faults: FaultInjector,
    /// The requests in order of arrival.
    pub log: Mutex<Vec<LoggedRequest>>,
    pub is_log_disabled: bool,
    pub quotas: Quotas,
    pub repos: Mutex<HashMap<String, Arc<Repo>>>,
    signer: UrlSigner,
    request_count: AtomicU64,
}

impl HubState {
    /// Returns the response to a request to either server. Applies faults.
    ///
    /// Like some mirrors, a mirror sends the metadata headers with the final response and not with the redirect.
    pub(crate) fn respond(&self, request: &LoggedRequest) -> ResponseSpec {
        let number = self.request_count.fetch_add(1, Ordering::Relaxed);
        let mut response = self.quotas.respond(request, || match request.host {
            Host::Hub => self.respond_as_hub(request),
            Host::Cdn => self.respond_as_cdn(request),
        });
        if self.is_mirror && response.status.is_redirection() {
            for name in [REPO_COMMIT, LINKED_SIZE, LINKED_ETAG] {
                response.headers.remove(name);
            }
        }
        if let Some(fault) = self.faults.next(request) {
            let is_foreign = matches!(fault, Fault::ForeignStatus(_));
            response = response.with_fault(fault);
            if is_foreign {
                return response;
            }
        }
        response.with("x-request-id", format!("Root=1-{number:08x}"))
    }

    fn respond_as_cdn(&self, request: &LoggedRequest) -> ResponseSpec {
        if request.authorization.is_some() {
            return ResponseSpec::text(400, "Only one auth mechanism is allowed");
        }
        let range = request.range.as_deref();
        if request.query != Some(self.signer.sign(&request.path, range)) {
            return ResponseSpec::text(403, "The signature does not cover this request");
        }
        let Some((commit, file)) = self.stored_file(&request.path) else {
            return ResponseSpec::text(404, "No such object");
        };
        let response = ResponseSpec::file(&file, range)
            .with(CONTENT_TYPE, "application/octet-stream")
            .with(ETAG, format!("\"{}\"", file.lfs_hash()));
        if self.is_mirror { response.with(REPO_COMMIT, commit) } else { response }
    }

    fn respond_as_hub(&self, request: &LoggedRequest) -> ResponseSpec {
        let path = request.path.strip_prefix(&self.base_path);
        let path = if matches!(request.method, Method::GET | Method::HEAD) { path } else { None };
        if path == Some("/api/models") {
            let models = self.list_models(request);
            return models.unwrap_or_else(|error| error.into_response(true));
        }
        let Some(route) = path.and_then(Route::parse) else {
            return ErrorResponse::new(404, None, "Not Found").into_response(false);
        };
        let response = self.serve(request, &route);
        response.unwrap_or_else(|error| error.into_response(route.action.is_api()))
    }

    fn list_models(&self, request: &LoggedRequest) -> HubResult {
        let caller = self.caller(request)?;
        let stored = lock(&self.repos).values().cloned().collect();
        let lazy = self.lazy_repos.as_deref();
        let page = listing::model_page(stored, lazy, caller, &self.list_query(request));
        Ok(self.page_response(request, page))
    }

    /// Checks the token, then the repository, then its contents. This order decides which error is returned if
    /// several apply.
    fn serve(&self, request: &LoggedRequest, route: &Route) -> HubResult {
        let caller = self.caller(request)?;
        let named = self.find_repo(&route.repo).filter(|repo| repo.is_visible_to(caller));
        let Some(repo) = named else {
            return self.redirect_alias(request, &route.repo, caller);
        };
        if !route.action.is_api() {
            check_access(&repo, caller)?;
        }
        let commit = repo.find_commit(&route.revision).ok_or_else(|| {
            let message = format!("Invalid rev id: {}", route.revision);
            ErrorResponse::new(404, Some("RevisionNotFound"), message)
        })?;
        let response = self.serve_commit(request, route, &repo, commit);
        let response = response.unwrap_or_else(|error| error.into_response(route.action.is_api()));
        Ok(response.with(REPO_COMMIT, commit))
    }

    fn serve_commit(
        &self,
        request: &LoggedRequest,
        route: &Route,
        repo: &Repo,
        commit: &str,
    ) -> HubResult {
        let path = &route.path;
        let file = || repo.find_file(commit, path).ok_or_else(ErrorResponse::entry_not_found);
        Ok(match route.action {
            Action::Info => {
                let properties = Value::from(listing::properties(repo, commit));
                ResponseSpec::json(200, properties.to_string())
            }
            Action::Tree => {
                let page = listing::tree_page(repo, commit, path, &self.list_query(request))?;
                self.page_response(request, page)
            }
            Action::Headers => {
                let headers = repo.headers(commit, path);
                ResponseSpec::json(200, headers.ok_or_else(ErrorResponse::entry_not_found)?)
            }
            Action::Raw => raw(file()?, path),
            Action::StoredFile => {
                let file = file()?;
                ResponseSpec::file(file, request.range.as_deref())
                    .with(CONTENT_TYPE, "text/plain; charset=utf-8")
                    .with(ETAG, format!("\"{}\"", file.git_hash()))
            }
            Action::Resolve => self.resolve(request, route, commit, file()?),
        })
    }

    fn caller(&self, request: &LoggedRequest) -> HubResult<Caller> {
        let Some(authorization) = &request.authorization else {
            return Ok(Caller::Anonymous);
        };
        let token = authorization.strip_prefix("Bearer ");
        token.and_then(|token| self.callers.get(token)).copied().ok_or_else(|| {
            ErrorResponse::new(401, None, "Invalid credentials in Authorization header")
        })
    }

    fn find_repo(&self, id: &str) -> Option<Arc<Repo>> {
        let stored = lock(&self.repos).get(id).cloned();
        stored.or_else(|| {
            let lazy = self.lazy_repos.as_ref()?;
            Some(Arc::new(lazy.repo(lazy.index_of(id)?)))
        })
    }

    /// Returns the commit and the file at a path of the CDN. Access must already have been checked.
    fn stored_file(&self, path: &str) -> Option<(String, File)> {
        let Route { repo, revision, path, .. } = Route::parse_storage_path(path)?;
        let file = self.find_repo(&repo)?.find_file(&revision, &path)?.clone();
        Some((revision, file))
    }

    /// Redirects from a former name of a repository, or from its name in another letter case.
    fn redirect_alias(&self, request: &LoggedRequest, id: &str, caller: Caller) -> HubResult {
        let repos = lock(&self.repos);
        let renamed = repos.values().find(|repo| repo.is_visible_to(caller) && repo.has_alias(id));
        let repo = renamed.ok_or_else(|| repo_not_found(caller))?;
        let query = request.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        let url = format!("{}{query}", request.path).replacen(id, repo.id(), 1);
        Ok(ResponseSpec::redirect(StatusCode::TEMPORARY_REDIRECT, &url))
    }

    fn resolve(
        &self,
        request: &LoggedRequest,
        route: &Route,
        commit: &str,
        file: &File,
    ) -> ResponseSpec {
        let path = format!("/{}", url::storage_path(&route.repo, commit, &route.path));
        if file.is_large(&route.path) {
            let query = self.signer.sign(&path, request.range.as_deref());
            let url = format!("{}{path}?{query}", self.cdn_origin);
            return ResponseSpec::redirect(StatusCode::FOUND, &url)
                .with(LINKED_SIZE, file.size().to_string())
                .with(LINKED_ETAG, format!("\"{}\"", file.lfs_hash()));
        }
        let (requested, etag) = (url::encode_component(&request.path), file.git_hash());
        let url =
            format!("{}/api/resolve-cache{path}?{requested}=&etag=%22{etag}%22", self.base_path);
        ResponseSpec::redirect(StatusCode::TEMPORARY_REDIRECT, &url)
    }

    /// Returns a page of a listing. The `Link` to the next page is an absolute URL of the Hub, even behind a mirror.
    fn page_response(&self, request: &LoggedRequest, page: Page) -> ResponseSpec {
        let origin = if self.is_mirror { "https://huggingface.co" } else { &self.origin };
        let response = ResponseSpec::json(200, page.json);
        match page.next {
            Some(query) => {
                response.with(LINK, format!("<{origin}{}?{query}>; rel=\"next\"", request.path))
            }
            None => response,
        }
    }

    fn list_query<'a>(&self, request: &'a LoggedRequest) -> ListQuery<'a> {
        let page_size = self.page_size.unwrap_or(1000).max(1);
        ListQuery::parse(request.query.as_deref().unwrap_or_default(), page_size)
    }
}

/// Returns the error for a missing repository, or a private one without access. The Hub does not reveal which.
fn repo_not_found(caller: Caller) -> ErrorResponse {
    let (status, message) = match caller {
        Caller::Anonymous => (401, "Invalid username or password."),
        _ => (404, "Repository not found"),
    };
    ErrorResponse::new(status, Some("RepoNotFound"), message)
}

/// Checks that the caller may read the files.
fn check_access(repo: &Repo, caller: Caller) -> HubResult<()> {
    let (status, code, reason) = match (repo.visibility, caller) {
        (Visibility::Disabled, _) => (403, None, "Access to this resource is disabled."),
        (Visibility::Gated, Caller::Anonymous) => {
            (401, Some("GatedRepo"), "Access to this model is restricted. Please log in.")
        }
        (Visibility::Gated, Caller::Unprivileged) => {
            (403, Some("GatedRepo"), "You are not in the authorized list of this model.")
        }
        _ => return Ok(()),
    };
    Err(ErrorResponse::new(status, code, reason))
}

/// Returns the file as stored in git. Large files are Git LFS pointers.
fn raw(file: &File, path: &str) -> ResponseSpec {
    if !file.is_large(path) {
        return ResponseSpec::file(file, None).with(CONTENT_TYPE, "text/plain; charset=utf-8");
    }
    let (oid, size) = (file.lfs_hash(), file.size());
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
    ResponseSpec::text(200, pointer)
}
