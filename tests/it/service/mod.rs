//! Badges, and the service: without a socket, on a socket, and as processes that share a cache.
//!
//! Add a test here if it is about a badge, an endpoint, or a service that many clients use at once. Most tests call the
//! router without a socket.

mod attacks;
mod badge;
mod badges;
mod bounds;
#[cfg(unix)]
mod browser;
mod freshness;
mod hostile;
mod names;
mod operation;
mod process;
mod sets;
mod shared;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use hf_meta::{Client, MemoryCache, RetryPolicy};
use hf_meta_server::{Service, ServiceConfig};
use http_body_util::BodyExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::hub::LocalHub;

/// A response with its whole body.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the title of a badge, which screen readers read.
    fn title(&self) -> String {
        let svg = roxmltree::Document::parse(&self.body).unwrap();
        let title = svg.descendants().find(|node| node.has_tag_name("title")).unwrap();
        title.text().unwrap_or_default().to_owned()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn client(hub: &LocalHub) -> Client {
    let retry = RetryPolicy::default().max_attempts(1);
    Client::builder().endpoint(hub.endpoint()).retry_policy(retry).build().unwrap()
}

/// Returns a client with a header cache in memory, as the command has one on disk.
fn cached_client(hub: &LocalHub) -> Client {
    let cache = MemoryCache::new(1 << 24);
    Client::builder().endpoint(hub.endpoint()).header_cache(cache).build().unwrap()
}

/// Returns a configuration with which requests wait for their lookups.
fn config() -> ServiceConfig {
    let mut config = ServiceConfig::default();
    config.lookup_timeout = Duration::from_secs(60);
    config
}

fn router(hub: &LocalHub, config: ServiceConfig) -> Router {
    Service::new(client(hub), config).router()
}

/// Starts a service on a local port. It shuts down when the sender is dropped.
async fn serve(client: Client, config: ServiceConfig) -> (String, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, end) = oneshot::channel();
    let service = Service::new(client, config);
    tokio::spawn(service.serve(listener, async move { drop(end.await) }));
    (address, sender)
}

async fn ask(router: &Router, method: Method, path: &str, headers: &[(&str, &str)]) -> Seen {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Seen {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

async fn get(router: &Router, path: &str) -> Seen {
    ask(router, Method::GET, path, &[]).await
}
