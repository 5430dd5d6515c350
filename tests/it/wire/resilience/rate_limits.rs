//! Rate limits, which hold back all calls of a client.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use hf_meta::{Client, Error, ErrorKind, HttpErrorKind, RetryPolicy};

use super::many_retries;
use crate::hub::{Fault, Host, LocalHub, LoggedRequest, Repo};
use crate::support;

const TASKS: usize = 8;
const WINDOW: Duration = Duration::from_secs(2);

fn hub() -> LocalHub {
    let repos = (0..TASKS).map(|at| {
        support::sharded(&format!("org/model-{at}"))
            .file("model.safetensors", support::weights(&["w"]))
    });
    LocalHub::start(repos).unwrap()
}

fn too_many_requests(header: &'static str, value: &str) -> Fault {
    Fault::Status(429, vec![(header, value.to_owned())])
}

/// Rejects every request to the Hub in a window that starts with the first request.
fn rate_limit_for_a_window(hub: &LocalHub, header: &'static str, value: &'static str) {
    let opened = OnceLock::new();
    hub.inject(move |request, _| {
        let is_limited = *opened.get_or_init(|| request.at) + WINDOW > request.at;
        (is_limited && request.host == Host::Hub).then(|| too_many_requests(header, value))
    });
}

/// Reads eight repositories in eight tasks of one client. Returns the times of the requests to the Hub, per
/// repository.
async fn eight_tasks(hub: &LocalHub, client: &Client) -> Vec<Vec<Instant>> {
    let calls = (0..TASKS).map(|at| {
        let model = client.model(format!("org/model-{at}")).path("model.safetensors");
        tokio::spawn(async move { model.parse_safetensors_metadata().await })
    });
    for result in join_all(calls).await {
        assert_eq!(result.unwrap().unwrap().parameter_count().total(), 1);
    }
    let mut times: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for LoggedRequest { at, path, .. } in
        hub.log().into_iter().filter(|entry| entry.host == Host::Hub)
    {
        let repo = path.split('/').nth(2).unwrap().to_owned();
        times.entry(repo).or_default().push(at);
    }
    assert_eq!(times.len(), TASKS);
    times.into_values().collect()
}

/// Checks that each task sent at most one request in the window: the one in flight when the first 429 arrived.
async fn check_window(header: &'static str, value: &'static str) {
    let hub = hub();
    rate_limit_for_a_window(&hub, header, value);
    let times = eight_tasks(&hub, &many_retries(&hub).build().unwrap()).await;
    let opened = *times.iter().flatten().min().unwrap();
    for times in times {
        let early = times.iter().filter(|at| **at < opened + WINDOW).count();
        assert!(early <= 1, "{early} requests within the window");
        assert_eq!(times.len() - early, 2, "the two ranges, once each");
    }
}

#[tokio::test]
async fn all_tasks_wait_for_the_quota_to_reset() {
    check_window("ratelimit", r#""resolvers";r=0;t=2"#).await;
}

#[tokio::test]
async fn all_tasks_wait_for_retry_after_seconds() {
    check_window("retry-after", "2").await;
}

#[tokio::test]
async fn all_tasks_wait_until_the_retry_after_date() {
    let (hub, closes) = (hub(), Instant::now() + WINDOW);
    // HTTP dates are truncated to seconds.
    let date = httpdate::fmt_http_date(SystemTime::now() + WINDOW + Duration::from_secs(1));
    hub.inject(move |request, _| {
        let is_limited = request.at < closes && request.host == Host::Hub;
        is_limited.then(|| too_many_requests("retry-after", &date))
    });
    for times in eight_tasks(&hub, &many_retries(&hub).build().unwrap()).await {
        let early = times.iter().filter(|at| **at < closes).count();
        assert!(early <= 1, "{early} requests before the date");
        assert_eq!(times.len() - early, 2, "the two ranges, once each");
    }
}

#[tokio::test]
async fn an_excessive_wait_fails_immediately() {
    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);
    let hub = hub();
    hub.inject(|_, _| {
        Some(too_many_requests("retry-after", &httpdate::fmt_http_date(SystemTime::now() + HOUR)))
    });
    let policy = RetryPolicy::default().max_wait(MINUTE);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(policy).build().unwrap();
    let model = client.model("org/model-0").path("model.safetensors");
    let error = model.parse_safetensors_metadata().await.unwrap_err();
    assert!(matches!(error, Error::Refused { attempts: 1, .. }), "{error:?}");
    let Error::RequestFailed { source, .. } = model.parse_safetensors_metadata().await.unwrap_err()
    else {
        panic!("a second request was sent");
    };
    let HttpErrorKind::RateLimited { wait } = source.kind else { panic!("{source:?}") };
    assert!(wait > MINUTE && wait <= 5 * MINUTE + Duration::from_secs(1), "{wait:?}");
    assert_eq!(hub.log().len(), 1);
}

