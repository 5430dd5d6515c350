//! Lifetimes of results: in the service, in browsers and in proxies.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};

use hf_meta::{Client, DiskCache, ErrorKind, RetryPolicy};
use hf_meta_server::Service;
use tower::ServiceExt;

use super::{ask, client, config, get, router, serve};
use crate::hub::{Fault, Host, LocalHub};
use crate::support;

#[tokio::test]
async fn a_badge_has_caching_headers_and_supports_conditional_requests() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
    let badge = get(&router, "/badge/gpt2.svg").await;
    assert_eq!(badge.header("cache-control"), "public, max-age=3600, stale-while-revalidate=86400");
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("cross-origin-resource-policy", "cross-origin"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(badge.header(name), value);
    }
    assert!(badge.header("content-security-policy").starts_with("default-src 'none'"));
    assert_eq!(badge.header("set-cookie"), "");

    let etag = badge.header("etag").to_owned();
    let strong = etag.strip_prefix("W/").unwrap().to_owned();
    for known in [etag.clone(), strong, format!("\"x\", {etag}"), "*".to_owned()] {
        let again =
            ask(&router, Method::GET, "/badge/gpt2.svg", &[("if-none-match", &known)]).await;
        assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""), "{known}");
        assert_eq!(again.header("etag"), etag);
        assert!(again.header("cache-control").starts_with("public"));
    }
    let known = [("if-none-match", etag.as_str())];
    let other = ask(&router, Method::GET, "/badge/gpt2.svg?style=social", &known).await;
    assert_eq!(other.status, StatusCode::OK, "another style is another picture");

    let head = ask(&router, Method::HEAD, "/badge/gpt2.svg", &[]).await;
    assert_eq!((head.status, head.body.as_str()), (StatusCode::OK, ""));
    assert_eq!(head.header("content-length"), badge.body.len().to_string());
    assert_eq!(head.header("etag"), etag);
    assert_eq!(
        ask(&router, Method::POST, "/badge/gpt2.svg", &[]).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

/// Badges that were drawn before are served without the router.
#[tokio::test]
async fn a_repeated_request_has_the_same_response() {
    let hub = support::fixtures_hub();
    let (address, _end) = serve(client(&hub), config()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for path in ["gpt2.svg", "gpt2.json?style=social", "org/none.svg", "gpt2.svg?revision=%00"] {
        let seen = async |known: Option<&str>| {
            let mut request = http.get(format!("{address}/badge/{path}"));
            if let Some(known) = known {
                request = request.header("if-none-match", known);
            }
            let mut response = request.send().await.unwrap();
            response.headers_mut().remove("date");
            let (status, headers) = (response.status(), response.headers().clone());
            (status, headers, response.text().await.unwrap())
        };
        let first = seen(None).await;
        assert_eq!((seen(None).await, seen(None).await), (first.clone(), first.clone()), "{path}");
        let etag = first.1["etag"].to_str().unwrap();
        assert_eq!(seen(Some(etag)).await.0, StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(seen(Some("\"other\"")).await, first, "{path}");
    }
    let metrics = http.get(format!("{address}/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for (status, count) in [(200, 16), (304, 4)] {
        let line = format!(r#"hf_meta_requests_total{{route="Badge",status="{status}"}} {count}"#);
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[tokio::test]
async fn a_badge_is_drawn_again_when_its_count_expires() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (ttl, expected) in [(Duration::from_secs(600), "params: 1"), (Duration::ZERO, "params: 2")]
    {
        hub.move_branch("org/moving", "main", &old);
        let mut config = config();
        config.ttl = ttl;
        let (address, _end) = serve(client(&hub), config).await;
        let badge = async || {
            let badge = http.get(format!("{address}/badge/org/moving.svg")).send().await.unwrap();
            badge.text().await.unwrap()
        };
        assert!(badge().await.contains("params: 1"));
        hub.move_branch("org/moving", "main", &new);
        hub.clear_log();
        let mut last = badge().await;
        while !last.contains(expected) {
            last = badge().await;
        }
        assert_eq!(hub.log().is_empty(), ttl > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_webhook_refreshes_the_badges_of_a_repository() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).branch_ttl(Duration::from_secs(600));
    let client = client.header_cache(DiskCache::new(folder.path())).build().unwrap();
    let mut config = config();
    config.webhook_secret = Some("s3cr3t".parse().unwrap());
    assert!(!format!("{config:?}").contains("s3cr3t"));
    let (address, _end) = serve(client, config).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let badge = async || {
        let badge = http.get(format!("{address}/badge/ORG/moving.svg")).send().await.unwrap();
        badge.text().await.unwrap()
    };
    let send = async |secret: &str, event: String| {
        let request = http.post(format!("{address}/webhook")).header("x-webhook-secret", secret);
        request.body(event).send().await.unwrap().status().as_u16()
    };
    let event = |kind: &str, scope: &str, name: &str| {
        format!(r#"{{"event":{{"scope":"{scope}"}},"repo":{{"type":"{kind}","name":"{name}"}}}}"#)
    };
    assert!(badge().await.contains("params: 1") && badge().await.contains("params: 1"));
    hub.move_branch("org/moving", "main", &new);
    hub.clear_log();
    let push = event("model", "repo.content", "org/moving");
    for (secret, event, status) in [
        ("", push.clone(), 401),
        ("S3cr3t", push.clone(), 401),
        ("s3cr3t", "{}".to_owned(), 400),
        ("s3cr3t", event("model", "repo.content", "../x"), 200),
        ("s3cr3t", format!("{push}{}", " ".repeat(70_000)), 400),
        ("s3cr3t", event("dataset", "repo.content", "org/moving"), 200),
        ("s3cr3t", event("model", "discussion", "org/moving"), 200),
        ("s3cr3t", event("model", "repo.content", "org/other"), 200),
    ] {
        assert_eq!(send(secret, event.clone()).await, status, "{event:.100}");
    }
    assert!(badge().await.contains("params: 1") && hub.log().is_empty());
    assert_eq!(send("s3cr3t", push).await, 200);
    while !badge().await.contains("params: 2") {}
    let other = Service::new(super::client(&hub), super::config()).router();
    assert_eq!(ask(&other, Method::POST, "/webhook", &[]).await.status, StatusCode::NOT_FOUND);
}

/// A lookup that is in flight may have resolved the branch before the push, and a full queue starts no lookup.
#[tokio::test]
async fn a_webhook_that_starts_no_lookup_still_expires_the_result() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    for is_joined in [true, false] {
        let hub = [support::two_commits("org/moving", &old, &new), support::sharded("org/slow")];
        let hub = LocalHub::start(hub).unwrap();
        let client =
            Client::builder().endpoint(hub.endpoint()).read_timeout(Duration::from_secs(1));
        let client = client.retry_policy(RetryPolicy::default().max_attempts(1)).build().unwrap();
        let mut config = config();
        config.webhook_secret = Some("s3cr3t".parse().unwrap());
        // Webhooks and refreshes use at most half of the queue: one lookup.
        (config.max_concurrent_lookups, config.max_queued_lookups) = (2, 0);
        let router = Service::new(client, config).router();
        let title = |repo: &str| {
            let (router, path) = (router.clone(), format!("/badge/{repo}.svg"));
            tokio::spawn(async move { get(&router, &path).await.title() })
        };
        let (repo, host, fault, outcome) = if is_joined {
            let slow = Fault::Trickle { interval: Duration::from_millis(10) };
            ("org/moving", Host::Cdn, slow, "params: 1")
        } else {
            assert_eq!(title("org/moving").await.unwrap(), "params: 1");
            ("org/slow", Host::Hub, Fault::Stall, "params: timed out")
        };
        hub.clear_log();
        hub.inject(move |request, before| {
            let is_of_lookup = is_joined || request.path.contains("slow");
            let is_hit = before == 0 && request.host == host && is_of_lookup;
            is_hit.then(|| fault.clone())
        });
        let in_flight = title(repo);
        let has_begun = async || hub.log().iter().any(|request| request.host == host);
        support::wait_until("the lookup has begun", has_begun).await;
        hub.move_branch("org/moving", "main", &new);
        let event = r#"{"event":{"scope":"repo"},"repo":{"type":"model","name":"org/moving"}}"#;
        let event =
            Request::post("/webhook").header("x-webhook-secret", "s3cr3t").body(Body::from(event));
        let reply = router.clone().oneshot(event.unwrap()).await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(in_flight.await.unwrap(), outcome);
        let mut last = String::new();
        for _ in 0..10_000 {
            last = title("org/moving").await.unwrap();
            if last == "params: 2" {
                break;
            }
        }
        assert_eq!(last, "params: 2", "{outcome}");
    }
}

#[tokio::test]
async fn a_pinned_commit_is_cached_forever() {
    let hub = LocalHub::start([support::sharded("org/model")
        .commit(&"1".repeat(40))
        .file("model.safetensors", support::weights(&["x"]))])
    .unwrap();
    let mut config = config();
    config.ttl = Duration::ZERO;
    let router = router(&hub, config);
    let path = format!("/badge/org/model.svg?revision={}", "1".repeat(40));
    let badge = get(&router, &path).await;
    assert_eq!(badge.header("cache-control"), "public, max-age=31536000, immutable");
    hub.clear_log();
    get(&router, &path).await;
    assert_eq!(hub.log().len(), 0);
}

#[tokio::test]
async fn a_stale_badge_is_served_while_it_is_refreshed() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let mut config = config();
    config.ttl = Duration::ZERO;
    let router = router(&hub, config);
    let title = async || get(&router, "/badge/org/moving.svg").await.title();
    assert_eq!(title().await, "params: 1");
    hub.inject(|_, _| Some(Fault::Status(500, Vec::new())));
    for _ in 0..20 {
        assert_eq!(title().await, "params: 1");
        tokio::task::yield_now().await;
    }
    hub.inject(|_, _| None);
    hub.move_branch("org/moving", "main", &new);
    // The failed lookup delays the next one, so a new service shows the new counts.
    let client = client(&hub);
    let service = hf_meta_server::Service::new(client, {
        let mut config = super::config();
        config.ttl = Duration::ZERO;
        config
    });
    let router = service.router();
    assert_eq!(get(&router, "/badge/org/moving.svg").await.title(), "params: 2");
    hub.move_branch("org/moving", "main", &old);
    let is_old = async || get(&router, "/badge/org/moving.svg").await.title() == "params: 1";
    support::wait_until("the badge is refreshed", is_old).await;
}

#[tokio::test]
async fn a_restart_during_an_outage_serves_the_cached_commit() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let service = |stale_if_error| {
        let client = Client::builder()
            .endpoint(hub.endpoint())
            .retry_policy(RetryPolicy::default().max_attempts(1));
        let client = client.header_cache(DiskCache::new(folder.path()));
        let client = client.stale_if_error(stale_if_error).build().unwrap();
        Service::new(client, config()).router()
    };
    let day = Duration::from_secs(24 * 3_600);
    let title = async |router| get(&router, "/badge/org/model.svg").await.title();
    assert_eq!(title(service(day)).await, "params: 2");
    for outage in
        [Fault::ConnectionReset, Fault::Status(429, Vec::new()), Fault::Status(503, Vec::new())]
    {
        hub.inject(move |_, _| Some(outage.clone()));
        assert_eq!(title(service(day)).await, "params: 2");
        assert_ne!(title(service(Duration::ZERO)).await, "params: 2");
    }
    hub.inject(|_, _| Some(Fault::Status(404, vec![("x-error-code", "RepoNotFound".to_owned())])));
    assert_eq!(title(service(day)).await, "params: not found", "a deleted repository is no outage");
}

/// A Hub that hangs must leave time for the cached commit.
#[tokio::test]
async fn a_hanging_hub_leaves_time_for_the_cached_commit() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let count = async |stale_if_error| {
        let client = Client::builder()
            .endpoint(hub.endpoint())
            .header_cache(DiskCache::new(folder.path()))
            .stale_if_error(stale_if_error)
            .build()
            .unwrap();
        client.model("org/model").timeout(Duration::from_secs(2)).count().await
    };
    let day = Duration::from_secs(24 * 3_600);
    assert!(!count(day).await.unwrap().fetch.stale);
    hub.inject(|_, _| Some(Fault::Stall));
    assert!(count(day).await.unwrap().fetch.stale);
    assert_eq!(count(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Timeout);
}

/// A proxy in front of the Hub may respond while it restarts.
#[tokio::test]
async fn a_response_without_headers_of_a_hub_changes_no_badge() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.ttl = Duration::ZERO;
    let router = router(&hub, config);
    let title = async || {
        let title = get(&router, "/badge/org/model.svg").await.title();
        // The request may have started a lookup in the background.
        let has_ended =
            async || get(&router, "/metrics").await.body.contains("hf_meta_lookups_in_flight 0");
        support::wait_until("no lookup is in flight", has_ended).await;
        title
    };
    assert_eq!(title().await, "params: 2");
    for status in [401, 403, 404, 410] {
        hub.inject(move |_, _| Some(Fault::ForeignStatus(status)));
        hub.clear_log();
        assert_eq!([title().await, title().await], ["params: 2"; 2], "{status}");
        assert!(status > 401 || !hub.log().is_empty(), "the result was looked up");
        let other = get(&router, "/badge/org/other.svg").await.title();
        assert_eq!(other, "params: unavailable", "{status}");
    }
}

#[tokio::test]
async fn a_slow_lookup_continues_while_the_badge_says_pending() {
    let hub = support::fixtures_hub();
    let mut config = config();
    config.lookup_timeout = Duration::ZERO;
    let router = router(&hub, config);
    let first = get(&router, "/badge/bigscience/bloom.svg").await;
    assert_eq!((first.status, first.title().as_str()), (StatusCode::OK, "params: pending"));
    assert_eq!(first.header("cache-control"), "public, max-age=10");
    let api = get(&router, "/api/models/bigscience/bloom").await;
    assert_eq!((api.status, api.header("retry-after")), (StatusCode::ACCEPTED, "5"));
    let started = hub.log().len();
    let title = async || get(&router, "/badge/bigscience/bloom.svg").await.title();
    support::wait_until("the lookup has ended", async || title().await != "params: pending").await;
    assert_eq!(title().await, "params: 176B");
    assert!(hub.log().len() >= started);
    assert_eq!(hub.log().len(), 3 + 72 * 2, "all requests share one lookup");
}
