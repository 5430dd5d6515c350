//! Shards that are asked for while the index still arrives.

use std::sync::Arc;
use std::time::Duration;

use hf_meta::safetensors::IndexError;
use hf_meta::{Client, Error, RetryPolicy, SafetensorsParseFromRepo};

use crate::hub::{Fault, File, Host, LocalHub, Logged, Repo};
use crate::support;

/// Long enough for any machine.
const HANG: Duration = Duration::from_secs(60);

const INDEX: &str = "model.safetensors.index.json";

const JSON: &str = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;

/// So many bytes of it name the first shard, and not the second.
const HALF: u64 = 40;

fn repo(commit: &str) -> Repo {
    Repo::new("org/model")
        .commit(commit)
        .file(INDEX, File::whole(JSON))
        .file("a.safetensors", support::weights(&["x"]))
        .file("b.safetensors", support::weights(&["y"]))
}

fn is_index(request: &Logged) -> bool {
    request.path.ends_with(INDEX) && request.host == Host::Hub
}

async fn parse(hub: &LocalHub) -> Result<SafetensorsParseFromRepo, Error> {
    let policy = RetryPolicy::default().first_delay(Duration::from_millis(1));
    let client = Client::builder().endpoint(hub.endpoint()).retry(policy).build().unwrap();
    client.model("org/model").parse_safetensors_metadata().await
}

fn requests_for(hub: &LocalHub, file: &str) -> usize {
    hub.log().iter().filter(|entry| entry.path.ends_with(file) && entry.host == Host::Cdn).count()
}

#[tokio::test]
async fn a_shard_is_read_before_the_index_is_whole() {
    let hub = Arc::new(LocalHub::start([repo(&"1".repeat(40))]).unwrap());
    hub.inject(|request, _| is_index(request).then_some(Fault::StallInBody { after: HALF }));
    let server = Arc::clone(&hub);
    let call = tokio::spawn(async move { parse(&server).await });
    let both_ranges = async {
        while requests_for(&hub, "/a.safetensors") < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HANG, both_ranges).await.expect("the shard was not read");
    assert_eq!(requests_for(&hub, "/b.safetensors"), 0);
    call.abort();
}

#[tokio::test]
async fn an_index_that_breaks_off_is_read_again_and_its_shards_are_not() {
    let hub = LocalHub::start([repo(&"1".repeat(40))]).unwrap();
    hub.inject(|request, before| {
        (is_index(request) && before < 2).then_some(Fault::Broken { after: HALF })
    });
    let parsed = parse(&hub).await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
    let indexes = hub.log().iter().filter(|entry| is_index(entry) && entry.status == 200).count();
    let shards = ["/a.safetensors", "/b.safetensors"].map(|shard| requests_for(&hub, shard));
    assert_eq!((indexes, shards), (3, [2, 2]));
}

/// The shards of two commits are not mixed.
#[tokio::test]
async fn an_index_that_is_of_another_commit_the_next_time() {
    let [old, new] = ["1", "2"].map(|digit| digit.repeat(40));
    let hub = LocalHub::start([repo(&old)]).unwrap();
    let other = new.clone();
    hub.inject(move |request, before| match before {
        0 if is_index(request) => Some(Fault::Broken { after: HALF }),
        _ if is_index(request) => Some(Fault::Header("x-repo-commit", other.clone())),
        _ => None,
    });
    match parse(&hub).await {
        Err(Error::OtherCommit { pinned, found, .. }) => {
            assert_eq!((pinned.as_str(), found.as_str()), (&*old, &*new));
        }
        other => panic!("{other:?}"),
    }
}

/// Whichever is found first.
#[tokio::test]
async fn what_is_wrong_with_the_index_is_told_before_what_is_wrong_with_a_shard() {
    let broken = JSON.replace("a.", "missing.").replace("b.", "../b.");
    let repo = Repo::new("org/model").file(INDEX, File::whole(broken));
    let hub = LocalHub::start([repo]).unwrap();
    hub.inject(|request, _| {
        is_index(request).then_some(Fault::Trickle { every: Duration::from_millis(1) })
    });
    match parse(&hub).await {
        Err(Error::Index { source: IndexError::UnsafeShardName { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
}
