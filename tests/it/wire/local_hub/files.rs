//! Large files through the CDN, and small files through the resolve cache.

use reqwest::{Client, Version};

use super::{COMMIT, CONFIG, WEIGHTS, get, get_from, hub, model};
use crate::hub::{File, Host, LocalHub, Repo};

#[tokio::test]
async fn a_large_file_is_redirected_to_the_cdn_with_its_metadata() {
    let hub = hub();
    let first = get_from(&hub, WEIGHTS, &[("range", "bytes=4-7")]).await;
    assert_eq!(first.status, 302);
    assert_eq!(first.header("x-repo-commit"), Some(COMMIT));
    assert_eq!(first.header("x-linked-size"), Some("1000"));
    assert_eq!(first.header("x-linked-etag").map(str::len), Some(64 + 2));
    assert_eq!(first.header("accept-ranges"), Some("bytes"));
    assert_eq!(first.header("ratelimit"), Some(r#""resolvers";r=3000;t=300"#));
    assert_eq!(first.content_length(), first.body.len());
    assert!(first.location().starts_with(hub.cdn_origin()));

    let second = get(first.location(), &[("range", "bytes=4-7")]).await;
    assert_eq!(second.status, 206);
    assert_eq!(second.header("content-range"), Some("bytes 4-7/1000"));
    assert_eq!(second.header("x-repo-commit"), None);
    assert_eq!(second.body, "er\0\0");
}

/// Returns the signed URL for a request with this range.
async fn signed(hub: &LocalHub, range: Option<&str>) -> String {
    get_from(hub, WEIGHTS, &ranged(range)).await.location().to_owned()
}

fn ranged(range: Option<&str>) -> Vec<(&str, &str)> {
    range.into_iter().map(|range| ("range", range)).collect()
}

#[tokio::test]
async fn a_signed_url_serves_only_its_range() {
    let hub = hub();
    let (part, whole) = (signed(&hub, Some("bytes=0-7")).await, signed(&hub, None).await);
    for (url, range, status) in [
        (&part, Some("bytes=0-7"), 206),
        (&part, Some("bytes=0-8"), 403),
        (&part, None, 403),
        (&whole, None, 200),
        (&whole, Some("bytes=0-7"), 403),
    ] {
        assert_eq!(get(url, &ranged(range)).await.status, status, "{url} for {range:?}");
    }
}

#[tokio::test]
async fn a_changed_signed_url_is_rejected() {
    let hub = hub();
    let url = signed(&hub, Some("bytes=0-7")).await;
    let (unsigned, _) = url.split_once('?').unwrap();
    for changed in [
        url.replace("0-7", "0-8"),
        url.replace("Policy=", "Policy=9"),
        url.replace("Signature=", "Signature=f"),
        url.replace("model.safetensors", "config.json"),
        unsigned.to_owned(),
    ] {
        assert_eq!(get(&changed, &[("range", "bytes=0-7")]).await.status, 403, "{changed}");
    }
}

#[tokio::test]
async fn the_cdn_rejects_a_token_and_logs_it() {
    let hub = LocalHub::builder().repo(model()).token("member").start().unwrap();
    let url = signed(&hub, None).await;
    assert_eq!(get(&url, &[("authorization", "Bearer member")]).await.status, 400);
    let last = hub.log().pop().unwrap();
    assert_eq!((last.host, last.status), (Host::Cdn, 400));
    assert_eq!(last.authorization.as_deref(), Some("Bearer member"));
}

#[tokio::test]
async fn ranges_are_strict_and_clamped() {
    let hub = hub();
    for (range, status, content_range) in [
        ("bytes=990-", 206, "bytes 990-999/1000"),
        ("bytes=990-2000", 206, "bytes 990-999/1000"),
        ("bytes=1000-1001", 416, "bytes */1000"),
        ("bytes=7-6", 416, "bytes */1000"),
        ("bytes=-5", 416, "bytes */1000"),
        ("bytes=0-1,4-5", 416, "bytes */1000"),
    ] {
        let response = get(&signed(&hub, Some(range)).await, &[("range", range)]).await;
        assert_eq!(response.status, status, "{range}");
        assert_eq!(response.header("content-range"), Some(content_range), "{range}");
    }
}

#[tokio::test]
async fn a_file_of_terabytes_can_be_read_at_its_end() {
    let size = 7_000_000_000_000;
    let huge = Repo::new("huge").file("model.safetensors", File::padded("head", size));
    let hub = LocalHub::start([huge]).unwrap();
    let range = format!("bytes={}-{}", size - 100_000, size - 1);
    let headers = [("range", &*range)];
    let first = get_from(&hub, "/huge/resolve/main/model.safetensors", &headers).await;
    assert_eq!(get(first.location(), &headers).await.body, vec![0; 100_000]);
}

#[tokio::test]
async fn a_small_file_is_redirected_on_the_same_host() {
    let hub = hub();
    let first = get_from(&hub, CONFIG, &[]).await;
    assert_eq!(first.status, 307);
    assert_eq!(first.header("x-repo-commit"), Some(COMMIT));
    assert_eq!(first.content_length(), first.body.len());
    let (path, query) = first.location().split_once('?').unwrap();
    assert_eq!(path, format!("/api/resolve-cache/models/org/model/{COMMIT}/config.json"));
    assert!(
        query.starts_with("%2Forg%2Fmodel%2Fresolve%2Fmain%2Fconfig.json=&etag=%22"),
        "{query}"
    );

    for target in [first.location(), path] {
        let second = get_from(&hub, target, &[]).await;
        assert_eq!(second.status, 200);
        assert_eq!(second.header("x-repo-commit"), Some(COMMIT));
        assert_eq!(second.header("etag").map(str::len), Some(40 + 2));
        assert_eq!(second.body, r#"{"a":1}"#);
    }
    let part = get_from(&hub, path, &[("range", "bytes=1-3")]).await;
    assert_eq!((part.status, &*part.body), (206, &br#""a""#[..]));
}

#[tokio::test]
async fn the_hub_speaks_http2_and_a_head_response_has_no_body() {
    let hub = hub();
    let client = Client::builder().http2_prior_knowledge().no_proxy().build().unwrap();
    let url = format!("{}{WEIGHTS}", hub.endpoint());
    let response = client.get(&url).send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.bytes().await.unwrap().len(), 1000);
    let response = client.head(&url).send().await.unwrap();
    assert_eq!(response.headers()["content-length"], "1000");
    assert_eq!(response.bytes().await.unwrap().len(), 0);
}
