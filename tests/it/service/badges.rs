//! Badges, the JSON API, the OpenAPI document and the metrics.

use axum::http::{Method, StatusCode};
use hf_meta::ErrorKind;
use hf_meta_badge::{Logo, Metric, Style, Theme};
use serde_json::{Value, json};

use super::{ask, config, get, router};
use crate::call::layouts;
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support;

#[tokio::test]
async fn a_badge_shows_the_requested_metric() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
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
async fn memory_is_computed_if_it_is_requested() {
    let json =
        r#"{"model_type":"llama","num_hidden_layers":1,"num_key_value_heads":1,"head_dim":64}"#;
    let repo = Repo::new("org/x").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo.file("config.json", File::from_bytes(json))]).unwrap();
    let router = router(&hub, config());
    let plain = get(&router, "/api/models/org/x").await.json();
    assert_eq!(plain["memory"], Value::Null);
    let counted = get(&router, "/api/models/org/x?context=1k").await.json();
    assert_eq!(counted["memory"]["cacheBytes"], 128 * 2 * 1_024);
    let badge = get(&router, "/badge/org/x.svg?show=memory&context=32k").await;
    assert_eq!(badge.title(), "memory: 8.39 MB at 32k");
    let fits = |size: &str| format!("/api/models/org/x?context=1k&fit={size}");
    for (size, expected) in [("1GB", json!(true)), ("0.1MiB", json!(false))] {
        assert_eq!(get(&router, &fits(size)).await.json()["memory"]["fits"], expected);
    }
    let invalid = get(&router, &fits("24")).await;
    assert_eq!(invalid.status, StatusCode::BAD_REQUEST);
    assert_eq!(invalid.json()["error"]["code"], "invalidOption");
    // A badge without its extension has a valid name.
    let badge = get(&router, "/badge/org/x.png").await;
    assert_eq!((badge.status, badge.title()), (StatusCode::OK, "params: add .svg or .json".into()));
}

#[tokio::test]
async fn an_engine_answers_if_it_is_requested() {
    let json = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":1,
        "num_attention_heads":2,"num_key_value_heads":1,"head_dim":64}"#;
    let repo = Repo::new("org/x").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo.file("config.json", File::from_bytes(json))]).unwrap();
    let router = router(&hub, config());
    let path = |query: &str| format!("/api/models/org/x?context=1k&{query}");
    let answer = get(&router, &path("engine=vllm&gpu=2xH100")).await.json();
    let engine = &answer["engine"];
    assert_eq!((&engine["name"], &engine["loads"]), (&json!("vllm"), &json!(true)), "{engine}");
    assert_eq!(engine["memory"]["cacheBytes"], 128 * 2 * 1_024);
    // As in the answers of `verify`, the memory is in one place.
    assert_eq!(answer["memory"], Value::Null, "{answer}");
    let badge = get(&router, "/badge/org/x.svg?show=memory&context=1k&engine=vllm").await;
    assert!(badge.title().starts_with("memory: "), "{}", badge.title());
    assert_ne!(badge.title(), "memory: unknown");
    let without = get(&router, &path("gpu=h100")).await.json();
    assert_eq!(without["engine"], Value::Null);
    assert_eq!(without["memory"]["cacheBytes"], 128 * 2 * 1_024);
    let refused = get(&router, &path("engine=llama.cpp")).await.json();
    assert_eq!(refused["engine"]["reasons"][0]["code"], "format");
    let invalid = [
        ("engine=tgi", "`engine`: expected one of"),
        ("engine=vllm&gpu=h1000", "`gpu`: no GPU is called"),
        ("engine=vllm&tp=0", "`tp`: expected a number from 1 to 1024"),
        ("engine=vllm&pp=9999", "`pp`: expected a number from 1 to 1024"),
        ("engine=vllm&gpu=h100&fit=80GB", "a GPU has a memory"),
    ];
    for (query, message) in invalid {
        let response = get(&router, &path(query)).await;
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{query}");
        let error = response.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.starts_with(message), "{query}: {error}");
    }
}

