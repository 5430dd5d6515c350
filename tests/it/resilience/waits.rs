//! A server that asks to be left alone is, by all calls of a client.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use hf_meta::{Client, Error, HttpError, RetryPolicy};

use super::tireless;
use crate::hub::{Fault, Host, LocalHub, LoggedRequest};
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

fn refused(header: &'static str, value: &str) -> Fault {
    Fault::Status(429, vec![(header, value.to_owned())])
}

/// Refuses every request that comes to the Hub within the window that the first one opens.
fn refuse_for_a_while(hub: &LocalHub, header: &'static str, value: &'static str) {
    let opened = OnceLock::new();
    hub.inject(move |request, _| {
        let is_refused = *opened.get_or_init(|| request.at) + WINDOW > request.at;
        (is_refused && request.host == Host::Hub).then(|| refused(header, value))
    });
}

/// Lets eight tasks of one client read a repo each. When the requests for each came to the Hub.
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

/// A request that was on its way when the refusal came is refused itself; none is sent after.
async fn check_window(header: &'static str, value: &'static str) {
    let hub = hub();
    refuse_for_a_while(&hub, header, value);
    let times = eight_tasks(&hub, &tireless(&hub).build().unwrap()).await;
    let opened = *times.iter().flatten().min().unwrap();
    for times in times {
        let early = times.iter().filter(|at| **at < opened + WINDOW).count();
        assert!(early <= 1, "{early} requests within the window");
        assert_eq!(times.len() - early, 2, "the two ranges, once each");
    }
}

#[tokio::test]
async fn all_tasks_wait_for_the_quota() {
    check_window("ratelimit", r#""resolvers";r=0;t=2"#).await;
}

#[tokio::test]
async fn all_tasks_wait_as_long_as_retry_after_says() {
    check_window("retry-after", "2").await;
}

#[tokio::test]
async fn all_tasks_wait_for_the_date_of_retry_after() {
    let (hub, closes) = (hub(), Instant::now() + WINDOW);
    // A date is cut to seconds.
    let date = httpdate::fmt_http_date(SystemTime::now() + WINDOW + Duration::from_secs(1));
    hub.inject(move |request, _| {
        let is_refused = request.at < closes && request.host == Host::Hub;
        is_refused.then(|| refused("retry-after", &date))
    });
    for times in eight_tasks(&hub, &tireless(&hub).build().unwrap()).await {
        let early = times.iter().filter(|at| **at < closes).count();
        assert!(early <= 1, "{early} requests before the date");
        assert_eq!(times.len() - early, 2, "the two ranges, once each");
    }
}

#[tokio::test]
async fn a_date_too_far_ahead_is_not_waited_for() {
    const HOUR: Duration = Duration::from_secs(3600);
    let hub = hub();
    hub.inject(|_, _| {
        Some(refused("retry-after", &httpdate::fmt_http_date(SystemTime::now() + HOUR)))
    });
    let client = tireless(&hub).build().unwrap();
    let model = client.model("org/model-0").path("model.safetensors");
    let error = model.parse_safetensors_metadata().await.unwrap_err();
    assert!(matches!(error, Error::Refused { attempts: 1, .. }), "{error:?}");
    let Error::Fetch { source, .. } = model.parse_safetensors_metadata().await.unwrap_err() else {
        panic!("the server is asked again");
    };
    let HttpError::RateLimited { wait, .. } = *source else { panic!("{source:?}") };
    assert!(wait <= HOUR && wait > HOUR / 2, "{wait:?}");
    assert_eq!(hub.log().len(), 1);
}

#[tokio::test]
async fn who_comes_later_waits_too() {
    let hub = hub();
    hub.inject(|request, before| {
        let is_first = before == 0 && request.path.contains("/refused/");
        is_first.then(|| refused("ratelimit", r#""resolvers";r=0;t=2"#))
    });
    let client = Client::builder().endpoint(hub.endpoint()).retry(RetryPolicy::never());
    let client = client.build().unwrap();
    let error = client.model("org/model-0").revision("refused").path("model.safetensors");
    match error.parse_safetensors_metadata().await.unwrap_err() {
        Error::Refused { source, attempts: 1, .. } => assert_eq!(source.status, 429),
        other => panic!("{other:?}"),
    }
    let refused_at = hub.log().iter().map(|entry| entry.at).max().unwrap();
    hub.clear_log();
    let times = eight_tasks(&hub, &client).await;
    assert!(times.iter().flatten().all(|at| *at >= refused_at + WINDOW));
}

/// The quota is not what such a refusal is about, and its window is not waited for.
#[tokio::test]
async fn a_refusal_with_something_left_is_tried_again() {
    let hub = hub();
    hub.inject(|request, before| {
        let is_refused = before == 0 && request.host == Host::Hub;
        is_refused.then(|| refused("ratelimit", r#""resolvers";r=3;t=100000"#))
    });
    let times = eight_tasks(&hub, &tireless(&hub).build().unwrap()).await;
    assert!(times.iter().all(|times| times.len() == 4), "each range, twice");
}
