//! Programs that use the library: `examples/axum_service.rs`, and four more.

#[expect(dead_code, reason = "its `main`")]
#[path = "../../../examples/axum_service.rs"]
mod axum_service;
mod batch;
mod gallery;
mod object_store;
mod sans_io;

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum_service::app;
use hf_meta::{Client, ClientBuilder, ErrorKind, RepoId, RetryPolicy};
use hf_meta_testing::{Fault, File, MockHub, Repo};
use http_body_util::BodyExt;
use tower::ServiceExt;

/// The codes, predicates and statuses of the page.
fn table() -> Vec<(&'static str, &'static str, u16)> {
    let page = include_str!("../../../src/docs/errors.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let row = |(code, rest): (&'static str, &'static str)| {
        let [predicate, status] = rest.splitn(3, '|').take(2).collect::<Vec<_>>()[..] else {
            panic!("{code}")
        };
        (code, predicate.trim().trim_matches('`'), status.trim().parse().unwrap())
    };
    rows.map(row).collect()
}

#[test]
fn every_kind_of_error_is_documented() {
    let codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(table().iter().map(|row| row.0).collect::<Vec<_>>(), codes);
}

/// A hub with a repository for each permanent error, and with repositories for faults.
fn hub() -> MockHub {
    let weights = || File::safetensors([("a", "F32", &[2, 3][..]), ("b", "BF16", &[4])]);
    let with_weights = |name: &str| Repo::new(name).file("model.safetensors", weights());
    let index = |name: &str, text: &str| {
        Repo::new(name).file("model.safetensors.index.json", File::from_bytes(text.to_owned()))
    };
    MockHub::builder()
        .repo(with_weights("org/model"))
        .repo(with_weights("org/gated").gated())
        .repo(with_weights("org/private").private())
        .repo(with_weights("org/disabled").disabled())
        .repo(Repo::new("org/empty").file("README.md", File::from_bytes("")))
        .repo(
            Repo::new("org/several")
                .file("a.safetensors", weights())
                .file("b.safetensors", weights()),
        )
        .repo(Repo::new("org/part").file("model-00001-of-00002.safetensors", weights()))
        .repo(Repo::new("org/broken").file("model.safetensors", File::from_bytes("")))
        .repo(
            Repo::new("org/page").file("model.safetensors", File::from_bytes("<!DOCTYPE html><p>")),
        )
        .repo(index("org/index", "{}"))
        .repo(index("org/large", &" ".repeat(2_000)))
        .repo(Repo::new("org/fault-listing").file("a.safetensors", weights()))
        .token("hf_good")
        .start()
        .unwrap()
}

/// Returns the fault of a response, by a word in the path of the request.
fn fault(path: &str) -> Option<Fault> {
    let status = |status| Some(Fault::Status(status, Vec::new()));
    let (_, rest) = path.split_once("/fault-")?;
    match rest.split('/').next()? {
        "limited" => Some(Fault::Status(429, vec![("retry-after", "30".to_owned())])),
        "reset" => Some(Fault::ConnectionReset),
        "stall" => Some(Fault::Stall),
        "listing" if path.contains("/tree/") => Some(Fault::HtmlPage { is_chunked: false }),
        "listing" => None,
        code => status(code.parse().ok()?),
    }
}

fn service_client(hub: &MockHub) -> ClientBuilder {
    let retry = RetryPolicy::default().max_attempts(1).max_wait(Duration::ZERO);
    Client::builder().endpoint(hub.endpoint()).retry_policy(retry).max_index_bytes(1_000)
}

