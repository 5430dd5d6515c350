//! Cancelled calls, and retries while a branch moves.

use std::sync::Arc;
use std::time::Duration;

use super::many_retries;
use crate::hub::{Fault, Host, LocalHub, Repo};
use crate::support;

/// Far more time than any call needs.
const HANG: Duration = Duration::from_secs(60);

/// Polls a condition until it is true.
async fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HANG, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Starts a Hub with a fault in every response of its CDN.
fn hub_with_cdn_fault(fault: Fault) -> LocalHub {
    let hub = support::fixtures_hub();
    hub.inject(move |request, _| (request.host == Host::Cdn).then(|| fault.clone()));
    hub
}

#[tokio::test]
async fn a_cancelled_call_closes_its_connections_and_sends_no_more_requests() {
    for fault in [Fault::Stall, Fault::StallInBody { after: 3 }] {
        let hub = hub_with_cdn_fault(fault);
        let client = many_retries(&hub).max_concurrent_requests(8).build().unwrap();
        let model = client.model("bigscience/bloom");
        let call = tokio::spawn(async move { model.parse_safetensors_metadata().await });
        let requests = || hub.log().iter().filter(|entry| entry.host == Host::Cdn).count();
        wait_until("eight shards are requested", || requests() == 8).await;
        assert_eq!(hub.open_connections(Host::Cdn), 8);
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        wait_until("all connections to the CDN are closed", || {
            hub.open_connections(Host::Cdn) == 0
        })
        .await;
        let requests = hub.log().len();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(hub.log().len(), requests);
        drop(client);
        wait_until("all connections to the Hub are closed", || {
            hub.open_connections(Host::Hub) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_cancelled_call_does_not_start_its_next_attempt() {
    let hub = support::fixtures_hub();
    hub.inject(|_, _| Some(Fault::Status(503, vec![("retry-after", "1".to_owned())])));
    let client = many_retries(&hub).build().unwrap();
    let model = client.model("gpt2").path("model.safetensors");
    let call = tokio::spawn(async move { model.parse_safetensors_metadata().await });
    wait_until("the first attempt has failed", || !hub.log().is_empty()).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(hub.log().len(), 1);
}

/// Every first attempt fails, and `main` moves after every shard.
#[tokio::test]
async fn retries_read_the_pinned_commit() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let repo = |repo: Repo, commit: &str, second: &str| {
        let index = support::index(&[("x", "a.safetensors"), (second, "b.safetensors")]);
        repo.commit(commit)
            .file("model.safetensors.index.json", index)
            .file("a.safetensors", support::weights(&["x"]))
            .file("b.safetensors", support::weights(&[second]))
    };
    let repo = repo(repo(Repo::new("org/moving"), &new, "z"), &old, "y");
    let hub = Arc::new(LocalHub::start([repo]).unwrap());
    hub.inject(|_, before| (before == 0).then(|| Fault::Status(503, vec![])));
    let (pusher, to) = (Arc::clone(&hub), new.clone());
    let push = move |_| pusher.move_branch("org/moving", "main", &to);
    let client = many_retries(&hub).max_concurrent_requests(1).build().unwrap();
    let parsed = client.model("org/moving").on_progress(push).parse_safetensors_metadata().await;
    let parsed = parsed.unwrap();
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), old);
    let names: Vec<_> = parsed.files().flat_map(|(_, header)| header.tensors()).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["x", "y"]);
    assert!(!hub.log().iter().any(|entry| entry.path.contains(&new)));
}
