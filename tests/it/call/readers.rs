//! Readers with different tokens share cached headers, and each reads only what the Hub lets it read.

use std::time::Duration;

use futures::future::join_all;
use hf_meta::{CacheMode, Client, MemoryCache};

use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

/// Starts a Hub with a gated, a private and a public repository, and two tokens.
fn hub() -> LocalHub {
    let repos = [
        support::sharded("org/gated").gated(),
        support::sharded("org/private").private(),
        support::sharded("org/public"),
    ];
    let hub = LocalHub::builder().repos(repos).token("hf_a").token("hf_b");
    hub.unprivileged_token("hf_other").start().unwrap()
}

/// Returns the number of requests since the last call of this function.
fn requests(hub: &LocalHub) -> usize {
    let requests = hub.log().len();
    hub.clear_log();
    requests
}

fn cached(hub: &LocalHub) -> Client {
    let client = Client::builder().endpoint(hub.endpoint()).header_cache(MemoryCache::new(1 << 24));
    client.build().unwrap()
}

#[tokio::test]
async fn concurrent_calls_of_different_tokens_are_separate() {
    let hub = hub();
    let client = support::client(&hub);
    let calls = ["hf_a", "hf_other", "", "hf_a"]
        .map(|token| client.with_token(token).unwrap().model("org/private").count().into_future());
    let found = join_all(calls).await.into_iter().map(|result| result.is_ok());
    assert_eq!(found.collect::<Vec<_>>(), [true, false, false, true]);
    let allowed = client.with_token("hf_b").unwrap().model("org/private").count().await;
    assert!(allowed.is_ok());
}

/// The response that names the commit shows that its reader may read it.
#[tokio::test]
async fn another_token_reads_a_cached_commit_after_the_first_response() {
    let hub = hub();
    let client = cached(&hub);
    let with = |token: &str, repo: &str| client.with_token(token).unwrap().model(repo);
    for repo in ["org/public", "org/gated", "org/private"] {
        let first = with("hf_a", repo).count().await.unwrap();
        requests(&hub);
        let second = with("hf_b", repo).count().await.unwrap();
        assert_eq!(second.parameter_count, first.parameter_count);
        let shards =
            |path: &str| path.ends_with("/a.safetensors") || path.ends_with("/b.safetensors");
        assert!(hub.log().iter().all(|request| !shards(&request.path)), "{repo}");
        assert!(second.fetch.requests < first.fetch.requests);
        hub.clear_log();

        let commit = first.commit.unwrap();
        let pinned = with("hf_b", repo).revision(commit.as_str()).count().await.unwrap();
        assert_eq!((pinned.fetch.requests, requests(&hub)), (0, 0));
        for token in ["", "hf_other"] {
            for revision in ["main", commit.as_str()] {
                let read = with(token, repo).revision(revision).count().await;
                assert_eq!(read.is_ok(), repo == "org/public", "{repo} {token:?} {revision}");
            }
        }
        requests(&hub);
    }
}

/// A response without the file does not show that the reader may read it.
#[tokio::test]
async fn a_missing_file_authorises_nobody() {
    let hub = hub();
    let client = cached(&hub);
    let with = |token: &str| client.with_token(token).unwrap().model("org/gated");
    with("hf_a").count().await.unwrap();
    let gone =
        vec![("x-error-code", "EntryNotFound".to_owned()), ("x-repo-commit", "1".repeat(40))];
    hub.inject(move |request, _| {
        request.path.contains("/resolve/main/").then(|| Fault::Status(404, gone.clone()))
    });
    assert!(with("hf_other").count().await.is_err());
}

/// The files of a gated repository can be listed without access.
#[tokio::test]
async fn a_listing_of_shards_authorises_nobody() {
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let add = |repo: Repo, name: &&str| repo.file(name, support::weights(&[name]));
    let gated = shards.iter().fold(Repo::new("org/shards"), add).gated();
    let hub = LocalHub::builder().repo(gated).token("hf_a").token("hf_b");
    let hub = hub.unprivileged_token("hf_other").start().unwrap();
    let client = cached(&hub);
    let with = |token: &str| client.with_token(token).unwrap().model("org/shards");
    let first = with("hf_a").count().await.unwrap();
    assert!(with("hf_other").count().await.unwrap_err().is_denied());
    let pinned = with("hf_other").revision(first.commit.unwrap().as_str());
    assert!(pinned.count().await.unwrap_err().is_denied());
    assert_eq!(with("hf_b").count().await.unwrap().parameter_count, first.parameter_count);
}

#[tokio::test]
async fn another_commit_than_the_cached_one_is_read() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let client = cached(&hub);
    let total = async |token: &str| {
        let report = client.with_token(token).unwrap().model("org/moving").count().await.unwrap();
        (report.parameter_count.total(), report.commit.unwrap().to_string())
    };
    assert_eq!(total("hf_a").await, (1, old.clone()));
    hub.move_branch("org/moving", "main", &new);
    assert_eq!(total("hf_b").await, (2, new.clone()), "the response names the commit");
    hub.move_branch("org/moving", "main", &old);
    requests(&hub);
    assert_eq!(total("hf_c").await, (1, old));
    let is_prefix =
        |range: &Option<String>| range.as_deref().is_none_or(|range| range == "bytes=0-7");
    assert!(hub.log().iter().all(|request| is_prefix(&request.range)), "the header is cached");
}

#[tokio::test]
async fn a_call_can_revalidate_or_bypass_the_cache() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).branch_ttl(Duration::from_secs(3_600));
    let client = client.header_cache(MemoryCache::new(1 << 20)).build().unwrap();
    let read = async |mode| {
        let report = client.model("org/moving").cache_mode(mode).count().await.unwrap();
        (report.parameter_count.total(), requests(&hub), report.fetch.age_seconds.is_some())
    };
    let (_, cold, _) = read(CacheMode::Default).await;
    assert_eq!(read(CacheMode::Default).await, (1, 0, true));
    hub.move_branch("org/moving", "main", &new);
    assert_eq!(read(CacheMode::Bypass).await, (2, cold, false));
    assert_eq!(read(CacheMode::Default).await, (1, 0, true), "a bypass stores nothing");
    assert_eq!(read(CacheMode::Revalidate).await, (2, cold + 1, false));
    assert_eq!(read(CacheMode::Default).await, (2, 0, true));
    hub.move_branch("org/moving", "main", &old);
    assert_eq!(read(CacheMode::Revalidate).await, (1, 1, false));
}

#[tokio::test]
async fn a_stale_result_says_so() {
    let hub = LocalHub::start([
        Repo::new("org/model").file("model.safetensors", support::weights(&["x"]))
    ]);
    let hub = hub.unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).stale_if_error(Duration::from_secs(60));
    let client = client.retry_policy(hf_meta::RetryPolicy::default().max_attempts(1));
    let client = client.header_cache(MemoryCache::new(1 << 20)).build().unwrap();
    let fresh = client.model("org/model").count().await.unwrap().fetch;
    assert_eq!((fresh.stale, fresh.age_seconds), (false, None));
    hub.inject(|_, _| Some(Fault::Status(503, Vec::new())));
    let report = client.model("org/model").count().await.unwrap();
    assert!(report.fetch.stale && report.fetch.age_seconds.is_some());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["fetch"]["stale"], true);
}
