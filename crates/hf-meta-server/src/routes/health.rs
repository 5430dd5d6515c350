//! `/healthz` and `/readyz`: checks for a service manager or a load balancer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::StatusCode;

use crate::reply::Reply;
use crate::state::ServiceState;

/// Liveness
///
/// Indicates that the process is responsive.
#[utoipa::path(
    get,
    path = "/healthz",
    responses((status = OK, description = "The process is responsive.", body = String, content_type = "text/plain"))
)]
pub(super) async fn liveness() -> Reply {
    Reply::text(StatusCode::OK, "ok")
}

/// Readiness
///
/// Indicates whether a load balancer should send requests to this process.
#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = OK, description = "The process accepts requests.", body = String, content_type = "text/plain"),
        (status = SERVICE_UNAVAILABLE, description = "The process is shutting down.", body = String, content_type = "text/plain"),
    )
)]
pub(super) async fn readiness(State(state): State<Arc<ServiceState>>) -> Reply {
    if state.is_shutting_down.load(Ordering::Relaxed) {
        Reply::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
    } else {
        Reply::text(StatusCode::OK, "ok")
    }
}
