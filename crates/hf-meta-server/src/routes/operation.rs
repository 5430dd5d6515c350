//! Endpoints for operators and programs: health, metrics, the OpenAPI document and the webhook of the Hub.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::reply::{CachePolicy, Reply};
use crate::state::ServiceState;

/// The OpenAPI document.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

const DAY: CachePolicy = CachePolicy::Revalidate(Duration::from_secs(24 * 3_600));

/// The header with the secret of the webhook (<https://huggingface.co/docs/hub/webhooks>).
const SECRET: &str = "x-webhook-secret";

/// The maximum size of an event in bytes.
const MAX_EVENT_BYTES: usize = 64 << 10;

/// Serves the OpenAPI document.
pub(super) async fn document() -> Reply {
    Reply::json(StatusCode::OK, OPENAPI, DAY)
}

/// Reports that the process is responsive.
pub(super) async fn liveness() -> Reply {
    Reply::text(StatusCode::OK, "ok")
}

/// Reports to a load balancer whether it should send requests to this process.
pub(super) async fn readiness(State(state): State<Arc<ServiceState>>) -> Reply {
    if state.is_shutting_down.load(Ordering::Relaxed) {
        Reply::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
    } else {
        Reply::text(StatusCode::OK, "ok")
    }
}

/// Serves the metrics of the service in the OpenMetrics text format.
pub(super) async fn metrics(State(state): State<Arc<ServiceState>>) -> Reply {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match state.metrics.text() {
        Ok(text) => Reply::new(StatusCode::OK, content_type, text, CachePolicy::NoStore),
        Err(_) => Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "failed to write the metrics"),
    }
}

/// Refreshes the known results of a changed model.
pub(super) async fn webhook(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let secret = request.headers().get(SECRET).map(HeaderValue::as_bytes);
    let expected = state.config.webhook_secret.as_ref();
    if !secret.is_some_and(|secret| expected.is_some_and(|expected| expected.matches(secret))) {
        return Reply::text(StatusCode::UNAUTHORIZED, "the webhook secret is missing or wrong");
    }
    let body = to_bytes(request.into_body(), MAX_EVENT_BYTES);
    let Ok(Ok(body)) = timeout(state.config.client_timeout, body).await else {
        return Reply::text(StatusCode::BAD_REQUEST, "the event is incomplete or too large");
    };
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |pointer| event.pointer(pointer).and_then(Value::as_str);
    let fields = (text("/event/scope"), text("/repo/type"), text("/repo/name"));
    let (Some(scope), Some(kind), Some(name)) = fields else {
        return Reply::text(StatusCode::BAD_REQUEST, "the event is invalid");
    };
    // `repo` and its subscopes, such as `repo.content`, concern the files.
    if kind == "model" && scope.split('.').next() == Some("repo") {
        state.lookups.refresh_repo(name);
    }
    Reply::text(StatusCode::OK, "ok")
}
