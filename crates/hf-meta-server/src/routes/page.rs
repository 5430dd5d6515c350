//! `/`: the page that creates badges, and its files.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;

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

/// The files of the page that inspects models in the browser, with their types.
const INSPECTOR: [(&str, &str); 5] = [
    ("page/index.html", "text/html; charset=utf-8"),
    ("page/page.css", "text/css; charset=utf-8"),
    ("page/page.js", "text/javascript; charset=utf-8"),
    ("esm/index.js", "text/javascript; charset=utf-8"),
    ("esm/layouts.js", "text/javascript; charset=utf-8"),
];

/// Serves a file of the page that inspects models in the browser. The page states its content security policy itself.
pub(super) async fn inspector(
    State(state): State<Arc<ServiceState>>,
    Path(file): Path<String>,
) -> Reply {
    let known = INSPECTOR.iter().find(|(path, _)| *path == file);
    let (Some(folder), Some((path, content_type))) = (&state.config.inspector, known) else {
        return Reply::text(StatusCode::NOT_FOUND, "not found");
    };
    let Ok(content) = tokio::fs::read(folder.join(path)).await else {
        return Reply::text(StatusCode::NOT_FOUND, "the page has not been built");
    };
    let reply = Reply::new(StatusCode::OK, content_type, content, FILES);
    Reply { content_security_policy: "frame-ancestors 'none'".into(), ..reply }
}

/// Serves the rules for crawlers. They may read the page but not the results, because each one costs a lookup.
pub(super) async fn robots() -> Reply {
    let rules = "User-agent: *\nDisallow: /api/\nDisallow: /badge/\nDisallow: /*?\n";
    Reply::new(StatusCode::OK, "text/plain; charset=utf-8", rules, FILES)
}
