//! Programs that use the library, as they are in `examples`.

#[expect(dead_code, reason = "its `main`")]
#[path = "../../examples/axum_service.rs"]
mod axum_service;

use axum::body::Body;
use axum::http::{Request, header};
use axum_service::{Failure, app};
use hf_meta::Client;
use hf_meta::testing::{ERROR_CODES, Fault, File, Hub, Repo, error};
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
fn the_service_answers_every_error_as_documented() {
    let rows = table();
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), ERROR_CODES);
    for (code, predicate, status) in rows {
        let error = error(code).unwrap();
        let holds: Vec<_> = [
            ("is_usage", error.is_usage()),
            ("is_not_found", error.is_not_found()),
            ("is_denied", error.is_denied()),
            ("has_no_weights", error.has_no_weights()),
            ("is_malformed", error.is_malformed()),
            ("is_transient", error.is_transient()),
        ]
        .into_iter()
        .filter_map(|(name, holds)| holds.then_some(name))
        .collect();
        assert_eq!((error.code(), holds.join(" ")), (code, predicate.to_owned()));
        assert_eq!(Failure(error).status().as_u16(), status, "{code}");
    }
}

#[tokio::test]
async fn the_service_answers_with_counts_and_with_the_wait_of_a_rate_limit() {
    let weights = File::safetensors([("a", "F32", &[2, 3][..]), ("b", "BF16", &[4])]);
    let hub = Hub::start([Repo::new("org/model").file("model.safetensors", weights)]).unwrap();
    let client =
        Client::builder().endpoint(hub.endpoint()).retry(hf_meta::RetryPolicy::fail_fast());
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
