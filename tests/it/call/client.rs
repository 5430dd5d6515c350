//! Settings of a client and of single calls.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{FutureExt, pending};
use hf_meta::{
    BoxFuture, Cache, CacheKey, Client, ClientBuilder, DiskCache, Error, ErrorKind, Model,
    RetryPolicy,
};

use crate::hub::{Fault, Host, LocalHub};
use crate::support::{self, sharded};

fn hub() -> LocalHub {
    LocalHub::start([sharded("org/model")]).unwrap()
}

fn builder(hub: &LocalHub) -> ClientBuilder {
    Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(RetryPolicy::default().max_attempts(1).max_wait(Duration::ZERO))
}

#[tokio::test]
async fn custom_headers_are_sent_to_the_endpoint_only() {
    let hub = hub();
    let client = builder(&hub).request_header("X-Gateway-Key", "s3cr3t").build().unwrap();
    client.model("org/model").count().await.unwrap();
    let log = hub.log();
    for request in &log {
        let is_sent = request.headers.contains_key("x-gateway-key");
        assert_eq!(is_sent, request.host == Host::Hub, "{}", request.path);
    }
    assert!(log.iter().any(|request| request.host == Host::Cdn));
    assert!(!format!("{client:?}").contains("s3cr3t"));
}

#[test]
fn invalid_settings_are_build_errors() {
    for (builder, code) in vec![
        (Client::builder().request_header("Range", "bytes=0-7"), "it is reserved for the client"),
        (Client::builder().request_header("a b", "c"), "the name is invalid"),
        (
            Client::builder().request_header("x-key", "s3cr3t\n"),
            "the value contains invalid characters",
        ),
        (Client::builder().quota_share(0.0), "`quota_share`: it must be above 0"),
        (Client::builder().quota_share(-1.0), "`quota_share`: it must be above 0"),
        (Client::builder().quota_share(f64::NAN), "`quota_share`: it must be above 0"),
        (Client::builder().quota_share(1.01), "and at most 1"),
        (Client::builder().read_timeout(Duration::MAX), "`read_timeout`: it must be longer than"),
        (Client::builder().connect_timeout(Duration::ZERO), "`connect_timeout`: it must be"),
        (Client::builder().call_timeout(Duration::ZERO), "`call_timeout`: it must be longer than"),
        (Client::builder().max_concurrent_requests(0), "`max_concurrent_requests`: it must be at"),
        (Client::builder().root_certificate_pem(""), "the PEM text contains no certificate"),
    ] {
        let shown = format!("{builder:?}");
        let error = builder.build().unwrap_err();
        let chain = support::error_chain(&error);
        assert!(error.is_usage() && chain.contains(code), "{chain}");
        assert!(!format!("{chain}{shown}").contains("s3cr3t"), "{chain} {shown}");
    }
}

/// The HTTP library shows the password, too, once a request has been sent.
/// A client that follows redirects by itself would send all headers to other servers.
#[tokio::test]
async fn a_hook_cannot_enable_redirects() {
    let (hub, elsewhere) = (hub(), hub());
    let origin = elsewhere.endpoint().to_owned();
    hub.inject(move |request, _| Some(Fault::redirect(302, format!("{origin}{}", request.path))));
    let follow = reqwest::redirect::Policy::limited(10);
    let follow = std::sync::Mutex::new(Some(follow));
    let client = builder(&hub).request_header("x-key", "s3cr3t").reqwest_hook(move |builder| {
        let policy = follow.lock().unwrap().take().unwrap_or_default();
        builder.redirect(policy).user_agent("changed")
    });
    let client = client.build().unwrap();
    client.model("org/model").count().await.unwrap();
    assert!(hub.log().iter().all(|request| request.headers["user-agent"] == "changed"));
    let log = elsewhere.log();
    assert!(!log.is_empty() && log.iter().all(|request| !request.headers.contains_key("x-key")));
}

#[tokio::test(start_paused = true)]
async fn timeouts_can_be_set_per_call() {
    let hub = hub();
    hub.inject(|_, _| Some(Fault::Stall));
    let timeout = Duration::from_millis(30);
    let call = builder(&hub).build().unwrap().model("org/model").timeout(timeout).count().await;
    assert!(
        matches!(call, Err(Error::DeadlineExceeded { limit, .. }) if limit == timeout),
        "{call:?}"
    );
}

/// The wait exceeds the time left, so the call fails at once and says how long the wait is.
#[tokio::test]
async fn a_timeout_includes_waits_for_rate_limits() {
    let timeout = Duration::from_secs(100);
    let max_wait = RetryPolicy::default().max_wait(Duration::from_secs(1_000));
    let read = async |prepare: fn(Model) -> Model, header: (&'static str, &'static str)| {
        let hub = hub();
        hub.inject(move |_, before| {
            let (name, value) = header;
            (before == 0).then(|| Fault::Status(429, vec![(name, value.to_owned())]))
        });
        let client = Client::builder().endpoint(hub.endpoint()).retry_policy(max_wait);
        let client = client.call_timeout(timeout).build().unwrap();
        prepare(client.model("org/model").path("a.safetensors")).count().await
    };
    for header in [("retry-after", "200"), ("ratelimit", r#""resolvers";r=0;t=200"#)] {
        let error = read(|model| model, header).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
        assert!(error.retry_after().is_some_and(|wait| wait > timeout), "{error:?}");
    }
    let header = ("retry-after", "1");
    let error = read(|model| model.timeout(Duration::from_millis(900)), header).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error:?}");
}

