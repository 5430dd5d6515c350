//! `/api/models/{repo}`: the counts of a repository as JSON.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::schemas::{CountReportSchema, RepoParameter, WeightsParameters};
use crate::error_reply::ErrorReply;
use crate::reply::Reply;
use crate::state::ServiceState;
use crate::weights_query::{QueryString, WeightsQuery};

/// Counts of a repository
///
/// The same JSON as `hf-meta --json --summary --prefetch`.
#[utoipa::path(
    get,
    path = "/api/models/{repo}",
    params(RepoParameter, WeightsParameters),
    responses(
        (status = OK, description = "The counts.", body = CountReportSchema),
        (status = ACCEPTED, description = "The lookup is in progress. Retry after the number of seconds in `Retry-After`.", body = ErrorReply),
        (status = MULTIPLE_CHOICES, description = "The repository contains several weight sets. Select one of `sets` with `path`.", body = ErrorReply),
        (status = NOT_MODIFIED, description = "The client already has the current counts."),
        (status = BAD_REQUEST, description = "The repository name, the revision or the path is invalid.", body = ErrorReply),
        (status = FORBIDDEN, description = "The repository is gated or private, or the service does not read repositories of its owner. `hubReported` is the Hub's unverified count.", body = ErrorReply),
        (status = NOT_FOUND, description = "The repository, the revision or the file does not exist, or the repository has no safetensors weights.", body = ErrorReply),
        (status = URI_TOO_LONG, description = "The query is too long.", body = ErrorReply),
        (status = UNPROCESSABLE_ENTITY, description = "The files are invalid, or there are too many.", body = ErrorReply),
        (status = TOO_MANY_REQUESTS, description = "This client, or all clients together, sent too many requests.", body = ErrorReply),
        (status = BAD_GATEWAY, description = "The Hub is currently unavailable.", body = ErrorReply),
    )
)]
pub(super) async fn model(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
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
