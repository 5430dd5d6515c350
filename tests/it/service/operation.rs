//! Operation: hosts, statuses, crawlers, compression, metrics, drains and owners.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use flate2::read::GzDecoder;
use hf_meta_server::Service;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

#[expect(dead_code, reason = "the example has a main function")]
#[path = "../../../examples/badge_service.rs"]
mod badge_service;

use super::{ask, client, config, get, router};
use crate::hub::LocalHub;
use crate::support;

#[tokio::test]
async fn a_request_needs_exactly_one_host() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Service::new(client(&hub), config()).serve(listener, std::future::pending()));
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n", "200"),
        ("GET /healthz HTTP/1.0\r\n", "200"),
        ("GET /healthz HTTP/1.1\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "400"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{head}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert_eq!(response.split(' ').nth(1), Some(status), "{head}{response}");
        assert!(response.contains("x-content-type-options: nosniff"), "{response}");
    }
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let router = router(&hub, config());
    for (method, path, status) in [
        (Method::POST, "/badge/org/model.svg", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/", StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, "/none", StatusCode::NOT_FOUND),
        (Method::GET, "/robots.txt", StatusCode::OK),
        (Method::GET, "/favicon.ico", StatusCode::OK),
    ] {
        let seen = ask(&router, method, path, &[]).await;
        assert_eq!(seen.status, status, "{path}");
        assert_eq!(seen.header("x-content-type-options"), "nosniff", "{path}");
        assert!(seen.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
    }
    assert!(get(&router, "/robots.txt").await.body.contains("Disallow: /badge/"));
}

#[tokio::test]
async fn the_page_and_large_json_are_compressed_for_clients_that_accept_it() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
    for path in
        ["/?repo=bigscience/bloom", "/api/models/bigscience/bloom", "/openapi.json", "/app.js"]
    {
        let plain = get(&router, path).await;
        assert_eq!(
            (plain.header("content-encoding"), plain.header("vary")),
            ("", "accept-encoding")
        );
        let request = Request::builder().uri(path).header("accept-encoding", "br, gzip;q=0.5");
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let encoding = response.headers().get("content-encoding");
        assert_eq!(encoding.unwrap_or_else(|| panic!("{path}")), "gzip", "{path}");
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut text = String::new();
        GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), plain.body.len());
        assert!(bytes.len() * 2 < text.len(), "{path}: {} of {} bytes", bytes.len(), text.len());
        let known = [("accept-encoding", "gzip"), ("if-none-match", &*etag)];
        let again = ask(&router, Method::GET, path, &known).await.status;
        assert_eq!(again, StatusCode::NOT_MODIFIED, "{path}");
    }
    let refused = [("accept-encoding", "gzip;q=0")];
    let plain = ask(&router, Method::GET, "/app.js", &refused).await;
    assert_eq!(plain.header("content-encoding"), "");
}

#[tokio::test]
async fn only_the_repositories_of_allowed_owners_are_read() {
    let names = ["org/model", "other/model", "datasets/org/model", "datasets/other/model"];
    let hub = LocalHub::start(names.map(support::sharded));
    let (hub, mut config) = (hub.unwrap(), config());
    config.allowed_owners = vec!["Org".to_owned()];
    let router = router(&hub, config);
    assert_eq!(get(&router, "/badge/org/model.svg").await.title(), "params: 2");
    assert_eq!(get(&router, "/badge/datasets/org/model.svg").await.title(), "params: 2");
    hub.clear_log();
    for name in ["other/model", "datasets/other/model", "gpt2"] {
        assert_eq!(
            get(&router, &format!("/badge/{name}.svg")).await.title(),
            "params: not allowed"
        );
        assert_eq!(
            get(&router, &format!("/api/models/{name}")).await.status,
            StatusCode::FORBIDDEN
        );
        assert!(get(&router, &format!("/?repo={name}")).await.body.contains("this owner"));
    }
    assert_eq!(hub.log().len(), 0);
}

#[tokio::test]
async fn metrics_can_have_a_separate_address() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.serve_metrics = false;
    let service = Service::new(client(&hub), config);
    assert_eq!(get(&service.router(), "/metrics").await.status, StatusCode::NOT_FOUND);
    let metrics = service.metrics_router();
    assert!(get(&metrics, "/metrics").await.body.contains("hf_meta_connections"));
    assert_eq!(get(&metrics, "/healthz").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_page_can_be_embedded_if_the_operator_allows_it() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut embedded = config();
    embedded.frame_ancestors = Some("https://huggingface.co".to_owned());
    for (config, ancestors) in [(config(), "'none'"), (embedded, "https://huggingface.co")] {
        let page = get(&router(&hub, config), "/").await;
        let policy = page.header("content-security-policy");
        assert!(policy.ends_with(&format!("frame-ancestors {ancestors}")), "{policy}");
    }
}

