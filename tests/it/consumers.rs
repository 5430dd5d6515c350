//! Programs that use the library: `examples/axum_service.rs`, and four more.

#[expect(dead_code, reason = "its `main`")]
#[path = "../../examples/axum_service.rs"]
mod axum_service;
mod batch;
mod gallery;
mod object_store;
mod sans_io;

use std::collections::HashSet;
use std::fs;
use std::ops::Range;

use axum::body::Body;
use axum::http::{Request, header};
use axum_service::app;
use hf_meta::{Client, ErrorKind, RepoId};
use hf_meta_testing::{Fault, File, MockHub, Repo};
use http_body_util::BodyExt;
use tower::ServiceExt;

/// The codes, predicates and statuses of the page.
fn table() -> Vec<(&'static str, &'static str, u16)> {
    let page = include_str!("../../src/docs/errors.md");
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

#[tokio::test]
async fn the_service_answers_with_counts_and_with_the_wait_of_a_rate_limit() {
    let weights = File::safetensors([("a", "F32", &[2, 3][..]), ("b", "BF16", &[4])]);
    let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)]).unwrap();
    let client =
        Client::builder().endpoint(hub.endpoint()).retry_policy(hf_meta::RetryPolicy::fail_fast());
    let app = app(client.build().unwrap());
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let wait = response.headers().get(header::RETRY_AFTER).cloned();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, wait, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(get("/org/model").await, (200, None, r#"{"BF16":4,"F32":6}"#.to_owned()));
    assert_eq!(get("/org/none").await.0, 404);
    assert_eq!(get("/https://example.org").await.0, 400);
    hub.inject(|_, _| Some(Fault::Status(429, vec![("retry-after", "30".to_owned())])));
    let (status, wait, _) = get("/org/model").await;
    assert_eq!(status, 503);
    let seconds: u64 = wait.unwrap().to_str().unwrap().parse().unwrap();
    assert!((25..=30).contains(&seconds), "{seconds}");
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

/// The fixtures as a store. Like a bucket, it returns only bytes that exist.
struct Fixtures;

impl object_store::Store for Fixtures {
    fn size(&self, path: &str) -> object_store::Result<u64> {
        let (repo, file) = path.rsplit_once('/').unwrap();
        let hub = fs::read(format!("fixtures/{repo}/hub.json"))?;
        let hub: serde_json::Value = serde_json::from_slice(&hub)?;
        let length = fs::metadata(format!("fixtures/{path}"))?.len();
        Ok(hub["sizes"][file].as_u64().unwrap_or(length))
    }

    fn read(&self, path: &str, range: Range<u64>) -> object_store::Result<Vec<u8>> {
        let bytes = fs::read(format!("fixtures/{path}"))?;
        Ok(bytes[usize::try_from(range.start)?..usize::try_from(range.end)?].to_vec())
    }
}

#[test]
fn an_object_store_needs_no_client() {
    let parsed = object_store::count(&Fixtures, "openai/gpt-oss-20b").unwrap();
    assert_eq!(parsed.report().files(), 3);
    let bloom = object_store::count(&Fixtures, "bigscience/bloom").unwrap();
    assert_eq!(bloom.parameter_count().total(), 176_247_271_424);
}

#[test]
fn an_own_reader_needs_no_client() {
    let header = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    let file = [crate::support::file_start(header), vec![0; 24]].concat();
    assert_eq!(sans_io::count(&mut std::io::Cursor::new(file)).unwrap(), 6);
}
