//! The endpoints of the service. Both the router and the OpenAPI document are built from one list.

mod api;
mod badge;
mod gzip;
mod health;
mod metrics;
mod openapi;
mod page;
pub(super) mod schemas;
mod webhook;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_SECURITY_POLICY, HOST,
    HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode, Version};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;

use super::ServiceConfig;
use super::error_reply::ErrorReply;
use super::metrics::RouteGroup;
use super::reply::{self, CachePolicy, Reply};
use super::state::{PeerAddress, ServiceState};

/// The path of the metrics.
const METRICS: &str = "/metrics";

/// The path of the webhook.
const WEBHOOK: &str = "/webhook";

/// The cache policy of the page's files.
const FILES: CachePolicy = CachePolicy::Revalidate(Duration::from_secs(3_600));

/// An endpoint with its documentation. Its routes are derived from the documented paths.
struct DocumentedEndpoint {
    group: RouteGroup,
    handler: MethodRouter<Arc<ServiceState>>,
    document: utoipa::openapi::OpenApi,
}

/// Builds an endpoint from its group and its handler, which has a `#[utoipa::path]` attribute. The method is `get`
/// unless one precedes the handler. If a handler serves several operations, functions with that attribute follow
/// after `=>`.
macro_rules! endpoint {
    ($group:ident, $module:ident::$handler:ident) => {
        endpoint!($group, get $module::$handler => $module::$handler)
    };
    ($group:ident, $method:ident $module:ident::$handler:ident => $($file:ident::$operation:ident),+) => {{
        #[derive(OpenApi)]
        #[openapi(paths($($file::$operation),+))]
        struct Operations;
        DocumentedEndpoint {
            group: RouteGroup::$group,
            handler: $method($module::$handler),
            document: Operations::openapi(),
        }
    }};
}

/// Returns all endpoints, one per line.
fn endpoints() -> Vec<DocumentedEndpoint> {
    vec![
        endpoint!(Badge, get badge::badge => badge::svg, badge::json),
        endpoint!(Api, api::model),
        endpoint!(Page, page::page),
        endpoint!(Page, page::script),
        endpoint!(Page, page::style),
        endpoint!(Page, page::icon),
        endpoint!(Page, page::icon_without_page),
        endpoint!(Page, page::robots),
        endpoint!(Service, openapi::document),
        endpoint!(Service, health::liveness),
        endpoint!(Service, health::readiness),
        endpoint!(Service, metrics::metrics),
        endpoint!(Service, post webhook::webhook => webhook::webhook),
    ]
}

impl DocumentedEndpoint {
    /// Returns whether the service has this endpoint.
    fn is_served(&self, config: &ServiceConfig) -> bool {
        let paths = &self.document.paths.paths;
        (config.serve_metrics || !paths.contains_key(METRICS))
            && (config.webhook_secret.is_some() || !paths.contains_key(WEBHOOK))
    }

    /// Returns the routes of the endpoint. Repository names contain a slash, so a route ends with a wildcard where
    /// the documented path has `{repo}`.
    fn routes(&self) -> BTreeSet<String> {
        let route = |path: &String| match path.split_once("{repo}") {
            Some((prefix, _)) => format!("{prefix}{{*repo}}"),
            None => path.clone(),
        };
        self.document.paths.paths.keys().map(route).collect()
    }
}

/// Returns the router of all endpoints, which adds the common headers.
pub(super) fn router(state: &Arc<ServiceState>) -> Router {
    let measured = |group| from_fn_with_state((Arc::clone(state), group), measure);
    let mut router = Router::new();
    for endpoint in endpoints() {
        if !endpoint.is_served(&state.config) {
            continue;
        }
        let layers = (measured(endpoint.group), CatchPanicLayer::new());
        let handler = endpoint.handler.clone().layer(layers);
        for route in endpoint.routes() {
            router = router.route(&route, handler.clone());
        }
    }
    router
        .fallback(no_endpoint.layer(measured(RouteGroup::Unknown)))
        .layer((
            from_fn(reply::not_modified),
            from_fn(gzip::compress),
            map_response(add_headers),
            from_fn(check_host),
        ))
        .with_state(Arc::clone(state))
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
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    ),
];

async fn add_headers(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in &HEADERS {
        response.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    response
}

/// Counts a request and its duration.
async fn measure(
    State((state, group)): State<(Arc<ServiceState>, RouteGroup)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let started = Instant::now();
    let response = next.run(request).await;
    state.metrics.request(group, response.status().as_u16(), started.elapsed());
    response
}

/// Returns a router for `/metrics` only.
pub(super) fn metrics_router(state: &Arc<ServiceState>) -> Router {
    Router::new().route(METRICS, get(metrics::metrics)).with_state(Arc::clone(state))
}

/// Rejects requests with no host or several (RFC 9112, section 3.2). Requests that did not arrive on a connection of
/// this service come from another server, which has its own rules.
async fn check_host(request: Request, next: Next) -> Response<Body> {
    let hosts = request.headers().get_all(HOST).iter().count();
    let is_old = request.version() < Version::HTTP_11;
    let is_ours = request.extensions().get::<PeerAddress>().is_some();
    if is_ours && (hosts > 1 || hosts == 0 && !is_old) {
        return Reply::text(
            StatusCode::BAD_REQUEST,
            "the request must have exactly one Host header",
        )
        .into_response();
    }
    next.run(request).await
}

async fn no_endpoint() -> Reply {
    ErrorReply::no_endpoint().into_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_has_a_documented_path_and_one_route() {
        for endpoint in endpoints() {
            let routes = endpoint.routes();
            assert_eq!(routes.len(), 1, "{routes:?}");
        }
    }

    #[test]
    fn every_documented_handler_is_in_the_list_of_endpoints() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/routes");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let sources = files.map(|file| std::fs::read_to_string(file).unwrap());
        let attribute = "\n#[utoipa::path(";
        let documented: usize = sources.map(|source| source.matches(attribute).count()).sum();
        let operations =
            endpoints().into_iter().map(|endpoint| endpoint.document.paths.paths.len());
        assert_eq!(operations.sum::<usize>(), documented);
    }
}
