//! What badges and the JSON say.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{get, router, settings};
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::{layouts, support};

#[tokio::test]
async fn figures_of_every_kind() {
    let hub = support::fixtures_hub();
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
    let hub = support::fixtures_hub();
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
        .repo(Repo::new("org/empty").file("README.md", File::from_bytes("")))
        .repo(Repo::new("org/broken").file("model.safetensors", File::from_bytes("")))
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
    let gated = support::sharded("org/gated").gated().hub_reports("BF16", 7_615_616_512);
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
    let hub = support::fixtures_hub();
    let router = router(&hub, settings());
    for repo in ["gpt2", "bigscience/bloom"] {
        let parsed = support::parse(&hub, repo).await.unwrap();
        let mut expected = serde_json::to_value(parsed.report()).unwrap();
        let mut found = get(&router, &format!("/api/models/{repo}")).await.json();
        for json in [&mut expected, &mut found] {
            json["fetch"] = Value::Null;
        }
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn the_document_describes_what_is_served() {
    let hub = support::fixtures_hub();
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
    let hub = support::fixtures_hub();
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