#[tokio::test]
async fn the_page_of_the_npm_package_is_served_if_it_was_built() {
    const PATH: &str = "/inspect/page/index.html";

    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    assert_eq!(get(&router(&hub, config()), PATH).await.status, StatusCode::NOT_FOUND);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("page")).unwrap();
    std::fs::write(folder.path().join("page/index.html"), "<!doctype html>").unwrap();
    std::fs::create_dir(folder.path().join("esm")).unwrap();
    for name in ["page/page.js", "esm/any-chunk.js", "esm/index.d.ts", "bin.js", "secret"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    let mut with_page = config();
    with_page.inspector = Some(folder.path().to_owned());
    let router = router(&hub, with_page);
    let page = get(&router, PATH).await;
    assert_eq!((page.status, &*page.body), (StatusCode::OK, "<!doctype html>"));
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    for path in ["/inspect/page/page.js", "/inspect/esm/any-chunk.js"] {
        assert_eq!(
            get(&router, path).await.header("content-type"),
            "text/javascript; charset=utf-8"
        );
    }
    for path in
        ["secret", "page/..%2Fsecret", "page/none.js", "bin.js", "esm/index.d.ts", "page/.js"]
    {
        let seen = get(&router, &format!("/inspect/{path}")).await;
        assert_eq!(seen.status, StatusCode::NOT_FOUND, "{path}");
    }
    // The page reads the Hub of the service, unless the query names another one.
    let hub_query = hub.endpoint().to_string().replace(':', "%3A").replace('/', "%2F");
    for (path, target) in [
        ("/inspect", &*format!("inspect/page/index.html?hub={hub_query}")),
        ("/inspect/", &*format!("page/index.html?hub={hub_query}")),
        ("/inspect/?hub=https%3A%2F%2Fx", "page/index.html?hub=https%3A%2F%2Fx"),
    ] {
        let seen = get(&router, path).await;
        assert_eq!(seen.status, StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(seen.header("location"), target);
    }
    let badges = get(&router, "/?repo=org/model&revision=main&path=model.safetensors").await;
    let endpoint = hub.endpoint().replace(':', "%3A").replace('/', "%2F");
    let link = format!("{}?hub={endpoint}#hf://org/model@main/model.safetensors\"", &PATH[1..]);
    assert!(badges.body.contains(&link), "{link} {}", badges.body);
}

#[tokio::test]
async fn a_draining_service_is_not_ready_but_accepts_connections() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.drain_delay = Duration::from_secs(3_600);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/readyz", listener.local_addr().unwrap());
    let (sender, end) = oneshot::channel::<()>();
    let service = Service::new(client(&hub), config);
    tokio::spawn(service.serve(listener, async move { drop(end.await) }));
    let ready = async || {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        http.get(&url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(ready().await, 200);
    drop(sender);
    support::wait_until("the service is not ready", async || ready().await == 503).await;
    assert_eq!(ready().await, 503, "a new connection is accepted");
}

#[tokio::test]
async fn the_router_can_be_nested_under_a_path() {
    let hub = LocalHub::start([support::sharded("org/one"), support::sharded("org/two")]).unwrap();
    let mut config = config();
    config.requests_per_minute = 1;
    let app = badge_service::app(&Service::new(client(&hub), config));
    let ask = async |path: &str, client: [u8; 4]| {
        let request = Request::builder().uri(path).header("host", "example.org");
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(std::net::SocketAddr::from((client, 1))));
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    };
    assert!(ask("/models/badge/org/one.svg", [10, 0, 0, 1]).await.contains("params: 2"));
    assert!(ask("/models/badge/org/two.svg", [10, 0, 0, 1]).await.contains("rate limited"));
    assert!(ask("/models/badge/org/two.svg", [10, 0, 0, 2]).await.contains("params: 2"));
    let page = ask("/models/?repo=org/one", [10, 0, 0, 3]).await;
    assert!(page.contains("http://example.org/models/badge/org/one.svg"), "{page}");
}
