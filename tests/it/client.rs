//! Settings of a client and of single calls.

use std::sync::Arc;
use std::time::Duration;

use hf_meta::{Client, ClientBuilder, DiskCache, Error, ResultOrder, RetryPolicy};

use crate::hub::{Fault, Host, LocalHub};
use crate::support::{self, sharded};

fn hub() -> LocalHub {
    LocalHub::start([sharded("org/model")]).unwrap()
}

fn builder(hub: &LocalHub) -> ClientBuilder {
    Client::builder().endpoint(hub.endpoint()).retry_policy(RetryPolicy::fail_fast())
}

#[tokio::test]
async fn custom_headers_are_sent_to_the_endpoint_only() {
    let hub = hub();
    let client = builder(&hub).header("X-Gateway-Key", "s3cr3t").build().unwrap();
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
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (builder, code) in [
        (Client::builder().header("Range", "bytes=0-7"), "it is reserved for the client"),
        (Client::builder().header("a b", "c"), "the name is invalid"),
        (Client::builder().header("x-key", "s3cr3t\n"), "the value contains invalid characters"),
        (Client::builder().proxy("socks5://user:s3cr3t@proxy.example"), "only HTTP proxies"),
        (Client::builder().proxy(""), "it is not a proxy URL"),
        (Client::builder().root_certificate_pem(""), "the PEM text contains no certificate"),
        (Client::builder().root_certificate_pem(garbage), "failed to set up the HTTP client"),
    ] {
        let shown = format!("{builder:?}");
        let error = builder.build().unwrap_err();
        let chain = support::error_chain(&error);
        assert!(error.is_usage() && chain.contains(code), "{chain}");
        assert!(!format!("{chain}{shown}").contains("s3cr3t"), "{chain} {shown}");
    }
}

/// A client that follows redirects by itself would send all headers to other servers.
#[tokio::test]
async fn a_hook_cannot_enable_redirects() {
    let (hub, elsewhere) = (hub(), hub());
    let origin = elsewhere.endpoint().to_owned();
    hub.inject(move |request, _| Some(Fault::Redirect(302, format!("{origin}{}", request.path))));
    let follow = reqwest::redirect::Policy::limited(10);
    let follow = std::sync::Mutex::new(Some(follow));
    let client = builder(&hub).header("x-key", "s3cr3t").reqwest_hook(move |builder| {
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
    assert!(matches!(call, Err(Error::DeadlineExceeded { limit }) if limit == timeout), "{call:?}");
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
    assert!(read("hf_a").await.unwrap_err().is_rate_limited());
    read("hf_b").await.unwrap();
    let requests = hub.log().len();
    assert!(read("hf_a").await.unwrap_err().is_rate_limited());
    assert_eq!(hub.log().len(), requests, "the second client knows of the limit");
    assert!(matches!(client.with_token("\n"), Err(Error::InvalidToken)));
}

#[tokio::test]
async fn statistics_are_the_sums_of_all_calls() {
    let hub = LocalHub::builder().repo(sharded("org/model")).quota(3_000, Duration::from_secs(300));
    let (hub, folder) = (hub.start().unwrap(), tempfile::tempdir().unwrap());
    let cache = Arc::new(DiskCache::new(folder.path()));
    let client = builder(&hub).header_cache(cache).build().unwrap();
    assert_eq!((client.stats(), client.remaining_quota()), Default::default());
    let first = client.model("org/model").count().await.unwrap();
    let second = client.clone().model("org/model").count().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.calls, stats.cache_hits, stats.cache_misses), (2, 1, 1));
    assert_eq!(stats.requests, hub.log().len() as u64);
    assert_eq!(stats.requests, first.fetch.requests + second.fetch.requests);
    assert_eq!(stats.bytes_read, first.fetch.bytes_read + second.fetch.bytes_read);
    assert_eq!(stats.waited, Duration::ZERO);
    let quota = client.remaining_quota().unwrap();
    assert!(quota.requests > 2_900 && quota.requests < 3_000, "{quota:?}");
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
    let (client, names) = (Client::new().unwrap(), futures::stream::iter(["gpt2"]));
    let model = client.model("gpt2");
    check(model.count());
    check(model.parse_safetensors_metadata());
    check(model.verify());
    check(model.hub_reported_count());
    check(model.weight_sets());
    check(hf_meta::parse_safetensors_metadata("gpt2"));
    let results = client.run_many(names, 1, ResultOrder::Input, async |_, _: &str| {});
    assert!(size_of_val(&results) < 2_048);
    check({
        let client = client.clone();
        async move { client.warm_up().await }
    });
}
