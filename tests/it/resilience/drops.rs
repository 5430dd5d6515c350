//! Calls that are dropped, and a branch that moves.

use std::sync::Arc;
use std::time::Duration;

use super::tireless;
use crate::hub::{Fault, Host, LocalHub, Repo};
use crate::support;

/// Long enough for any machine.
const HANG: Duration = Duration::from_secs(60);

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HANG, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A Hub whose CDN never goes on after what the fault lets through.
fn stalled(fault: Fault) -> LocalHub {
    let hub = support::fixtures_hub();
    hub.inject(move |request, _| (request.host == Host::Cdn).then(|| fault.clone()));
    hub
}

#[tokio::test]
async fn a_dropped_call_hangs_up_and_asks_no_more() {
    for fault in [Fault::Stall, Fault::StallInBody { after: 3 }] {
        let hub = stalled(fault);
        let client = tireless(&hub).concurrency(8).build().unwrap();
        let model = client.model("bigscience/bloom");
        let call = tokio::spawn(async move { model.parse_safetensors_metadata().await });
        let asked = || hub.log().iter().filter(|entry| entry.host == Host::Cdn).count();
        until("eight shards are asked for", || asked() == 8).await;
        assert_eq!(hub.open_connections(Host::Cdn), 8);
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        until("the CDN is left alone", || hub.open_connections(Host::Cdn) == 0).await;
        let requests = hub.log().len();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(hub.log().len(), requests);
        drop(client);
        until("the Hub is left alone", || hub.open_connections(Host::Hub) == 0).await;
    }
}

#[tokio::test]
async fn a_dropped_call_does_not_wait_on_for_its_next_attempt() {
    let hub = support::fixtures_hub();
    hub.inject(|_, _| Some(Fault::Status(503, vec![("retry-after", "1".to_owned())])));
    let client = tireless(&hub).build().unwrap();
    let model = client.model("gpt2").path("model.safetensors");
    let call = tokio::spawn(async move { model.parse_safetensors_metadata().await });
    until("it is refused", || !hub.log().is_empty()).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(hub.log().len(), 1);
}

/// Every answer fails the first time, and `main` moves with every shard that is read.
#[tokio::test]
async fn retries_stay_with_the_commit() {
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
    let client = tireless(&hub).concurrency(1).build().unwrap();
    let parsed = client.model("org/moving").on_progress(push).parse_safetensors_metadata().await;
    let parsed = parsed.unwrap();
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), old);
    let names: Vec<_> = parsed.files().flat_map(|(_, header)| header.tensors()).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["x", "y"]);
    assert!(!hub.log().iter().any(|entry| entry.path.contains(&new)));
}
