//! The endpoints of the service, and what their responses have in common.
//!
//! `openapi.json` describes the endpoints.

mod operation;
mod page;
mod repo;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Extensions, Response, StatusCode, Version};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use super::client_ip::PeerAddress;
use super::metrics::RouteGroup;
use super::reply::{self, Reply};
use super::state::ServiceState;

/// The path of the metrics.
const METRICS: &str = "/metrics";

/// The paths of the page that inspects models in the browser.
const INSPECTOR: [&str; 3] = ["/inspect", "/inspect/", "/inspect/{*file}"];

/// The path of the webhook.
const WEBHOOK: &str = "/webhook";

/// The sizes of compressed responses before compression, in bytes. Smaller ones fit into one packet. Anyone can request
/// larger ones at any rate, and each would occupy a core for a large fraction of a second.
const COMPRESSED_BYTES: RangeInclusive<u64> = 1_400..=16_000_000;

/// An endpoint: the group of its metrics, its path, and its handler.
type Endpoint = (RouteGroup, &'static str, MethodRouter<Arc<ServiceState>>);

/// Returns all endpoints, one per line. Repository names contain a slash, so they match a wildcard.
fn endpoints() -> [Endpoint; 16] {
    use RouteGroup::{Api, Badge, Page, Service};
    [
        (Badge, "/badge/{*repo}", get(repo::badge)),
        (Api, "/api/models/{*repo}", get(repo::counts)),
        (Page, "/", get(page::page)),
        (Page, "/app.js", get(page::script)),
        (Page, "/style.css", get(page::style)),
        (Page, "/favicon.svg", get(page::icon)),
        (Page, "/favicon.ico", get(page::icon)),
        (Page, "/robots.txt", get(page::robots)),
        (Page, INSPECTOR[0], get(page::inspector_start)),
        (Page, INSPECTOR[1], get(page::inspector_start)),
        (Page, INSPECTOR[2], get(page::inspector)),
        (Service, "/openapi.json", get(operation::document)),
        (Service, "/healthz", get(operation::liveness)),
        (Service, "/readyz", get(operation::readiness)),
        (Service, METRICS, get(operation::metrics)),
        (Service, WEBHOOK, post(operation::webhook)),
    ]
}

/// Returns the router of all endpoints, which adds the common headers.
pub(super) fn router(state: &Arc<ServiceState>) -> Router {
    let is_served = |path: &str| match path {
        METRICS => state.config.serve_metrics,
        path if INSPECTOR.contains(&path) => state.config.inspector.is_some(),
        WEBHOOK => state.config.webhook_secret.is_some(),
        _ => true,
    };
    let in_group = |group| from_fn_with_state(group, set_group);
    let mut router = Router::new();
    for (group, path, handler) in endpoints().into_iter().filter(|(_, path, _)| is_served(path)) {
        router = router.route(path, handler.layer((in_group(group), CatchPanicLayer::new())));
    }
    let compression = CompressionLayer::new().quality(CompressionLevel::Fastest);
    router
        .fallback(no_endpoint)
        .layer((
            compression.compress_when(is_compressible),
            map_response(add_headers),
            from_fn(check_host),
        ))
        .layer((from_fn_with_state(Arc::clone(state), measure), from_fn(reply::not_modified)))
        .with_state(Arc::clone(state))
}

/// Returns a router for `/metrics` only.
pub(super) fn metrics_router(state: &Arc<ServiceState>) -> Router {
    Router::new().route(METRICS, get(operation::metrics)).with_state(Arc::clone(state))
}

/// Headers that are added to every response, unless its endpoint sets them.
static HEADERS: [(HeaderName, HeaderValue); 6] = [
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    (ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("ETag, Retry-After")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("cross-origin"),
    ),
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(reply::DEFAULT_POLICY)),
];

async fn add_headers(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in &HEADERS {
        response.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    response
}

/// Returns whether a response is worth compressing: the page, its files and large JSON. Badges are small, and are
/// cached uncompressed.
fn is_compressible(
    status: StatusCode,
    _version: Version,
    headers: &HeaderMap,
    _extensions: &Extensions,
) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let texts = ["text/html", "text/css", "text/javascript", "application/json"];
    let is_text =
        text(CONTENT_TYPE).is_some_and(|found| texts.iter().any(|text| found.starts_with(text)));
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    status == StatusCode::OK
        && is_text
        && length.is_some_and(|length| COMPRESSED_BYTES.contains(&length))
}

/// Adds the group of the endpoint to its response.
async fn set_group(
    State(group): State<RouteGroup>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(group);
    response
}

/// Counts a request and its duration, with the final status of its response.
async fn measure(
    State(state): State<Arc<ServiceState>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let started = Instant::now();
    let mut response = next.run(request).await;
    let group = response.extensions_mut().remove::<RouteGroup>().unwrap_or(RouteGroup::Unknown);
    state.metrics.request(group, response.status().as_u16(), started.elapsed());
    response
}

/// Rejects requests with no host or several (RFC 9112, section 3.2). Requests that did not arrive on a connection of
/// this service come from another server, which has its own rules.
async fn check_host(request: Request, next: Next) -> Response<Body> {
    let hosts = request.headers().get_all(HOST).iter().count();
    let is_old = request.version() < Version::HTTP_11;
    let is_ours = request.extensions().get::<PeerAddress>().is_some();
    if is_ours && (hosts > 1 || hosts == 0 && !is_old) {
        let error = "the request must have exactly one Host header";
        return Reply::text(StatusCode::BAD_REQUEST, error).into_response();
    }
    next.run(request).await
}

async fn no_endpoint() -> Reply {
    Reply::text(StatusCode::NOT_FOUND, "no such endpoint; see /openapi.json for all endpoints")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn exactly_the_documented_paths_have_an_endpoint() {
        let document: serde_json::Value = serde_json::from_str(operation::OPENAPI).unwrap();
        let documented = document["paths"].as_object().unwrap().keys();
        let route = |path: &String| match path.split_once("{repo}") {
            Some((prefix, _)) => format!("{prefix}{{*repo}}"),
            None => path.replace("{file}", "{*file}"),
        };
        let paths = endpoints().map(|(_, path, _)| path.to_owned());
        assert_eq!(documented.map(route).collect::<BTreeSet<_>>(), BTreeSet::from(paths));
    }

    #[test]
    fn only_texts_of_moderate_size_are_compressed() {
        let cases = [
            ("application/json; charset=utf-8", 1_399, false),
            ("application/json; charset=utf-8", 1_400, true),
            ("text/html", 16_000_000, true),
            ("application/json; charset=utf-8", 16_000_001, false),
            ("image/svg+xml", 10_000, false),
        ];
        for (kind, length, expected) in cases {
            let kind = (CONTENT_TYPE, HeaderValue::from_static(kind));
            let headers = HeaderMap::from_iter([kind, (CONTENT_LENGTH, length.into())]);
            let is_compressed =
                is_compressible(StatusCode::OK, Version::HTTP_11, &headers, &Extensions::new());
            assert_eq!(is_compressed, expected, "{headers:?}");
        }
    }
}
