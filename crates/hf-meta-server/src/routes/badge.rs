//! `/badge/{repo}.svg` and `/badge/{repo}.json`: every request gets a badge, even if it fails.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use tokio::time::Instant;

use super::schemas::{BadgeParameters, RepoParameter, WeightsParameters};
use crate::error_reply::ErrorReply;
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta_badge::{Badge, BadgeOptions, Metric, ShieldsEndpoint};

/// Serves a badge in the format of the path's extension. A path with another extension cannot name a repository, and
/// the badge says so.
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
/// Always an image, with status 200 even if the lookup fails. A gray badge shows the reason for a missing value. If a
/// lookup takes longer than the configured time, 3 seconds by default, the badge says `pending` and the lookup
/// continues. Invalid options are replaced by their defaults.
#[utoipa::path(
    get,
    path = "/badge/{repo}.svg",
    operation_id = "badge",
    params(RepoParameter, WeightsParameters, BadgeParameters),
    responses(
        (status = OK, description = "The badge.", body = String, content_type = "image/svg+xml"),
        (status = NOT_MODIFIED, description = "The client already has the current badge."),
        (status = URI_TOO_LONG, description = "The query is too long. The badge says so."),
    )
)]
async fn svg(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let found = find(state, repo, query, client).await;
    let svg = found.badge.svg(&BadgeOptions::from_query(query.pairs()));
    let reply = Reply::svg(svg, found.cache_policy).with_status(found.status);
    reply.fresh_until(found.fresh_until)
}

/// Badge as JSON for shields.io
///
/// The badge in the format of <https://shields.io/badges/endpoint-badge>, with status 200 even if the lookup fails.
#[utoipa::path(
    get,
    path = "/badge/{repo}.json",
    operation_id = "badgeJson",
    params(RepoParameter, WeightsParameters, BadgeParameters),
    responses(
        (status = OK, description = "The badge.", body = ShieldsEndpoint),
        (status = NOT_MODIFIED, description = "The client already has the current badge."),
        (status = URI_TOO_LONG, description = "The query is too long. The badge says so."),
    )
)]
async fn json(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let FoundBadge { badge, cache_policy, status, fresh_until } =
        find(state, repo, query, client).await;
    let mut endpoint = badge.shields_endpoint(&BadgeOptions::from_query(query.pairs()));
    endpoint.cache_seconds = Some(cache_policy.max_age());
    // Serializing numbers and strings cannot fail.
    let json = serde_json::to_vec(&endpoint).unwrap_or_default();
    Reply::json(status, json, cache_policy).fresh_until(fresh_until)
}

/// A badge with the status and the cache policy of its response.
struct FoundBadge {
    badge: Badge,
    status: StatusCode,
    cache_policy: CachePolicy,
    fresh_until: Option<Instant>,
}

/// Returns the badge for a repository: a value, or a placeholder with a reason.
async fn find(
    state: &ServiceState,
    repo: &str,
    query: &QueryString<'_>,
    client: IpAddr,
) -> FoundBadge {
    let metric: Metric = query.get("show").and_then(|name| name.parse().ok()).unwrap_or_default();
    let query = match WeightsQuery::parse(repo, query) {
        Ok(query) => query,
        Err(invalid) => return placeholder(&invalid.into(), metric),
    };
    let outcome = state.look_up(&query, client).await;
    let Some(counted) = outcome.counted() else {
        return placeholder(&ErrorReply::from(&outcome), metric);
    };
    let badge = counted.values.badge(metric);
    FoundBadge {
        badge: badge.unwrap_or_else(|| Badge::placeholder(metric, "unknown")),
        status: StatusCode::OK,
        cache_policy: state.cache_policy(&query),
        fresh_until: state.lookups.fresh_until(&query),
    }
}

/// Returns the badge for a failure. For a gated repository, it shows the value that the Hub reports.
fn placeholder(error: &ErrorReply<'_>, metric: Metric) -> FoundBadge {
    let reported = error.reported.and_then(|values| values.badge(metric));
    FoundBadge {
        badge: reported.unwrap_or_else(|| Badge::placeholder(metric, error.short_reason)),
        status: error.badge_status(),
        cache_policy: error.badge_cache_policy(),
        fresh_until: None,
    }
}
