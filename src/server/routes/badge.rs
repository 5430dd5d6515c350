//! `/badge/{repo}.svg` and `/badge/{repo}.json`: a badge for every request, whatever happens.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::schemas::{BadgeParameters, RepoParameter, WeightsParameters};
use crate::badge::{Badge, BadgeOptions, Metric, ShieldsEndpoint};
use crate::server::error_reply::ErrorReply;
use crate::server::reply::{CachePolicy, Reply};
use crate::server::state::ServiceState;
use crate::server::weights_query::{QueryString, WeightsQuery};

/// Serves a badge in the format that the ending of the path names. A path with another ending cannot
/// name a repository; its badge says so.
pub(super) async fn badge(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let (uri, client) = (request.uri(), state.client_ip(&request));
    let query = QueryString::parse(uri.query());
    let path = uri.path().strip_prefix("/badge/").unwrap_or_default();
    match (path.strip_suffix(".svg"), path.strip_suffix(".json")) {
        (None, Some(repo)) => json(&state, repo, &query, client).await,
        (repo, _) => svg(&state, repo.unwrap_or_default(), &query, client).await,
    }
}

/// Badge as SVG
///
/// Always a picture with status 200. A grey badge gives the reason for a missing value. If a lookup at
/// the Hub takes longer than the configured time, by default 3 s, the badge says `pending` and the
/// lookup continues. Invalid options are replaced by their defaults.
#[utoipa::path(
    get,
    path = "/badge/{repo}.svg",
    operation_id = "badge",
    params(RepoParameter, WeightsParameters, BadgeParameters),
    responses(
        (status = OK, description = "The badge.", body = String, content_type = "image/svg+xml"),
        (status = NOT_MODIFIED, description = "The client has the current badge."),
    )
)]
async fn svg(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let (badge, cache_policy) = find(state, repo, query, client).await;
    Reply::svg(badge.svg(&BadgeOptions::from_query(query.pairs())), cache_policy)
}

/// Badge as JSON for shields.io
///
/// The badge in the format of <https://shields.io/badges/endpoint-badge>, always with status 200.
#[utoipa::path(
    get,
    path = "/badge/{repo}.json",
    operation_id = "badgeJson",
    params(RepoParameter, WeightsParameters, BadgeParameters),
    responses(
        (status = OK, description = "The badge.", body = ShieldsEndpoint),
        (status = NOT_MODIFIED, description = "The client has the current badge."),
    )
)]
async fn json(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let (badge, cache_policy) = find(state, repo, query, client).await;
    let mut endpoint = badge.shields_endpoint(&BadgeOptions::from_query(query.pairs()));
    endpoint.cache_seconds = Some(cache_policy.max_age());
    // Serializing numbers and strings cannot fail.
    let json = serde_json::to_vec(&endpoint).unwrap_or_default();
    Reply::json(StatusCode::OK, json, cache_policy)
}

/// Returns the badge for a repository: a value, or a placeholder with the reason why there is none.
async fn find(
    state: &ServiceState,
    repo: &str,
    query: &QueryString<'_>,
    client: IpAddr,
) -> (Badge, CachePolicy) {
    let metric: Metric = query.get("show").and_then(|name| name.parse().ok()).unwrap_or_default();
    let query = match WeightsQuery::parse(repo, query) {
        Ok(query) => query,
        Err(invalid) => return placeholder(&invalid.into(), metric),
    };
    let outcome = state.look_up(&query, client).await;
    match outcome.counted().map(|counted| counted.values.badge(metric)) {
        Some(Some(badge)) => (badge, state.cache_policy(&query)),
        Some(None) => (Badge::placeholder(metric, "unknown"), state.cache_policy(&query)),
        None => placeholder(&ErrorReply::from(&outcome), metric),
    }
}

/// Returns the badge of a failure. Of a gated repository it shows the value that the Hub reports.
fn placeholder(error: &ErrorReply<'_>, metric: Metric) -> (Badge, CachePolicy) {
    let reported = error.reported.and_then(|values| values.badge(metric));
    let badge = reported.unwrap_or_else(|| Badge::placeholder(metric, error.short_reason));
    (badge, error.badge_cache_policy())
}
