//! What badges and the JSON say, and for how long it may be kept.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ask, client, get, router, settings};
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::{layouts, support};

#[tokio::test]
async fn figures_of_every_kind() {
    let hub = support::documented();
    let router = router(&hub, settings());
    for (query, title) in [
        ("", "params: 176B"),
        ("?show=params", "params: 176B"),
        ("?show=bytes", "size: 352 GB"),
        ("?show=dtype", "BF16: 176B"),
        ("?show=tensors", "tensors: 845"),
        ("?show=shards", "shards: 72"),
        ("?show=nonsense&style=nonsense&color=nonsense", "params: 176B"),
        ("?label=weights&v=2", "weights: 176B"),
        ("?style=for-the-badge", "PARAMS: 176B"),
        ("?revision=main", "params: 176B"),
    ] {
        let badge = get(&router, &format!("/badge/bigscience/bloom.svg{query}")).await;
        assert_eq!((badge.status, badge.title().as_str()), (StatusCode::OK, title), "{query}");
        assert_eq!(badge.header("content-type"), "image/svg+xml; charset=utf-8");
        assert_eq!(badge.header("content-length"), badge.body.len().to_string());
    }
    let single = get(&router, "/badge/gpt2.svg").await;
    assert_eq!(single.title(), "params: 137M");
}

#[tokio::test]
async fn json_for_shields() {
    let hub = support::documented();
    let router = router(&hub, settings());
    let badge = get(&router, "/badge/gpt2.json?style=social&color=red").await;
    let expected = json!({
        "schemaVersion": 1, "label": "params", "message": "137M", "color": "dd4343",
        "style": "social", "cacheSeconds": 3600,
    });
    assert_eq!((badge.status, badge.json()), (StatusCode::OK, expected));
    let none = get(&router, "/badge/org/none.json").await;
    let expected = json!({
        "schemaVersion": 1, "label": "params", "message": "not found", "color": "939393",
        "isError": true, "cacheSeconds": 60,
    });
    assert_eq!((none.status, none.json()), (StatusCode::OK, expected));
}

#[tokio::test]
async fn errors_are_grey_badges_that_are_soon_asked_for_again() {
    let hub = LocalHub::builder()
        .repo(Repo::new("org/empty").file("README.md", File::whole("")))
        .repo(Repo::new("org/broken").file("model.safetensors", File::whole("")))
        .repo(support::sharded("org/private").private())
        .repo(support::sharded("org/gated").gated())
        .repo(support::sharded("org/failing"))
        .repo(layouts::repo("org/several", &["a.safetensors", "b.safetensors"]))
        .repo(layouts::repo("org/part", &["model-00001-of-00002.safetensors"]))
        .start()
        .unwrap();
    hub.inject(|request, _| {
        request.path.starts_with("/org/failing").then(|| Fault::Status(500, Vec::new()))
    });
    let router = router(&hub, settings());
    for (path, message, api, code, age) in [
        ("org/none", "not found", 404, "notFound", 60),
        ("org/private", "not found", 404, "notFound", 60),
        ("org/empty", "no safetensors", 404, "noSafetensors", 60),
        ("org/broken", "invalid safetensors", 422, "malformed", 60),
        ("org/several", "several sets", 300, "severalSets", 60),
        ("org/part", "shards missing", 422, "malformed", 60),
        ("org/gated", "gated", 403, "denied", 60),
        ("org/failing", "unavailable", 502, "unavailable", 10),
    ] {
        let badge = get(&router, &format!("/badge/{path}.svg?color=red")).await;
        assert_eq!((badge.status, badge.title()), (StatusCode::OK, format!("params: {message}")));
        assert!(badge.body.contains("#939393") && !badge.body.contains("#dd4343"), "{path}");
        assert_eq!(badge.header("cache-control"), format!("public, max-age={age}"));
        let model = get(&router, &format!("/api/models/{path}")).await;
        assert_eq!((model.status.as_u16(), &model.json()["code"]), (api, &json!(code)), "{path}");
    }
    let nothing = get(&router, "/badge/org/empty.svg?revision=nope").await;
    assert_eq!(nothing.title(), "params: revision not found");
}

#[tokio::test]
async fn of_a_gated_repo_the_figures_of_the_hub_are_shown_as_such() {
    let gated = support::sharded("org/gated").gated().claiming("BF16", 7_615_616_512);
    let hub = LocalHub::start([gated]).unwrap();
    let router = router(&hub, settings());
    let badge = get(&router, "/badge/org/gated.svg").await;
    assert_eq!(badge.title(), "params: 7.62B unverified");
    assert_eq!(badge.header("cache-control"), "public, max-age=60");
    assert_eq!(get(&router, "/badge/org/gated.svg?show=shards").await.title(), "shards: gated");
    let model = get(&router, "/api/models/org/gated").await;
    assert_eq!(model.status, StatusCode::FORBIDDEN);
    let claimed =
        json!({"parameterCount": {"BF16": 7_615_616_512_u64}, "parameterTotal": 7_615_616_512_u64});
    assert_eq!(model.json()["claimed"], claimed);
}

