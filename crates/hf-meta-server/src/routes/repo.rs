//! The counts of a repository: `/badge/{repo}.svg`, `/badge/{repo}.json` and `/api/models/{repo}`.
//!
//! Every request for a badge gets one, even if the lookup fails.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use tokio::time::Instant;

use crate::error_reply::ErrorReply;
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta_badge::{Badge, BadgeOptions, Metric};

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

/// Returns the badge as SVG.
async fn svg(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let found = find(state, repo, query, client).await;
    let svg = found.badge.svg(&BadgeOptions::from_query(query.pairs()));
    let FoundBadge { status, cache_policy, fresh_until, .. } = found;
    Reply { status, fresh_until, ..Reply::svg(svg, cache_policy) }
}

/// Returns the badge as JSON for shields.io.
async fn json(state: &ServiceState, repo: &str, query: &QueryString<'_>, client: IpAddr) -> Reply {
    let FoundBadge { badge, cache_policy, status, fresh_until } =
        find(state, repo, query, client).await;
    let mut endpoint = badge.shields_endpoint(&BadgeOptions::from_query(query.pairs()));
    endpoint.cache_seconds = Some(cache_policy.max_age());
    // Serializing numbers and strings cannot fail.
    let json = serde_json::to_vec(&endpoint).unwrap_or_default();
    Reply { fresh_until, ..Reply::json(status, json, cache_policy) }
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

/// Serves the counts of a repository as JSON.
pub(super) async fn counts(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let repo = request.uri().path().strip_prefix("/api/models/").unwrap_or_default();
    let query = match WeightsQuery::parse(repo, &QueryString::parse(request.uri().query())) {
        Ok(query) => query,
        Err(invalid) => return ErrorReply::from(invalid).into_json(),
    };
    let outcome = state.look_up(&query, state.client_ip(&request)).await;
    match outcome.counted() {
        Some(counted) => {
            Reply::json(StatusCode::OK, counted.json.clone(), state.cache_policy(&query))
        }
        None => ErrorReply::from(&outcome).into_json(),
    }
}
