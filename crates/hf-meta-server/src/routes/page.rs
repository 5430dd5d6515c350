//! `/`: the page that creates badges, and its files.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;

use crate::page::{self, PageUrls, PageView};
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta_badge::BadgeOptions;

/// The cache policy of the page's files.
const FILES: CachePolicy = CachePolicy::Revalidate(Duration::from_secs(3_600));

/// Serves the page: a form and, for a repository, its badge in every style, snippets for embedding it, and its counts.
pub(super) async fn page(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let query = QueryString::parse(request.uri().query());
    let base = state.base_url(&request);
    let has_inspector = state.config.inspector.is_some();
    let urls = PageUrls { base: &base, hub: state.lookups.endpoint(), has_inspector };
    let status = if query.is_too_long { StatusCode::URI_TOO_LONG } else { StatusCode::OK };
    let html = match query.get("repo") {
        None => page::page(&urls, None),
        Some(input) => {
            let (weights, result) = match WeightsQuery::from_source(input, urls.hub, &query) {
                Ok(weights) => {
                    let result = state.look_up(&weights, state.client_ip(&request)).await;
                    (Some(weights), result)
                }
                Err(failure) => (None, failure.into()),
            };
            // Browsers also send empty form fields.
            let pairs = query.pairs().filter(|(_, value)| !value.is_empty());
            let options = &BadgeOptions::from_query(pairs);
            let (weights, metric) = (weights.as_ref(), query.metric());
            page::page(&urls, Some(&PageView { input, weights, metric, options, result: &result }))
        }
    };
    let content_type = "text/html; charset=utf-8";
    let policy = page::content_security_policy(state.config.frame_ancestors.as_deref());
    let reply = Reply::new(status, content_type, html, CachePolicy::NoStore);
    Reply { content_security_policy: policy.into(), ..reply }
}

/// Serves the script of the page.
pub(super) async fn script() -> Reply {
    Reply::new(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT, FILES)
}

/// Serves the style sheet of the page.
pub(super) async fn style() -> Reply {
    Reply::new(StatusCode::OK, "text/css; charset=utf-8", page::STYLE, FILES)
}

/// Serves the icon of the page, also at the path that browsers request by default.
pub(super) async fn icon() -> Reply {
    Reply::svg(page::ICON.to_owned(), FILES)
}

/// The folders of the npm package that are the page.
const INSPECTOR_FOLDERS: [&str; 2] = ["page", "esm"];

/// The types of the files of that page, by their extension.
const INSPECTOR_TYPES: [(&str, &str); 3] = [
    ("html", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
];

/// Returns the content type of a file of the page; `None` for other files of the package and for other paths. The build of
/// the package decides which files the page has.
fn inspector_type(file: &str) -> Option<&'static str> {
    let (folder, name) = file.split_once('/')?;
    let (stem, extension) = name.rsplit_once('.')?;
    let is_plain = stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let (_, content_type) = INSPECTOR_TYPES.iter().find(|(known, _)| *known == extension)?;
    (INSPECTOR_FOLDERS.contains(&folder) && is_plain && !stem.is_empty()).then_some(content_type)
}

/// Serves a file of the page that inspects models in the browser. The page states its content security policy itself.
pub(super) async fn inspector(
    State(state): State<Arc<ServiceState>>,
    Path(file): Path<String>,
) -> Reply {
    let (Some(folder), Some(content_type)) = (&state.config.inspector, inspector_type(&file))
    else {
        return Reply::text(StatusCode::NOT_FOUND, "not found");
    };
    let Ok(content) = tokio::fs::read(folder.join(&file)).await else {
        return Reply::text(StatusCode::NOT_FOUND, "the page has no such file");
    };
    let reply = Reply::new(StatusCode::OK, content_type, content, FILES);
    Reply { content_security_policy: "frame-ancestors 'none'".into(), ..reply }
}

/// Leads to the page that inspects models in the browser. Its files have relative links, so it needs its own path, and so
/// has the redirect, because an application may mount the routes below another one.
pub(super) async fn inspector_start(
    State(state): State<Arc<ServiceState>>,
    request: Request,
) -> impl IntoResponse {
    let folder = if request.uri().path().ends_with('/') { "" } else { "inspect/" };
    let page = match request.uri().query() {
        // The query names the Hub.
        Some(query) => format!("inspect/page/index.html?{query}"),
        None => page::inspector_url(state.lookups.endpoint(), None),
    };
    let page = page.strip_prefix("inspect/").unwrap_or_default();
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, format!("{folder}{page}"))])
}

/// Serves the rules for crawlers. They may read the page but not the results, because each one costs a lookup.
pub(super) async fn robots() -> Reply {
    let rules = "User-agent: *\nDisallow: /api/\nDisallow: /badge/\nDisallow: /*?\n";
    Reply::new(StatusCode::OK, "text/plain; charset=utf-8", rules, FILES)
}
