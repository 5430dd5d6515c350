//! `/metrics`: metrics of the service for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;

/// Prometheus metrics
///
/// The metrics of the service in the OpenMetrics text format.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = OK, description = "The metrics.", body = String, content_type = "application/openmetrics-text"))
)]
pub(super) async fn metrics(State(state): State<Arc<ServiceState>>) -> Reply {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match state.metrics.text() {
        Ok(text) => Reply::new(StatusCode::OK, content_type, text, CachePolicy::NoStore),
        Err(_) => Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "failed to write the metrics"),
    }
}
