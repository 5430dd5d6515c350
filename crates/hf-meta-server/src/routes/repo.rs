//! The counts of a repository: `/badge/{repo}.svg`, `/badge/{repo}.json` and `/api/models/{repo}`.
//!
//! Every request for a badge gets one, even if the lookup fails.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;

use crate::failure::Failure;
use crate::lookup_result::LookupResult;
use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};
use hf_meta_badge::{Badge, BadgeOptions};

/// Serves a badge in the format of the path's extension. A path with another extension cannot name a repository, and
/// the badge says so.
pub(super) async fn badge(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let (uri, client) = (request.uri(), state.client_ip(&request));
    let query = QueryString::parse(uri.query());
    let (metric, options) = (query.metric(), BadgeOptions::from_query(query.pairs()));
    let path = uri.path().strip_prefix("/badge/").unwrap_or_default();
    let (svg, json) = (path.strip_suffix(".svg"), path.strip_suffix(".json"));
    let render = |badge: Badge, status, policy: CachePolicy| match (svg, json) {
        (None, Some(_)) => {
            let mut endpoint = badge.shields_endpoint(&options);
            endpoint.cache_seconds = Some(policy.max_age());
            // Serializing numbers and strings cannot fail.
            Reply::json(status, serde_json::to_vec(&endpoint).unwrap_or_default(), policy)
        }
        _ => Reply { status, ..Reply::svg(badge.svg(&options), policy) },
    };
    let failed = |failure: &Failure| {
        render(failure.badge(metric), failure.badge_status(), failure.badge_policy())
    };
    let Some(name) = svg.or(json) else {
        let error = "the address of a badge ends with .svg or .json";
        return failed(&Failure::invalid("add .svg or .json", error));
    };
    let query = match WeightsQuery::parse(name, &query) {
        Ok(query) => query,
        Err(failure) => return failed(&failure),
    };
    match &*state.look_up(&query, client).await {
        LookupResult::Counted(counted) => {
            let badge = Badge::from_report(&counted.report, metric);
            let reply = render(badge, StatusCode::OK, state.cache_policy(&query));
            Reply { fresh_until: state.lookups.fresh_until(&query), ..reply }
        }
        LookupResult::Failed(failure) => failed(failure),
    }
}

/// Serves the counts of a repository as JSON.
pub(super) async fn counts(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let repo = request.uri().path().strip_prefix("/api/models/").unwrap_or_default();
    let query = match WeightsQuery::parse(repo, &QueryString::parse(request.uri().query())) {
        Ok(query) => query,
        Err(failure) => return failure.json(repo),
    };
    match &*state.look_up(&query, state.client_ip(&request)).await {
        LookupResult::Counted(counted) => {
            Reply::json(StatusCode::OK, counted.json.clone(), state.cache_policy(&query))
        }
        LookupResult::Failed(failure) => failure.json(&query.source().to_string()),
    }
}