#[tokio::test]
async fn a_badge_is_served_as_json_for_shields() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
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
async fn an_error_is_a_grey_badge_with_a_short_cache_lifetime() {
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
    let router = router(&hub, config());
    for (path, message, api, code, age) in [
        ("org/none", "not found", 404, "repoNotFound", 60),
        ("org/private", "not found", 404, "repoNotFound", 60),
        ("org/empty", "no weights", 422, "noWeights", 60),
        ("org/broken", "invalid safetensors", 422, "malformedHeader", 10),
        ("org/several", "several sets", 422, "severalSets", 60),
        ("org/part", "shards missing", 422, "missingShards", 10),
        ("org/gated", "gated", 403, "gated", 60),
        ("org/failing", "unavailable", 503, "refused", 10),
    ] {
        let badge = get(&router, &format!("/badge/{path}.svg?color=red")).await;
        assert_eq!((badge.status, badge.title()), (StatusCode::OK, format!("params: {message}")));
        assert!(badge.body.contains("#939393") && !badge.body.contains("#dd4343"), "{path}");
        assert_eq!(badge.header("cache-control"), format!("public, max-age={age}"));
        let model = get(&router, &format!("/api/models/{path}")).await;
        assert_eq!(
            (model.status.as_u16(), &model.json()["error"]["code"]),
            (api, &json!(code)),
            "{path}"
        );
    }
    let nothing = get(&router, "/badge/org/empty.svg?revision=nope").await;
    assert_eq!(nothing.title(), "params: revision not found");
}

#[tokio::test]
async fn a_gated_repo_shows_the_hub_count_as_unverified() {
    let gated = support::sharded("org/gated").gated().hub_reported_count("BF16", 7_615_616_512);
    let hub = LocalHub::start([gated]).unwrap();
    let router = router(&hub, config());
    let badge = get(&router, "/badge/org/gated.svg").await;
    assert_eq!(badge.title(), "params: 7.62B unverified");
    assert_eq!(badge.header("cache-control"), "public, max-age=60");
    assert_eq!(get(&router, "/badge/org/gated.svg?show=shards").await.title(), "shards: gated");
    let model = get(&router, "/api/models/org/gated").await;
    assert_eq!(model.status, StatusCode::FORBIDDEN);
    let reported =
        json!({"parameterCount": {"BF16": 7_615_616_512_u64}, "parameterTotal": 7_615_616_512_u64});
    assert_eq!(model.json()["hubReported"], reported);
}

#[tokio::test]
async fn the_api_returns_the_same_json_as_the_command() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
    for repo in ["gpt2", "bigscience/bloom"] {
        let model = support::client(&hub).model(repo).plan(hf_meta::Plan::Prefetch);
        let mut expected = serde_json::to_value(model.count().await.unwrap()).unwrap();
        let mut found = get(&router, &format!("/api/models/{repo}")).await.json();
        for json in [&mut expected, &mut found] {
            json["fetch"] = Value::Null;
        }
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn every_documented_endpoint_is_served() {
    let hub = support::fixtures_hub();
    let mut config = config();
    config.webhook_secret = Some("s3cr3t".parse().unwrap());
    let package = tempfile::tempdir().unwrap();
    std::fs::create_dir(package.path().join("page")).unwrap();
    std::fs::write(package.path().join("page/index.html"), "<p>").unwrap();
    config.inspector = Some(package.path().into());
    let router = router(&hub, config);
    let document = get(&router, "/openapi.json").await.json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    for (path, item) in document["paths"].as_object().unwrap() {
        if item.get("post").is_some() {
            let seen = ask(&router, Method::POST, path, &[("x-webhook-secret", "s3cr3t")]).await;
            assert_eq!((&**path, seen.status), ("/webhook", StatusCode::BAD_REQUEST));
            continue;
        }
        let path = path.replace("{repo}", "gpt2").replace("{file}", "page/index.html");
        let seen = get(&router, &path).await;
        let responses = &item["get"]["responses"];
        if responses.get("307").is_some() {
            assert_eq!(seen.status, StatusCode::TEMPORARY_REDIRECT, "{path}");
            continue;
        }
        let content = responses["200"]["content"].as_object().unwrap();
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        let kind = seen.header("content-type");
        assert!(content.keys().any(|known| kind.starts_with(known)), "{path}: {kind}");
    }
    let unknown = get(&router, "/nothing/here").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.body.contains("see /openapi.json"), "{}", unknown.body);
}

