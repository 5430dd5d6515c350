//! Limits: coalesced lookups, concurrent lookups, requests per client, connections and request heads.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use futures::future::join_all;
use hf_meta_server::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{ask, client, config, get, router, serve};
use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_concurrent_requests_for_a_new_repo_share_one_lookup() {
    let hub = support::fixtures_hub();
    let (address, _end) = serve(client(&hub), config()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let asks = (0..1_000).map(|n| {
        let style = ["flat", "flat-square", "plastic", "for-the-badge", "social"][n % 5];
        let ask = http.get(format!("{address}/badge/bigscience/bloom.svg?style={style}")).send();
        async move { ask.await.unwrap().error_for_status().unwrap().text().await.unwrap() }
    });
    let badges: HashSet<_> = join_all(asks).await.into_iter().collect();
    assert_eq!(badges.len(), 5);
    assert!(badges.iter().all(|badge| badge.contains("176B")));
    assert_eq!(hub.log().len(), 3 + 72 * 2);
}

#[tokio::test]
async fn a_missing_repo_is_not_looked_up_again_immediately() {
    let hub = LocalHub::start([Repo::new("org/empty")]).unwrap();
    let router = router(&hub, config());
    get(&router, "/badge/org/none.svg").await;
    get(&router, "/badge/org/empty.svg").await;
    let asked = hub.log().len();
    for _ in 0..20 {
        get(&router, "/badge/org/none.svg?style=social").await;
        get(&router, "/api/models/org/empty").await;
    }
    assert_eq!(hub.log().len(), asked);
}

/// A lookup that waits for its turn costs as much as one that is running.
#[tokio::test]
async fn a_client_cannot_fill_the_queue_beyond_its_budget() {
    let hub = LocalHub::start((0..20).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    hub.inject(|_, _| Some(Fault::Stall));
    let mut config = config();
    (config.max_concurrent_lookups, config.max_queued_lookups) = (1, 1_000);
    (config.upstream_requests_per_minute, config.max_requests_per_lookup) = (10, 10);
    config.lookup_timeout = Duration::ZERO;
    let router = router(&hub, config);
    let mut pending = 0;
    for n in 0..20 {
        let title = get(&router, &format!("/badge/org/m{n}.svg")).await.title();
        assert!(["params: pending", "params: busy"].contains(&&*title), "{title}");
        pending += usize::from(title == "params: pending");
    }
    assert_eq!(pending, 5, "of two requests each");
}

#[tokio::test]
async fn the_number_of_lookups_is_limited() {
    let hub = LocalHub::start((0..5).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    hub.inject(|_, _| Some(Fault::Stall));
    let mut config = config();
    (config.max_concurrent_lookups, config.max_queued_lookups) = (1, 1);
    let router = Arc::new(router(&hub, config));
    let waiting: Vec<_> = (0..2)
        .map(|n| {
            let router = Arc::clone(&router);
            tokio::spawn(async move { get(&router, &format!("/badge/org/m{n}.svg")).await.title() })
        })
        .collect();
    support::wait_until("a lookup has begun", async || !hub.log().is_empty()).await;
    let third = get(&router, "/badge/org/m2.svg").await;
    assert_eq!((third.status, third.title().as_str()), (StatusCode::OK, "params: busy"));
    let api = get(&router, "/api/models/org/m2").await;
    assert_eq!((api.status, api.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "60"));
    assert!(
        api.json()["error"]["message"].as_str().unwrap().contains("all clients together"),
        "{}",
        api.json()
    );
    assert!(
        hub.log().iter().all(|request| request.path.starts_with("/org/m0/")),
        "one lookup at a time"
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn refreshes_leave_room_for_new_lookups() {
    let hub = LocalHub::start((0..9).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    let mut config = config();
    (config.ttl, config.lookup_timeout) = (Duration::ZERO, Duration::ZERO);
    (config.max_concurrent_lookups, config.max_queued_lookups) = (1, 5);
    let router = router(&hub, config);
    let title = async |n: usize| get(&router, &format!("/badge/org/m{n}.svg")).await.title();
    for n in 0..8 {
        support::wait_until("the badge is known", async || title(n).await == "params: 2").await;
    }
    hub.inject(|_, _| Some(Fault::Stall));
    for n in 0..8 {
        assert_eq!(title(n).await, "params: 2");
    }
    assert_eq!(title(8).await, "params: pending");
}

#[tokio::test]
async fn the_requests_and_lookups_of_each_client_are_limited() {
    let hub = LocalHub::start((0..5).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    let mut few_lookups = config();
    // Two lookups of five requests each.
    few_lookups.upstream_requests_per_minute = 10;
    few_lookups.max_requests_per_lookup = 10;
    let service = router(&hub, few_lookups);
    let mut titles = vec![];
    for n in 0..4 {
        titles.push(get(&service, &format!("/badge/org/m{n}.svg")).await.title());
    }
    assert_eq!(titles, ["params: 2", "params: 2", "params: busy", "params: busy"]);
    let api = get(&service, "/api/models/org/m4").await;
    assert!(
        api.json()["error"]["message"].as_str().unwrap().contains("this client"),
        "{}",
        api.json()
    );
    assert_eq!(
        get(&service, "/badge/org/m0.svg").await.title(),
        "params: 2",
        "a result from memory needs no lookup"
    );

    let mut few_requests = config();
    few_requests.requests_per_minute = 2;
    let service = router(&hub, few_requests);
    for (n, expected) in ["params: 2", "params: 2", "params: rate limited"].into_iter().enumerate()
    {
        let badge = get(&service, &format!("/badge/org/m{n}.svg")).await;
        assert_eq!((badge.status, badge.title().as_str()), (StatusCode::OK, expected));
    }
    let refused = get(&service, "/api/models/org/m2").await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "60")
    );
    assert_eq!(
        get(&service, "/badge/org/m0.svg").await.title(),
        "params: 2",
        "a result in memory is served before any limit applies"
    );
    assert_eq!(get(&service, "/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn only_a_trusted_proxy_can_name_its_clients() {
    let hub = LocalHub::start((0..3).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    for (proxies, expected) in [(&["127.0.0.0/8"][..], "params: 2"), (&[], "params: rate limited")]
    {
        let mut config = config();
        config.requests_per_minute = 1;
        config.trusted_proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        let (address, _end) = serve(client(&hub), config).await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let ask = async |n: usize, client: &str| {
            let ask = http.get(format!("{address}/badge/org/m{n}.svg"));
            let badge = ask.header("x-forwarded-for", client).send().await.unwrap();
            badge.text().await.unwrap()
        };
        assert!(ask(0, "1.1.1.1").await.contains("params: 2"));
        assert!(ask(1, "1.1.1.2").await.contains(expected), "{proxies:?}");
        assert!(ask(2, "1.1.1.2").await.contains("params: rate limited"), "{proxies:?}");
    }
}

#[tokio::test]
async fn a_shutdown_completes_requests_in_flight() {
    let hub = support::fixtures_hub();
    let mut config = config();
    config.drain_delay = Duration::ZERO;
    let (address, end) = serve(client(&hub), config).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = http.get(format!("{address}/badge/bigscience/bloom.svg")).send();
    let slow = tokio::spawn(async move { ask.await.unwrap().text().await.unwrap() });
    support::wait_until("a lookup has begun", async || !hub.log().is_empty()).await;
    end.send(()).unwrap();
    assert!(slow.await.unwrap().contains("params: 176B"));
    let later = reqwest::Client::builder().no_proxy().build().unwrap();
    assert!(later.get(format!("{address}/healthz")).send().await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_slow_request_head_is_cut_off() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.client_timeout = Duration::from_millis(100);
    let (address, _end) = serve(client(&hub), config).await;
    let stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let trickle = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(5));
        writer.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ").await.unwrap();
        while writer.write_all(b"x").await.is_ok() {
            pace.tick().await;
        }
    });
    let mut answer = Vec::new();
    // The connection ends, or is reset if bytes arrive after its end.
    let _ = reader.read_to_end(&mut answer).await;
    assert_eq!(
        answer, b"",
        "the connection is closed because of its slowness; a long head gets a response"
    );
    trickle.abort();
    let quick = reqwest::get(format!("{address}/healthz")).await.unwrap();
    assert_eq!(quick.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_slow_event_of_a_webhook_is_cut_off() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.client_timeout = Duration::from_millis(200);
    config.webhook_secret = Some("s3cr3t".parse().unwrap());
    let (address, _end) = serve(client(&hub), config).await;
    let stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let trickle = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(5));
        let head = "POST /webhook HTTP/1.1\r\nHost: x\r\nX-Webhook-Secret: s3cr3t\r\n";
        writer.write_all(head.as_bytes()).await.unwrap();
        writer.write_all(b"Content-Length: 60000\r\n\r\n").await.unwrap();
        while writer.write_all(b" ").await.is_ok() {
            pace.tick().await;
        }
    });
    // At this pace, the whole event would take five minutes.
    let mut status = [0; 12];
    let answer = tokio::time::timeout(Duration::from_secs(60), reader.read_exact(&mut status));
    answer.await.expect("an answer before the end of the event").unwrap();
    assert_eq!(&status, b"HTTP/1.1 400");
    trickle.abort();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.client_timeout = Duration::from_millis(100);
    let service = Service::new(client(&hub), config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (router, address) = (service.router(), listener.local_addr().unwrap());
    tokio::spawn(service.serve(listener, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /openapi.json HTTP/1.1\r\nHost: {address}\r\n\r\n");
    // The service stops reading further requests, and then closes the connection.
    while stream.write_all(request.as_bytes()).await.is_ok() {}
    let is_closed = async || get(&router, "/metrics").await.body.contains("hf_meta_connections 0");
    support::wait_until("the connection is closed", is_closed).await;
}

#[tokio::test]
async fn the_connections_of_each_client_are_limited() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    for (proxies, allowed) in [(&[][..], 2), (&["127.0.0.0/8"], 5)] {
        let mut config = config();
        // A client has a quarter of the connections.
        config.max_connections = 8;
        config.trusted_proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        let (address, _end) = serve(client(&hub), config).await;
        let host = address.strip_prefix("http://").unwrap();
        let (mut open, mut answered) = (vec![], 0);
        for _ in 0..5 {
            let mut stream = TcpStream::connect(host).await.unwrap();
            let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let _ = stream.write_all(request.as_bytes()).await;
            let read = stream.read(&mut [0; 16]).await;
            answered += usize::from(read.is_ok_and(|length| length > 0));
            open.push(stream);
        }
        assert_eq!(answered, allowed, "{proxies:?}");
    }
}

#[tokio::test]
async fn a_large_request_head_is_rejected() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let (address, _end) = serve(client(&hub), config()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let long = http.get(format!("{address}/badge/org/model.svg?label={}", "x".repeat(100_000)));
    let refused = long.send().await.map(|response| response.status().as_u16());
    assert!(matches!(refused, Ok(414 | 431) | Err(_)), "{refused:?}");
    let body = http.get(format!("{address}/badge/org/model.svg")).body(vec![0; 10_000_000]);
    // The service never reads a body: it responds or closes the connection, and the next one works.
    drop(body.send().await);
    let router = router(&hub, config());
    assert_eq!(ask(&router, Method::GET, "/healthz", &[]).await.status, StatusCode::OK);
    let next = http.get(format!("{address}/badge/org/model.svg")).send().await.unwrap();
    assert!(next.text().await.unwrap().contains("params: 2"));
}
