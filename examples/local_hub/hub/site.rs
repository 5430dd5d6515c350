//! The state of the two servers, and their responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::header::{CONTENT_TYPE, ETAG, LINK, LOCATION};
use hyper::{Method, StatusCode};
use serde_json::json;

use super::Builder;
use super::answer::Answer;
use super::cdn::Cdn;
use super::fault::Faults;
use super::file::File;
use super::log::{Host, Log, LoggedRequest};
use super::names::{
    RATELIMIT, RATELIMIT_POLICY, X_LINKED_ETAG, X_LINKED_SIZE, X_REPO_COMMIT, X_REQUEST_ID,
};
use super::refusal::Refusal;
use super::repo::Repo;
use super::route::{self, Action, Route};
use super::serve::Connections;
use super::tree;

/// Entries of a tree that one answer lists.
const TREE_PAGE: usize = 1000;

/// Requests that a window of the rate limit admits.
const QUOTA: u64 = 3000;

/// Whom a request comes from, by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Anonymous,
    /// Signed in, without access to what is private or gated.
    Outsider,
    Member,
}

pub struct Site {
    pub cdn: Cdn,
    pub log: Log,
    pub faults: Faults,
    connections: [Connections; 2],
    repos: Mutex<HashMap<String, Repo>>,
    callers: HashMap<String, Caller>,
    origin: String,
    base_path: String,
    tree_page: usize,
    is_mirror: bool,
    answered: AtomicU64,
}

impl Site {
    pub fn new(builder: Builder, origin: String, cdn_origin: String) -> Self {
        Self {
            cdn: Cdn::new(cdn_origin),
            log: Log::default(),
            faults: Faults::default(),
            connections: Default::default(),
            repos: Mutex::new(builder.repos),
            callers: builder.callers,
            origin,
            base_path: builder.base_path,
            tree_page: builder.tree_page.unwrap_or(TREE_PAGE).max(1),
            is_mirror: builder.is_mirror,
            answered: AtomicU64::new(0),
        }
    }

    pub fn connections(&self, host: Host) -> &Connections {
        let [hub, cdn] = &self.connections;
        if host == Host::Hub { hub } else { cdn }
    }

    pub fn move_branch(&self, repo: &str, branch: &str, commit: &str) -> bool {
        let mut repos = self.repos();
        let repo = repos.get_mut(repo);
        repo.map(|repo| repo.point(branch, commit)).is_some()
    }

    /// Turns a request into the description of a response. Everything that either server says comes from here, so
    /// this is the place where one is made to misbehave.
    pub fn answer(&self, request: &LoggedRequest) -> Answer {
        let number = self.answered.fetch_add(1, Ordering::Relaxed);
        let answer = match request.host {
            Host::Hub => show_rate_limit(self.answer_as_hub(request), number),
            Host::Cdn => self.answer_as_cdn(request),
        };
        let answer = if self.is_mirror { metadata_last(answer, request) } else { answer };
        let answer = match self.faults.next(request) {
            Some(fault) => fault.put_on(answer, request),
            None => answer,
        };
        answer.with(X_REQUEST_ID, format!("Root=1-{number:08x}"))
    }

    /// The file at a place, for whoever was let through to it.
    pub fn stored(&self, route: &Route) -> Option<File> {
        self.repos().get(&route.repo)?.find_file(&route.revision, &route.path).cloned()
    }

    fn answer_as_hub(&self, request: &LoggedRequest) -> Answer {
        let route = request.path.strip_prefix(&self.base_path).and_then(Route::parse);
        match route {
            Some(route) if matches!(request.method, Method::GET | Method::HEAD) => {
                self.serve(request, &route).unwrap_or_else(|refusal| {
                    if matches!(route.action, Action::Info | Action::Tree) {
                        refusal.into_json()
                    } else {
                        refusal.into_text()
                    }
                })
            }
            _ => Refusal::UnknownRoute.into_text(),
        }
    }

