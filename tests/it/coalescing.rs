//! Equal concurrent calls share one read, readers share cached headers, and a missing repository is remembered.

use std::pin::pin;
use std::time::Duration;

use futures::future::{FutureExt, join_all, select};
use hf_meta::{CacheMode, Client, Error, ErrorKind, MemoryCache};

use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

const CALLS: usize = 1_000;

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
async fn a_thousand_concurrent_calls_cost_as_many_requests_as_one() {
    let hub = support::fixtures_hub();
    support::client(&hub).model("bigscience/bloom").count().await.unwrap();
    let one = requests(&hub);
    for client in [support::client(&hub), cached(&hub)] {
        let calls = (0..CALLS).map(|_| client.model("bigscience/bloom").count());
        for report in join_all(calls).await {
            assert_eq!(report.unwrap().parameter_count.total(), 176_247_271_424);
        }
        assert_eq!(requests(&hub), one);
        assert_eq!(client.stats().calls, CALLS as u64);
    }
}

#[tokio::test]
async fn calls_that_read_something_else_are_not_shared() {
    let hub = hub();
    let client = support::client(&hub);
    let model = client.model("org/public");
    model.count().await.unwrap();
    let one = requests(&hub);
    let (count, path) = (model.count(), model.clone().path("a.safetensors").count());
    let (count, path, parsed) =
        futures::join!(count, path, client.model("org/public").parse_safetensors_metadata());
    assert_eq!((count.unwrap().parameter_count.total(), path.unwrap().filepaths.len()), (2, 1));
    assert_eq!(parsed.unwrap().parameter_count().total(), 2);
    assert!(requests(&hub) > 2 * one);
}

#[tokio::test]
async fn a_call_continues_if_the_caller_that_started_it_is_dropped() {
    let hub = hub();
    let client = support::client(&hub);
    client.model("org/public").count().await.unwrap();
    let one = requests(&hub);
    let first = Box::pin(client.model("org/public").count());
    let second = pin!(client.model("org/public").count());
    let mut first = Some(first);
    assert!(first.as_mut().unwrap().now_or_never().is_none());
    let dropped = async {
        while hub.log().is_empty() {
            tokio::task::yield_now().await;
        }
        drop(first.take());
        std::future::pending::<()>().await;
    };
    let (report, _) = match select(second, pin!(dropped)).await {
        futures::future::Either::Left(done) => done,
        futures::future::Either::Right(_) => unreachable!("it is pending"),
    };
    assert_eq!(report.unwrap().parameter_count.total(), 2);
    assert_eq!(requests(&hub), one);
}

#[tokio::test]
async fn a_call_ends_if_all_its_callers_are_dropped() {
    let hub = hub();
    let client = support::client(&hub);
    hub.inject(|_, _| Some(Fault::Stall));
    let calls = || [(); 2].map(|()| Box::pin(client.model("org/public").count()));
    let mut dropped = calls();
    for call in &mut dropped {
        assert!(call.now_or_never().is_none());
    }
    drop(dropped);
    hub.inject(|_, _| None);
    for report in join_all(calls()).await {
        assert_eq!(report.unwrap().parameter_count.total(), 2);
    }
}

#[tokio::test]
async fn concurrent_calls_share_an_error_and_a_missing_repository_is_remembered() {
    let hub = hub();
    let client = support::client(&hub);
    let is_missing = |error: Error| error.kind() == ErrorKind::RepoNotFound;
    let not_found = |result: Result<_, Error>| result.is_err_and(is_missing);
    // One file is requested. Without a path, both standard names are, and the second request may reach the log late.
    let missing = client.model("org/none").path("model.safetensors");
    let calls = (0..CALLS).map(|_| missing.count());
    assert!(join_all(calls).await.into_iter().all(not_found));
    assert_eq!(requests(&hub), 1);

    assert!(not_found(missing.count().await));
    assert!(not_found(client.model("org/none").count().await));
    assert!(client.model("org/none").weight_sets().await.is_err());
    assert_eq!(requests(&hub), 0, "it is remembered");
    assert!(not_found(missing.clone().cache_mode(CacheMode::Revalidate).count().await));
    assert_eq!(requests(&hub), 1, "unless the call says otherwise");

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert!(not_found(missing.count().await));
    assert_eq!(requests(&hub), 1, "for a short time");
}

#[tokio::test]
async fn concurrent_calls_of_different_tokens_are_separate() {
    let hub = hub();
    let client = support::client(&hub);
    let calls = ["hf_a", "hf_other", "", "hf_a"]
        .map(|token| client.with_token(token).unwrap().model("org/private").count());
    let found = join_all(calls).await.into_iter().map(|result| result.is_ok());
    assert_eq!(found.collect::<Vec<_>>(), [true, false, false, true]);
    let allowed = client.with_token("hf_b").unwrap().model("org/private").count().await;
    assert!(allowed.is_ok(), "another token's missing repository is not remembered");
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