#[tokio::test]
async fn fail_fast_does_not_wait() {
    let hub = hub();
    hub.inject(|request, _| {
        let is_hub = request.host == Host::Hub;
        is_hub.then(|| too_many_requests("ratelimit", r#""resolvers";r=0;t=196"#))
    });
    let client = Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(RetryPolicy::default().max_attempts(1).max_wait(Duration::ZERO));
    let client = client.build().unwrap();
    let model = client.model("org/model-0").path("model.safetensors");
    let error = model.parse_safetensors_metadata().await.unwrap_err();
    let Error::Refused { source, attempts: 1, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.retry_after, Some(Duration::from_secs(197)));
    let error = model.parse_safetensors_metadata().await.unwrap_err();
    assert!(error.kind() == ErrorKind::RateLimited && error.is_transient(), "{error:?}");
    let wait = error.retry_after().unwrap();
    assert!(wait > Duration::from_secs(90) && wait <= Duration::from_secs(197), "{wait:?}");
    assert!(matches!(error, Error::RequestFailed { .. }), "{error:?}");
    assert_eq!(hub.log().len(), 1);
}

/// Everybody can ask for repositories that need a listing.
#[tokio::test]
async fn an_exhausted_listing_quota_does_not_block_other_repositories() {
    let unusual = Repo::new("org/unusual").file("weights.safetensors", support::weights(&["w"]));
    let hub = LocalHub::start([unusual, support::sharded("org/model")]).unwrap();
    hub.inject(|request, _| {
        let is_listing = request.path.starts_with("/api/models/");
        is_listing.then(|| Fault::Header("ratelimit", r#""api";r=0;t=290"#.to_owned()))
    });
    let client = Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(RetryPolicy::default().max_attempts(1).max_wait(Duration::ZERO));
    let client = client.build().unwrap();
    let count = async |repo| client.model(repo).count().await.map(|report| report.commit);
    assert!(count("org/unusual").await.is_ok());
    assert!(count("org/model").await.is_ok());
    let error = count("org/unusual").await.unwrap_err();
    assert!(matches!(error, Error::RequestFailed { .. }), "{error:?}");
}

/// The Hub assigns quotas to accounts, and to addresses without a token.
#[tokio::test]
async fn the_quota_of_a_rejected_token_does_not_hold_anonymous_requests() {
    let repo = Repo::new("org/model").file("model.safetensors", support::weights(&["w"]));
    let hub = LocalHub::builder().repo(repo).token("hf_good").start().unwrap();
    hub.inject(|request, _| {
        let exhausted = || Fault::Header("ratelimit", r#""resolvers";r=0;t=290"#.to_owned());
        request.authorization.as_ref().map(|_| exhausted())
    });
    let client = Client::builder().endpoint(hub.endpoint()).token("hf_expired");
    let client = client.retry_policy(RetryPolicy::default().max_wait(Duration::ZERO));
    let model = client.build().unwrap().model("org/model").path("model.safetensors");
    model.count().await.unwrap();
}

/// One limit for all calls of a client.
#[tokio::test]
async fn the_requests_in_flight_of_all_calls_are_limited() {
    let hub = hub();
    let client =
        Client::builder().endpoint(hub.endpoint()).max_concurrent_requests(1).build().unwrap();
    eight_tasks(&hub, &client).await;
    assert_eq!(hub.connections_made(Host::Hub), 1);
}

#[tokio::test]
async fn a_later_call_waits_too() {
    let hub = hub();
    hub.inject(|request, before| {
        let is_first = before == 0 && request.path.contains("/limited/");
        is_first.then(|| too_many_requests("ratelimit", r#""resolvers";r=0;t=2"#))
    });
    let client = Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(RetryPolicy::default().max_attempts(1));
    let client = client.build().unwrap();
    let error = client.model("org/model-0").revision("limited").path("model.safetensors");
    match error.parse_safetensors_metadata().await.unwrap_err() {
        Error::Refused { source, attempts: 1, .. } => assert_eq!(source.status, 429),
        other => panic!("{other:?}"),
    }
    let limited_at = hub.log().iter().map(|entry| entry.at).max().unwrap();
    hub.clear_log();
    let times = eight_tasks(&hub, &client).await;
    assert!(times.iter().flatten().all(|at| *at >= limited_at + WINDOW));
}

/// Such a 429 has another reason than the quota, so the reset is not waited for.
#[tokio::test]
async fn a_429_with_remaining_quota_is_retried_soon() {
    let hub = hub();
    hub.inject(|request, before| {
        let is_limited = before == 0 && request.host == Host::Hub;
        is_limited.then(|| too_many_requests("ratelimit", r#""resolvers";r=3;t=100000"#))
    });
    let times = eight_tasks(&hub, &many_retries(&hub).build().unwrap()).await;
    assert!(times.iter().all(|times| times.len() == 4), "each range, twice");
}