    /// The order of the checks decides which error is returned if several apply: the caller, then the repo, then what is
    /// in it.
    fn serve(&self, request: &LoggedRequest, route: &Route) -> Result<Answer, Refusal> {
        let caller = self.caller(request)?;
        let repos = self.repos();
        let visible = || repos.values().filter(|repo| repo.is_visible_to(caller));
        let named = repos.get(&route.repo).filter(|repo| repo.is_visible_to(caller));
        let Some(repo) = named else {
            let meant = visible().find(|repo| repo.is_also(&route.repo));
            let meant = meant.ok_or(Refusal::RepoNotFound { caller })?;
            let path = request.path.replacen(&route.repo, meant.id(), 1);
            let query = request.query.as_ref().map(|query| format!("?{query}"));
            let target = path + &query.unwrap_or_default();
            return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, &target));
        };
        if !matches!(route.action, Action::Info | Action::Tree) {
            repo.admit(caller)?;
        }
        let (revision, path) = (&route.revision, &route.path);
        let unknown = || Refusal::RevisionNotFound { revision: revision.clone() };
        let commit = repo.find_commit(revision).ok_or_else(unknown)?;
        let missing = || Refusal::EntryNotFound { commit: commit.to_owned() };
        let file = || repo.find_file(commit, path).ok_or_else(missing);
        let answer = match route.action {
            Action::Info => info(repo, commit),
            Action::Tree => self.tree(request, repo, commit, path).ok_or_else(missing)?,
            Action::Raw => raw(file()?, path),
            Action::Cached => small(file()?, request),
            Action::Resolve => self.resolve(request, route, commit, file()?),
        };
        Ok(answer.with(X_REPO_COMMIT, commit))
    }

    fn caller(&self, request: &LoggedRequest) -> Result<Caller, Refusal> {
        let Some(authorization) = &request.authorization else {
            return Ok(Caller::Anonymous);
        };
        let token = authorization.strip_prefix("Bearer ");
        token.and_then(|token| self.callers.get(token)).copied().ok_or(Refusal::BadToken)
    }

    fn resolve(&self, request: &LoggedRequest, route: &Route, commit: &str, file: &File) -> Answer {
        let place = route::place(&route.repo, commit, &route.path);
        if is_large(file, &route.path) {
            let url = self.cdn.sign(&format!("/{place}"), request.range.as_deref());
            return redirect(StatusCode::FOUND, &url)
                .with(X_LINKED_SIZE, file.size().to_string())
                .with(X_LINKED_ETAG, format!("\"{}\"", file.digest().sha256()));
        }
        let (asked, etag) = (route::encode_component(&request.path), file.digest().sha1());
        let url =
            format!("{}/api/resolve-cache/{place}?{asked}=&etag=%22{etag}%22", self.base_path);
        redirect(StatusCode::TEMPORARY_REDIRECT, &url)
    }

    /// A page of a folder's listing. The next page is linked by an absolute URL, which names the Hub itself even
    /// if a mirror forwards it.
    fn tree(
        &self,
        request: &LoggedRequest,
        repo: &Repo,
        commit: &str,
        folder: &str,
    ) -> Option<Answer> {
        let query = request.query.as_deref().unwrap_or_default();
        let page = tree::page(repo, commit, folder, query, self.tree_page)?;
        let origin = if self.is_mirror { "https://huggingface.co" } else { &self.origin };
        let link = |query| format!("<{origin}{}?{query}>; rel=\"next\"", request.path);
        let answer = Answer::text(StatusCode::OK, page.json)
            .with(CONTENT_TYPE, "application/json; charset=utf-8");
        Some(match page.next.map(link) {
            Some(link) => answer.with(LINK, link),
            None => answer,
        })
    }

    fn repos(&self) -> MutexGuard<'_, HashMap<String, Repo>> {
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves what the Hub says of a file from the redirect to the answer with the bytes, as some mirrors do.
fn metadata_last(mut answer: Answer, request: &LoggedRequest) -> Answer {
    if answer.status.is_redirection() {
        for name in [X_REPO_COMMIT, X_LINKED_SIZE, X_LINKED_ETAG] {
            answer.headers.remove(name);
        }
    }
    match request.host {
        Host::Cdn => match Route::parse_place(&request.path) {
            Some(route) => answer.with(X_REPO_COMMIT, route.revision),
            None => answer,
        },
        Host::Hub => answer,
    }
}

/// The limit is shown and not enforced, so what remains never comes down to the 0 that tells clients to wait.
fn show_rate_limit(answer: Answer, number: u64) -> Answer {
    let remaining = QUOTA - number % QUOTA;
    let policy = format!(r#""fixed window";"resolvers";q={QUOTA};w=300"#);
    let state = format!(r#""resolvers";r={remaining};t=300"#);
    answer.with(RATELIMIT_POLICY, policy).with(RATELIMIT, state)
}

/// Returns whether the file is stored outside git: weights, and files that were cut because of their length.
pub fn is_large(file: &File, path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    file.is_padded()
        || file.is_on_cdn()
        || ["safetensors", "bin", "gguf", "onnx", "pt"].contains(&extension)
}

fn redirect(status: StatusCode, url: &str) -> Answer {
    Answer::text(status, format!("{status}. Redirecting to {url}")).with(LOCATION, url)
}

fn small(file: &File, request: &LoggedRequest) -> Answer {
    Answer::file(file, request.range.as_deref())
        .with(CONTENT_TYPE, "text/plain; charset=utf-8")
        .with(ETAG, format!("\"{}\"", file.digest().sha1()))
}

/// Returns the content in git: the file, or the pointer to a large file.
fn raw(file: &File, path: &str) -> Answer {
    if !is_large(file, path) {
        return Answer::file(file, None).with(CONTENT_TYPE, "text/plain; charset=utf-8");
    }
    let (oid, size) = (file.digest().sha256(), file.size());
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
    Answer::text(StatusCode::OK, pointer)
}

fn info(repo: &Repo, commit: &str) -> Answer {
    let siblings: Vec<_> = repo.paths(commit).map(|path| json!({ "rfilename": path })).collect();
    let mut body = json!({
        "id": repo.id(),
        "sha": commit,
        "private": repo.is_private(),
        "gated": repo.is_gated(),
        "siblings": siblings,
    });
    if !repo.claimed().is_empty() {
        let total: u64 = repo.claimed().iter().map(|(_, parameters)| parameters).sum();
        let parameters: HashMap<_, _> = repo.claimed().iter().cloned().collect();
        body["safetensors"] = json!({ "parameters": parameters, "total": total });
    }
    Answer::text(StatusCode::OK, body.to_string())
        .with(CONTENT_TYPE, "application/json; charset=utf-8")
}