#[tokio::test]
async fn the_api_gives_what_the_command_prints() {
    let hub = support::documented();
    let router = router(&hub, settings());
    for repo in ["gpt2", "bigscience/bloom"] {
        let parsed = support::parse(&hub, repo).await.unwrap();
        let mut expected = serde_json::to_value(hf_meta::Summary(&parsed)).unwrap();
        let mut found = get(&router, &format!("/api/models/{repo}")).await.json();
        for json in [&mut expected, &mut found] {
            json["cost"] = Value::Null;
        }
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn headers_for_browsers_proxies_and_readers_that_have_it_already() {
    let hub = support::documented();
    let router = router(&hub, settings());
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
    for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
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

#[tokio::test]
async fn what_is_pinned_is_kept_for_ever() {
    let hub = LocalHub::start([support::sharded("org/model")
        .commit(&"1".repeat(40))
        .file("model.safetensors", support::weights(&["x"]))])
    .unwrap();
    let mut settings = settings();
    settings.fresh = Duration::ZERO;
    let router = router(&hub, settings);
    let path = format!("/badge/org/model.svg?revision={}", "1".repeat(40));
    let badge = get(&router, &path).await;
    assert_eq!(badge.header("cache-control"), "public, max-age=31536000, immutable");
    hub.clear_log();
    get(&router, &path).await;
    assert_eq!(hub.log().len(), 0);
}

/// A branch that moves shows its new figures, and a Hub that fails takes none away.
#[tokio::test]
async fn old_figures_are_shown_while_new_ones_are_looked_for() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let repo = Repo::new("org/moving")
        .commit(&new)
        .file("model.safetensors", support::weights(&["x", "y"]))
        .commit(&old)
        .file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo]).unwrap();
    let mut settings = settings();
    settings.fresh = Duration::ZERO;
    let router = router(&hub, settings);
    let title = async || get(&router, "/badge/org/moving.svg").await.title();
    assert_eq!(title().await, "params: 1");
    hub.inject(|_, _| Some(Fault::Status(500, Vec::new())));
    for _ in 0..20 {
        assert_eq!(title().await, "params: 1");
        tokio::task::yield_now().await;
    }
    hub.inject(|_, _| None);
    hub.move_branch("org/moving", "main", &new);
    // The failed look is kept for a while, and then the new figures appear, whenever that is.
    let client = client(&hub);
    let service = hf_meta::server::Service::new(client, {
        let mut settings = super::settings();
        settings.fresh = Duration::ZERO;
        settings
    });
    let router = service.router();
    assert_eq!(get(&router, "/badge/org/moving.svg").await.title(), "params: 2");
    hub.move_branch("org/moving", "main", &old);
    let mut last = String::new();
    for _ in 0..100_000 {
        last = get(&router, "/badge/org/moving.svg").await.title();
        if last == "params: 1" {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(last, "params: 1");
}

#[tokio::test]
async fn a_slow_look_goes_on_while_the_badge_says_so() {
    let hub = support::documented();
    let mut settings = settings();
    settings.patience = Duration::ZERO;
    let router = router(&hub, settings);
    let first = get(&router, "/badge/bigscience/bloom.svg").await;
    assert_eq!((first.status, first.title().as_str()), (StatusCode::OK, "params: pending"));
    assert_eq!(first.header("cache-control"), "public, max-age=10");
    let api = get(&router, "/api/models/bigscience/bloom").await;
    assert_eq!((api.status, api.header("retry-after")), (StatusCode::ACCEPTED, "5"));
    let started = hub.log().len();
    let title = loop {
        let title = get(&router, "/badge/bigscience/bloom.svg").await.title();
        if title != "params: pending" {
            break title;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(title, "params: 176B");
    assert!(hub.log().len() >= started);
    assert_eq!(hub.log().len(), 3 + 72 * 2, "one look, however often it was asked for");
}

#[tokio::test]
async fn the_document_describes_what_is_served() {
    let hub = support::documented();
    let router = router(&hub, settings());
    let document = get(&router, "/openapi.json").await.json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    for (path, item) in document["paths"].as_object().unwrap() {
        let seen = get(&router, &path.replace("{repo}", "gpt2")).await;
        let content = &item["get"]["responses"]["200"]["content"];
        let kind = content.as_object().unwrap().keys().next().unwrap();
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        assert!(seen.header("content-type").starts_with(kind), "{path}: {kind}");
    }
    let model = get(&router, "/api/models/gpt2").await.json();
    let summary = &document["components"]["schemas"]["Summary"];
    for field in summary["required"].as_array().unwrap() {
        assert!(model.get(field.as_str().unwrap()).is_some(), "{field}");
    }
    let unknown = get(&router, "/nothing/here").await;
    assert_eq!(
        (unknown.status, &unknown.json()["code"]),
        (StatusCode::NOT_FOUND, &json!("notFound"))
    );
}

#[tokio::test]
async fn figures_for_prometheus() {
    let hub = support::documented();
    let router = router(&hub, settings());
    for _ in 0..3 {
        get(&router, "/badge/gpt2.svg").await;
    }
    get(&router, "/badge/org/none.svg").await;
    let text = get(&router, "/metrics").await.body;
    for line in [
        r#"hf_meta_requests_total{route="Badge",status="200"} 4"#,
        r#"hf_meta_lookups_total{source="Memory"} 2"#,
        r#"hf_meta_looks_total{outcome="Read"} 1"#,
        r#"hf_meta_looks_total{outcome="NotFound"} 1"#,
        "hf_meta_looks_in_flight 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
