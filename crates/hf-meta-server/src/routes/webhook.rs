//! `/webhook`: events from the Hub about changed repositories.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::reply::Reply;
use crate::state::ServiceState;

/// The header with the secret of the webhook (<https://huggingface.co/docs/hub/webhooks>).
const SECRET: &str = "x-webhook-secret";

/// The maximum size of an event in bytes.
const MAX_SIZE: usize = 64 << 10;

/// The relevant parts of an event.
#[derive(Deserialize, ToSchema)]
pub(super) struct WebhookEvent {
    event: EventScope,
    repo: EventRepo,
}

/// The scope of an event.
#[derive(Deserialize, ToSchema)]
pub(super) struct EventScope {
    /// The scope. `repo` and its subscopes, such as `repo.content`, concern the files.
    scope: String,
}

/// The repository of an event.
#[derive(Deserialize, ToSchema)]
pub(super) struct EventRepo {
    r#type: String,
    name: String,
}

/// Webhook
///
/// Immediately refreshes the known results of a model. Called by webhooks of the Hub; only available if a webhook
/// secret is configured.
#[utoipa::path(
    post,
    path = "/webhook",
    request_body = WebhookEvent,
    responses(
        (status = OK, description = "The event was accepted. Affected results are refreshed.", body = String, content_type = "text/plain"),
        (status = BAD_REQUEST, description = "The event is invalid or too large."),
        (status = UNAUTHORIZED, description = "The header `X-Webhook-Secret` is missing or wrong."),
    )
)]
pub(super) async fn webhook(State(state): State<Arc<ServiceState>>, request: Request) -> Reply {
    let secret = request.headers().get(SECRET).map(HeaderValue::as_bytes);
    let expected = state.config.webhook_secret.as_ref();
    if !secret.is_some_and(|secret| expected.is_some_and(|expected| expected.matches(secret))) {
        return Reply::text(StatusCode::UNAUTHORIZED, "the webhook secret is missing or wrong");
    }
    let Ok(body) = to_bytes(request.into_body(), MAX_SIZE).await else {
        return Reply::text(StatusCode::BAD_REQUEST, "the event is incomplete or too large");
    };
    let Ok(WebhookEvent { event, repo }) = serde_json::from_slice(&body) else {
        return Reply::text(StatusCode::BAD_REQUEST, "the event is invalid");
    };
    if repo.r#type == "model" && event.scope.split('.').next() == Some("repo") {
        state.lookups.refresh_repo(&repo.name);
    }
    Reply::text(StatusCode::OK, "ok")
}
