//! `/openapi.json`: the OpenAPI document of the service.

use std::sync::LazyLock;
use std::time::Duration;

use axum::http::StatusCode;
use utoipa::OpenApi;

use crate::reply::{CachePolicy, Reply};

const DAY: CachePolicy = CachePolicy::Revalidate(Duration::from_secs(24 * 3_600));

/// The OpenAPI document, built from the list of endpoints.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    #[derive(OpenApi)]
    #[openapi(info(
        title = "hf-meta",
        description = "Parameter counts of safetensors checkpoints on the Hugging Face Hub, as badges and JSON.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
        contact(),
    ))]
    struct Info;
    let mut document = Info::openapi();
    for endpoint in super::endpoints() {
        document.merge(endpoint.document);
    }
    // Serializing strings and numbers cannot fail.
    document.to_json().unwrap_or_default()
});

/// OpenAPI document
///
/// The description of these endpoints.
#[utoipa::path(
    get,
    path = "/openapi.json",
    responses((status = OK, description = "The document.", body = Object, content_type = "application/json"))
)]
pub(super) async fn document() -> Reply {
    Reply::json(StatusCode::OK, DOCUMENT.as_str(), DAY)
}