/// Fails unless the JSON has all required properties of a schema and no property that it lacks.
fn assert_matches_schema(document: &Value, name: &str, json: &Value) {
    let schema = &document["components"]["schemas"][name];
    for field in schema["required"].as_array().unwrap() {
        assert!(json.get(field.as_str().unwrap()).is_some(), "{name} lacks {field}: {json}");
    }
    for field in json.as_object().unwrap().keys() {
        assert!(schema["properties"].get(field).is_some(), "{field} is not a property of {name}");
    }
}

#[tokio::test]
async fn the_documented_schemas_match_the_json() {
    let gated = support::sharded("org/gated").gated().hub_reported_count("BF16", 7);
    let hub = LocalHub::builder()
        .repo(support::sharded("org/model"))
        .repo(layouts::repo("org/several", &["a.safetensors", "b.safetensors"]))
        .repo(gated)
        .start()
        .unwrap();
    let router = router(&hub, config());
    let document = get(&router, "/openapi.json").await.json();
    for (path, schema) in [
        ("/api/models/org/model", "CountReport"),
        ("/api/models/org/several", "Failure"),
        ("/api/models/org/gated", "Failure"),
        ("/api/models/org/none", "Failure"),
        ("/badge/org/model.json?theme=dark&style=social&logo=huggingface", "ShieldsEndpoint"),
        ("/badge/org/none.json", "ShieldsEndpoint"),
    ] {
        assert_matches_schema(&document, schema, &get(&router, path).await.json());
    }
    let sets = &get(&router, "/api/models/org/several").await.json()["otherSets"];
    assert_matches_schema(&document, "WeightSet", &sets[0]);
    let codes = ErrorKind::ALL.iter().map(|kind| kind.code());
    let codes = codes.chain(["pending", "busy", "queryTooLong", "tooManyFiles"]);
    let documented = &document["components"]["schemas"]["Failure"]["properties"]["error"]["properties"]
        ["code"]["enum"];
    assert_eq!(documented, &json!(codes.collect::<Vec<_>>()));
}

#[tokio::test]
async fn the_documented_choices_are_those_of_a_badge() {
    let hub = LocalHub::start([Repo::new("org/x")]).unwrap();
    let document = get(&router(&hub, config()), "/openapi.json").await.json();
    for path in ["/badge/{repo}.svg", "/badge/{repo}.json", "/"] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        for (name, choices) in [
            ("show", Metric::NAMES),
            ("style", Style::NAMES),
            ("theme", Theme::NAMES),
            ("logo", Logo::NAMES),
        ] {
            let parameter = parameters.iter().find(|parameter| parameter["name"] == name).unwrap();
            assert_eq!(parameter["schema"]["enum"], json!(choices), "{path}");
            assert_eq!(parameter["schema"]["default"], choices[0], "{path}");
            assert_eq!(
                (&parameter["in"], &parameter["required"]),
                (&json!("query"), &json!(false))
            );
        }
    }
}

#[tokio::test]
async fn the_metrics_count_requests_results_and_lookups() {
    let hub = support::fixtures_hub();
    let router = router(&hub, config());
    for _ in 0..3 {
        get(&router, "/badge/gpt2.svg").await;
    }
    get(&router, "/badge/org/none.svg").await;
    let text = get(&router, "/metrics").await.body;
    for start in [
        "process_start_time_seconds 1",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_cpu_seconds_total ",
    ] {
        let is_found = text.lines().any(|line| line.starts_with(start));
        assert!(is_found || cfg!(not(target_os = "linux")), "{start} is not in\n{text}");
    }
    for line in [
        "hf_meta_header_cache_hits_total 0",
        r#"hf_meta_requests_total{route="Badge",status="200"} 4"#,
        r#"hf_meta_results_total{source="Memory"} 2"#,
        r#"hf_meta_lookups_total{outcome="counted"} 1"#,
        r#"hf_meta_lookups_total{outcome="repoNotFound"} 1"#,
        "hf_meta_lookups_in_flight 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
