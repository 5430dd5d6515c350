//! `/`: the page that creates badges, and its files.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::FILES;
use super::schemas::{BadgeParameters, PageParameter, WeightsParameters};
use crate::error_reply::ErrorReply;
use crate::lookup::LookupOutcome;
use crate::lookup_result::LookupResult;
use crate::page::{
    self, KnownSets, MAX_TENSORS, OtherSets, PageOutcome, PageUrls, PageView, SetRows,
    ShownDetails, WeightsSummary,
};
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta::Error;
use hf_meta_badge::{BadgeOptions, Metric};

/// Badge page
///
/// A form and, for a repository, its counts, its badge in every style, and snippets for embedding it.
#[utoipa::path(
    get,
    path = "/",
    params(PageParameter, WeightsParameters, BadgeParameters),
    responses((status = OK, description = "The page.", body = String, content_type = "text/html"))
)]
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
    Reply::new(status, content_type, html, CachePolicy::NoStore).with_content_security_policy(
        page::content_security_policy(state.config.frame_ancestors.as_deref()),
    )
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
    view.outcome = match &outcome {
        LookupOutcome::Ready(result) => match &**result {
            LookupResult::Counted(counted) => {
                let others = other_sets(state, &query, &counted.summary, client).await;
                PageOutcome::Counted(&counted.summary, shown(details.as_ref()), others)
            }
            LookupResult::HubReported { values, .. } => {
                PageOutcome::HubReported(values, error.message())
            }
            LookupResult::Failed { error: cause } => match &**cause {
                Error::SeveralSets { sets, .. } => {
                    PageOutcome::Choice(error.message(), SetRows::from_sets(sets))
                }
                _ => PageOutcome::Failed(error.message()),
            },
            LookupResult::TooManyFiles { .. }
            | LookupResult::Detailed(_)
            | LookupResult::Listed(_) => PageOutcome::Failed(error.message()),
        },
        LookupOutcome::Pending => PageOutcome::Pending,
        LookupOutcome::Busy | LookupOutcome::RateLimited | LookupOutcome::NotAllowed => {
            PageOutcome::Failed(error.message())
        }
    };
    page::page(urls, Some(&view))
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
    let details = query.details(counted.summary.commit.as_ref());
    if is_small { Some(state.look_up(&details, client).await) } else { None }
}

/// Returns the details to show on the page.
fn shown(details: Option<&LookupOutcome>) -> ShownDetails<'_> {
    match details {
        None => ShownDetails::TooManyTensors,
        Some(LookupOutcome::Pending) => ShownDetails::Pending,
        Some(LookupOutcome::Ready(result)) => match &**result {
            LookupResult::Detailed(details) => ShownDetails::Read(details),
            _ => ShownDetails::Unavailable,
        },
        Some(_) => ShownDetails::Unavailable,
    }
}

/// Returns the sets of weights besides the counted one. They are listed by a separate lookup, once per commit,
/// because badges do not need them. If the query selects a path, they are not listed.
async fn other_sets(
    state: &ServiceState,
    query: &WeightsQuery,
    summary: &WeightsSummary,
    client: IpAddr,
) -> OtherSets {
    let files = match &summary.known_sets {
        KnownSets::Listed(sets) => return OtherSets::Listed(sets.clone()),
        KnownSets::Unlisted { .. } if query.path().is_some() => return OtherSets::NotNeeded,
        KnownSets::Unlisted { files } => files,
    };
    let listing = query.listing(summary.commit.as_ref());
    match state.look_up(&listing, client).await {
        LookupOutcome::Ready(result) => match &*result {
            LookupResult::Listed(Some(sets)) => {
                let others = sets.iter().filter(|set| !set.is_part_of(files));
                OtherSets::Listed(SetRows::from_sets(others))
            }
            _ => OtherSets::Unavailable,
        },
        LookupOutcome::Pending => OtherSets::Pending,
        _ => OtherSets::Unavailable,
    }
}

/// Script of the page
#[utoipa::path(
    get,
    path = "/app.js",
    responses((status = OK, description = "The script.", body = String, content_type = "text/javascript"))
)]
pub(super) async fn script() -> Reply {
    Reply::new(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT, FILES)
}

/// Style sheet of the page
#[utoipa::path(
    get,
    path = "/style.css",
    responses((status = OK, description = "The style sheet.", body = String, content_type = "text/css"))
)]
pub(super) async fn style() -> Reply {
    Reply::new(StatusCode::OK, "text/css; charset=utf-8", page::STYLE, FILES)
}

/// Icon of the page
#[utoipa::path(
    get,
    path = "/favicon.svg",
    responses((status = OK, description = "The icon.", body = String, content_type = "image/svg+xml"))
)]
pub(super) async fn icon() -> Reply {
    Reply::svg(page::ICON.to_owned(), FILES)
}

/// Icon at the path that browsers request by default
#[utoipa::path(
    get,
    path = "/favicon.ico",
    operation_id = "iconWithoutPage",
    responses((status = OK, description = "The icon.", body = String, content_type = "image/svg+xml"))
)]
pub(super) async fn icon_without_page() -> Reply {
    icon().await
}

/// Rules for crawlers
///
/// Crawlers may read the page but not the results, because each one costs a lookup.
#[utoipa::path(
    get,
    path = "/robots.txt",
    responses((status = OK, description = "The rules.", body = String, content_type = "text/plain"))
)]
pub(super) async fn robots() -> Reply {
    let rules = "User-agent: *\nDisallow: /api/\nDisallow: /badge/\nDisallow: /*?\n";
    Reply::new(StatusCode::OK, "text/plain; charset=utf-8", rules, FILES)
}
