//! `/`: the page that creates badges, and its files.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;

use crate::error_reply::ErrorReply;
use crate::lookup_result::{LookupOutcome, LookupResult};
use crate::page::{
    self, MAX_TENSORS, PageOutcome, PageUrls, PageView, Section, SetRows, WeightsDetails,
};
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta::CountReport;
use hf_meta_badge::{BadgeOptions, Metric};

/// The cache policy of the page's files.
const FILES: CachePolicy = CachePolicy::Revalidate(Duration::from_secs(3_600));

/// Serves the page: a form and, for a repository, its counts, its badge in every style, and snippets for embedding it.
pub(super) async fn page(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let query = QueryString::parse(request.uri().query());
    let base = state.base_url(&request);
    let urls = PageUrls { base: &base, hub: state.lookups.endpoint() };
    let client = state.client_ip(&request);
    let status = if query.is_too_long() { StatusCode::URI_TOO_LONG } else { StatusCode::OK };
    let html = match query.get("repo") {
        None => page::page(&urls, None),
        Some(input) => repo_page(&state, &urls, input, &query, client).await,
    };
    let content_type = "text/html; charset=utf-8";
    let policy = page::content_security_policy(state.config.frame_ancestors.as_deref());
    let reply = Reply::new(status, content_type, html, CachePolicy::NoStore);
    Reply { content_security_policy: policy.into(), ..reply }
}

/// Renders the page for a repository.
async fn repo_page(
    state: &ServiceState,
    urls: &PageUrls<'_>,
    input: &str,
    query: &QueryString<'_>,
    client: IpAddr,
) -> String {
    // Browsers also send empty form fields.
    let options = BadgeOptions::from_query(query.pairs().filter(|(_, value)| !value.is_empty()));
    let metric: Metric = query.get("show").and_then(|name| name.parse().ok()).unwrap_or_default();
    let others = page::repos(query.get("compare").unwrap_or_default());
    let mut view = PageView {
        input,
        others: &others,
        repo: None,
        revision: None,
        path: None,
        metric,
        options: &options,
        outcome: PageOutcome::Pending,
    };
    let query = match WeightsQuery::from_source(input, urls.hub, query) {
        Ok(query) => query,
        Err(error) => {
            view.outcome = PageOutcome::Failed(&error);
            return page::page(urls, Some(&view));
        }
    };
    let outcome = state.look_up(&query, client).await;
    let details = look_up_details(state, &query, &outcome, client).await;
    let error = ErrorReply::from(&outcome);
    let repo = query.repo().as_ref();
    (view.repo, view.revision, view.path) = (Some(repo), query.revision(), query.path());
    view.outcome = match (&outcome, outcome.counted()) {
        (_, Some(counted)) => {
            let details = details.as_ref();
            let details = details.map_or(Section::Omitted, |found| section(found, as_details));
            let others = other_sets(state, &query, &counted.report, client).await;
            let (values, report) = (&counted.values, &counted.report);
            PageOutcome::Counted { values, report, details, others }
        }
        (LookupOutcome::Pending, None) => PageOutcome::Pending,
        _ => failure(&error),
    };
    page::page(urls, Some(&view))
}

/// Returns what the page shows without counts.
fn failure<'a>(error: &'a ErrorReply<'a>) -> PageOutcome<'a> {
    match (error.reported, error.sets) {
        (Some(values), _) => PageOutcome::HubReported(values, &error.error),
        (None, Some(sets)) => PageOutcome::Choice(&error.error, SetRows::from_sets(sets)),
        (None, None) => PageOutcome::Failed(&error.error),
    }
}

/// Looks up the details of counted weights. They are looked up separately, once per commit, because badges do not
/// need them. Returns `None` if there are too many tensors.
async fn look_up_details(
    state: &ServiceState,
    query: &WeightsQuery,
    outcome: &LookupOutcome,
    client: IpAddr,
) -> Option<LookupOutcome> {
    let counted = outcome.counted()?;
    let is_small = counted.values.tensors.is_some_and(|tensors| tensors <= MAX_TENSORS);
    let details = query.details(counted.report.commit.as_ref());
    if is_small { Some(state.look_up(&details, client).await) } else { None }
}

/// Returns the sets of weights besides the counted one. They are listed by a separate lookup, once per commit,
/// because badges do not need them. If the query selects a path, they are not listed.
async fn other_sets(
    state: &ServiceState,
    query: &WeightsQuery,
    report: &CountReport,
    client: IpAddr,
) -> Section<SetRows> {
    match &report.other_sets {
        Some(sets) => return Section::Ready(SetRows::from_sets(sets)),
        None if query.path().is_some() => return Section::Omitted,
        None => {}
    }
    let files = report.filepaths.iter().cloned().collect();
    let listing = state.look_up(&query.listing(report.commit.as_ref()), client).await;
    section(&listing, |result| match result {
        LookupResult::Listed(Some(sets)) => {
            Some(SetRows::from_sets(sets.iter().filter(|set| !set.is_part_of(&files))))
        }
        _ => None,
    })
}

/// Returns the section of the page that shows the result of a separate lookup.
fn section<'a, T>(
    outcome: &'a LookupOutcome,
    content: impl FnOnce(&'a LookupResult) -> Option<T>,
) -> Section<T> {
    match outcome {
        LookupOutcome::Ready(result) => {
            content(result).map_or(Section::Unavailable, Section::Ready)
        }
        LookupOutcome::Pending => Section::Pending,
        _ => Section::Unavailable,
    }
}

fn as_details(result: &LookupResult) -> Option<&WeightsDetails> {
    match result {
        LookupResult::Detailed(details) => Some(details),
        _ => None,
    }
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

/// Serves the rules for crawlers. They may read the page but not the results, because each one costs a lookup.
pub(super) async fn robots() -> Reply {
    let rules = "User-agent: *\nDisallow: /api/\nDisallow: /badge/\nDisallow: /*?\n";
    Reply::new(StatusCode::OK, "text/plain; charset=utf-8", rules, FILES)
}