/// The runtime of the first call still exists, but nobody drives it. A connection that it owns never responds.
#[test]
fn calls_on_different_runtimes_use_separate_connections() {
    let hub = hub();
    let client = builder(&hub).build().unwrap();
    let runtimes: Vec<_> = (0..3)
        .map(|_| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
        .collect();
    for runtime in runtimes.iter().chain(&runtimes) {
        let report = runtime.block_on(client.model("org/model").count().into_future()).unwrap();
        assert_eq!(report.parameter_count.total(), 2);
    }
}

/// A cache whose operations never end.
#[derive(Debug)]
struct HangingCache;

impl Cache for HangingCache {
    fn get<'a>(&'a self, _: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        pending().boxed()
    }

    fn put<'a>(&'a self, _: &'a CacheKey, _: Vec<u8>) -> BoxFuture<'a, ()> {
        pending().boxed()
    }
}

/// Two entries are read and three are stored, each within a quarter of the time left.
#[tokio::test]
async fn a_hanging_cache_neither_fails_nor_discards_a_call() {
    let hub = hub();
    let client = builder(&hub).header_cache(HangingCache).build().unwrap();
    let timeout = Duration::from_secs(2);
    let report = client.model("org/model").timeout(timeout).count().await.unwrap();
    assert_eq!(report.parameter_count.total(), 2);
}

/// The Hub gives each account a quota, so the rate limit of one must not hold back another.
#[tokio::test]
async fn rate_limits_are_separate_per_token() {
    let hub = LocalHub::builder().repo(sharded("org/model")).token("hf_a").token("hf_b");
    let hub = hub.start().unwrap();
    hub.inject(|request, _| {
        let is_limited = request.authorization.as_deref() == Some("Bearer hf_a");
        is_limited.then(|| Fault::Status(429, vec![("retry-after", "100".to_owned())]))
    });
    let client = builder(&hub).build().unwrap();
    let read = async |token| client.with_token(token).unwrap().model("org/model").count().await;
    assert_eq!(read("hf_a").await.unwrap_err().kind(), ErrorKind::RateLimited);
    let paused = client.with_token("hf_a").unwrap().paused_for();
    assert!(paused.is_some_and(|wait| wait > Duration::from_secs(90)), "{paused:?}");
    assert_eq!(client.paused_for(), None);
    read("hf_b").await.unwrap();
    let requests = hub.log().len();
    assert_eq!(read("hf_a").await.unwrap_err().kind(), ErrorKind::RateLimited);
    assert_eq!(hub.log().len(), requests, "the second client knows of the limit");
    let invalid = client.with_token("\n").unwrap_err();
    assert!(matches!(invalid, Error::InvalidOption { option: "token", .. }), "{invalid:?}");
}

#[tokio::test]
async fn statistics_are_the_sums_of_all_calls() {
    let hub = LocalHub::builder().repo(sharded("org/model")).quota(3_000, Duration::from_secs(300));
    let (hub, folder) = (hub.start().unwrap(), tempfile::tempdir().unwrap());
    let cache = Arc::new(DiskCache::new(folder.path()));
    let client = builder(&hub).header_cache(cache).build().unwrap();
    assert_eq!((client.stats(), client.paused_for()), Default::default());
    let first = client.model("org/model").count().await.unwrap();
    let second = client.clone().model("org/model").count().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.calls, stats.cache_hits, stats.cache_misses), (2, 1, 1));
    assert_eq!(stats.requests, hub.log().len() as u64);
    assert_eq!(stats.requests, first.fetch.requests + second.fetch.requests);
    assert_eq!(stats.bytes_read, first.fetch.bytes_read + second.fetch.bytes_read);
    assert_eq!(stats.waited, Duration::ZERO);
    assert_eq!(client.paused_for(), None);
    let json = serde_json::to_string(&first.fetch).unwrap();
    assert_eq!(serde_json::from_str::<hf_meta::FetchStats>(&json).unwrap(), first.fetch);
    client.with_token("").unwrap().model("org/none").count().await.unwrap_err();
    let later = client.stats();
    assert_eq!((later.calls, later.cache_misses), (3, 2));
    assert!(later.requests > stats.requests);
}

/// Callers embed these futures in their own futures, which are moved and kept on the stack.
#[test]
fn the_futures_of_calls_are_small_and_own_their_data() {
    fn check<Call: Future + Send + 'static>(_: Call) {
        assert!(size_of::<Call>() < 2_048, "{} bytes", size_of::<Call>());
    }
    let model = Client::new().unwrap().model("gpt2");
    check(model.count().into_future());
    check(model.inspect().into_future());
    check(model.parse_safetensors_metadata());
    check(model.verify().into_future());
    check(model.hub_reported_count());
    check(model.weight_sets());
    check(hf_meta::parse_safetensors_metadata("gpt2"));
}