/// Answers a request. Returns the status, the wait and the body.
async fn get(client: Client, path: &str) -> (u16, Option<HeaderValue>, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = app(client).oneshot(request).await.unwrap();
    let wait = response.headers().get(header::RETRY_AFTER).cloned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, wait, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_service_answers_each_error_with_the_documented_status() {
    let hub = hub();
    hub.inject(|request, _| fault(&request.path));
    let client = service_client(&hub).build().unwrap();
    let answer = get(client.clone(), "/org/model").await;
    assert_eq!(answer, (200, None, r#"{"BF16":4,"F32":6}"#.to_owned()));
    let cases = [
        ("https://example.org", "invalidSource"),
        ("org/none", "repoNotFound"),
        ("org/private", "repoNotFound"),
        ("org/gated", "gated"),
        ("org/disabled", "forbidden"),
        ("org/empty", "noWeights"),
        ("org/several", "severalSets"),
        ("org/part", "missingShards"),
        ("org/broken", "malformedHeader"),
        ("org/page", "malformedHeader"),
        ("org/index", "malformedIndex"),
        ("org/large", "tooLarge"),
        ("org/fault-limited", "rateLimited"),
        ("org/fault-500", "refused"),
        ("org/fault-503", "refused"),
        ("org/fault-reset", "network"),
        ("org/fault-listing", "malformedListing"),
    ];
    let table = table();
    for (source, code) in cases {
        // A rate limit holds for all later calls of a client.
        let client = service_client(&hub).build().unwrap();
        let error = client.model(source).plan(hf_meta::Plan::Prefetch).count().await.unwrap_err();
        assert_eq!(error.code(), code, "{source}: {error:?}");
        let (_, _, status) = table.iter().find(|row| row.0 == code).unwrap();
        assert_eq!(get(client.clone(), &format!("/{source}")).await.0, *status, "{source}");
    }
    assert_eq!(get(client.clone(), "/org/fault-418").await.0, 502, "not transient");
    let (_, wait, _) = get(client, "/org/fault-limited").await;
    let seconds: u64 = wait.unwrap().to_str().unwrap().parse().unwrap();
    assert!((25..=30).contains(&seconds), "{seconds}");

    let stranger = service_client(&hub).token("hf_wrong").build().unwrap();
    assert_eq!(get(stranger, "/org/private").await.0, 403, "a rejected token");
    let hasty = service_client(&hub).call_timeout(Duration::from_millis(200)).build().unwrap();
    assert_eq!(get(hasty, "/org/fault-stall").await.0, 504);
}

#[tokio::test]
async fn a_batch_continues_after_an_earlier_run() {
    let hub = crate::support::fixtures_hub();
    let client = crate::support::client(&hub);
    let repos = || ["gpt2", "roberta-base", "org/none"].map(|name| name.parse::<RepoId>().unwrap());
    let mut lines = Vec::new();
    batch::run(&client, repos(), &HashSet::new(), &mut lines).await.unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(
        lines.contains(r#""parameters":137022720"#) && lines.contains(r#""error":"repoNotFound""#)
    );
    assert_eq!(batch::finished(&lines), HashSet::from(repos()));
    let requests = hub.log().len();
    batch::run(&client, repos(), &batch::finished(&lines), &mut Vec::new()).await.unwrap();
    assert_eq!(hub.log().len(), requests);
}

#[tokio::test]
async fn a_gallery_has_a_badge_for_every_model() {
    let hub = crate::support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let repos = ["bigscience/bloom", "org/none"].map(|name| name.parse().unwrap());
    gallery::write(&crate::support::client(&hub), &repos, folder.path()).await.unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("bigscience--bloom.svg").contains("176B"));
    assert!(read("org--none.svg").contains("not found"));
    assert!(read("index.html").contains("bigscience/bloom"));
}

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");

/// The fixtures as a store. Like a bucket, it returns only bytes that exist.
struct Fixtures;

impl object_store::Store for Fixtures {
    fn size(&self, path: &str) -> object_store::Result<u64> {
        let (repo, file) = path.rsplit_once('/').unwrap();
        let hub = fs::read(format!("{FIXTURES}/{repo}/hub.json"))?;
        let hub: serde_json::Value = serde_json::from_slice(&hub)?;
        let length = fs::metadata(format!("{FIXTURES}/{path}"))?.len();
        Ok(hub["sizes"][file].as_u64().unwrap_or(length))
    }

    fn read(&self, path: &str, range: Range<u64>) -> object_store::Result<Vec<u8>> {
        let bytes = fs::read(format!("{FIXTURES}/{path}"))?;
        Ok(bytes[usize::try_from(range.start)?..usize::try_from(range.end)?].to_vec())
    }
}

#[test]
fn an_object_store_needs_no_client() {
    let parsed = object_store::count(&Fixtures, "openai/gpt-oss-20b").unwrap();
    assert_eq!(parsed.report().file_count(), 3);
    let bloom = object_store::count(&Fixtures, "bigscience/bloom").unwrap();
    assert_eq!(bloom.parameter_count().total(), 176_247_271_424);
}

#[test]
fn a_custom_reader_needs_no_client() {
    let header = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    let file = [crate::support::file_start(header), vec![0; 24]].concat();
    assert_eq!(sans_io::count(&mut std::io::Cursor::new(file)).unwrap(), 6);
}
