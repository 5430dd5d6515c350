//! Shards that are read while the index is still arriving, because its first shard name shows the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use hf_meta::{Client, ClientBuilder, DiskCache, Error, Progress, RetryPolicy};
use hf_meta_format::formats::safetensors::IndexErrorKind;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::hub::{Fault, File, Host, LocalHub, LoggedRequest, Repo};
use crate::support;

/// Far more time than any call needs.
const HANG: Duration = Duration::from_secs(60);

const INDEX: &str = "model.safetensors.index.json";

const JSON: &str = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;

/// The number of bytes that contain the name of the first shard, and not of the second.
const HALF: u64 = 40;

fn repo(commit: &str) -> Repo {
    Repo::new("org/model")
        .commit(commit)
        .file(INDEX, File::from_bytes(JSON))
        .file("a.safetensors", support::weights(&["x"]))
        .file("b.safetensors", support::weights(&["y"]))
}

fn is_index(request: &LoggedRequest) -> bool {
    request.path.ends_with(INDEX) && request.host == Host::Hub
}

/// Returns a function that names a shard of `total`.
fn numbered(total: usize) -> impl Fn(usize) -> String {
    move |number| format!("model-{number:05}-of-{total:05}.safetensors")
}

/// Starts a Hub that resets the connection in the middle of the index, twice.
fn hub_with_two_resets() -> LocalHub {
    let hub = LocalHub::start([repo(&"1".repeat(40))]).unwrap();
    hub.inject(|request, before| {
        (is_index(request) && before < 2).then_some(Fault::ResetInBody { after: HALF })
    });
    hub
}

fn client(hub: &LocalHub) -> ClientBuilder {
    let policy = RetryPolicy::default().initial_delay(Duration::from_millis(1));
    Client::builder().endpoint(hub.endpoint()).retry_policy(policy).call_timeout(HANG)
}

/// Returns the number of responses with the index, and the number of ranges of each shard.
fn response_counts(hub: &LocalHub) -> (usize, [usize; 2]) {
    let log = hub.log();
    let indexes = log.iter().filter(|entry| is_index(entry) && entry.status == 200).count();
    let ranges = |name: &str| {
        log.iter().filter(|entry| entry.path.ends_with(name) && entry.host == Host::Cdn).count()
    };
    (indexes, [ranges("/a.safetensors"), ranges("/b.safetensors")])
}

/// Checks that the first shard is read while the index stalls before the name of the second.
async fn check_read_before_index_ends(repo: Repo, is_prefetch: bool) {
    let hub = LocalHub::start([repo]).unwrap();
    let is_read = Arc::new(Notify::new());
    let tell = Arc::clone(&is_read);
    hub.inject(move |request, _| {
        if request.host == Host::Cdn && request.range.as_deref() != Some("bytes=0-7") {
            tell.notify_one();
        }
        is_index(request).then_some(Fault::StallInBody { after: HALF })
    });
    let model = client(&hub).build().unwrap().model("org/model").plan(support::plan(is_prefetch));
    let call = Box::pin(model.parse_safetensors_metadata());
    match select(call, Box::pin(is_read.notified())).await {
        Either::Right(_) => assert_eq!(
            response_counts(&hub).1[1],
            0,
            "the name of the second shard has not arrived"
        ),
        Either::Left((ended, _)) => panic!("the call ended: {ended:?}"),
    }
}

#[tokio::test]
async fn a_shard_is_read_before_the_index_is_complete() {
    check_read_before_index_ends(repo(&"1".repeat(40)), false).await;
}

#[tokio::test]
async fn prefetch_does_not_wait_for_a_long_index() {
    let long = format!("{JSON}{}", " ".repeat(17 << 20));
    check_read_before_index_ends(repo(&"1".repeat(40)).file(INDEX, File::from_bytes(long)), true)
        .await;
}

/// Returns a repository with three numbered shards, whose index names some of them, and the number of bytes that
/// contain its first name.
fn numbered_repo(numbers: &[usize]) -> (Repo, u64) {
    let shards: Vec<_> = numbers.iter().copied().map(numbered(3)).collect();
    let entries: Vec<_> = shards.iter().map(|shard| (&**shard, &**shard)).collect();
    let repo = Repo::new("org/model").file(INDEX, support::index(&entries));
    let add = |repo: Repo, shard: &String| repo.file(shard, support::weights(&[shard]));
    (shards.iter().fold(repo, add), 100)
}

/// Returns the numbers of the shards of [`numbered_repo`] that were requested.
fn requested_shards(hub: &LocalHub) -> Vec<usize> {
    let log = hub.log();
    let is_requested =
        |number: &usize| log.iter().any(|request| request.path.ends_with(&numbered(3)(*number)));
    (1..=3).filter(is_requested).collect()
}

#[tokio::test]
async fn the_first_shard_predicts_the_others() {
    let (repo, first) = numbered_repo(&[2, 1, 3]);
    let hub = LocalHub::start([repo]).unwrap();
    let (sender, mut read) = tokio::sync::mpsc::unbounded_channel();
    hub.inject(move |request, _| {
        if request.host == Host::Cdn && request.range.as_deref() != Some("bytes=0-7") {
            sender.send(request.path.clone()).ok();
        }
        is_index(request).then_some(Fault::StallInBody { after: first })
    });
    let call = Box::pin(client(&hub).build().unwrap().model("org/model").verify().into_future());
    let all_read = Box::pin(async {
        for _ in 0..3 {
            read.recv().await.unwrap();
        }
    });
    match select(call, all_read).await {
        Either::Right(_) => assert_eq!(requested_shards(&hub), [1, 2, 3]),
        Either::Left((ended, _)) => panic!("the call ended: {ended:?}"),
    }
}

/// The index names two of three shards, and the third one does not exist.
#[tokio::test]
async fn a_wrong_prediction_costs_requests_only() {
    let (repo, _) = numbered_repo(&[1, 3]);
    let hub = LocalHub::start([repo]).unwrap();
    hub.inject(|request, _| {
        let is_trickling = is_index(request);
        is_trickling.then_some(Fault::Trickle { interval: Duration::from_millis(2) })
    });
    let model = client(&hub).build().unwrap().model("org/model");
    let report = model.clone().on_progress(|progress| assert_eq!(progress.total, 2)).count().await;
    let report = report.unwrap();
    assert_eq!((report.parameter_count.total(), report.filepaths.len()), (2, 3));
    assert_eq!((report.findings, requested_shards(&hub)), (vec![], vec![1, 2, 3]));
    let [predicted, awaited] =
        [false, true].map(|is_prefetch| model.clone().plan(support::plan(is_prefetch)));
    let (predicted, awaited) = (predicted.verify().await.unwrap(), awaited.verify().await.unwrap());
    assert_eq!(predicted.findings(), awaited.findings());
    assert_eq!([predicted.sets[0].valid_files, awaited.sets[0].valid_files], [2, 2]);
}

#[tokio::test]
async fn nothing_is_predicted_if_the_quota_is_low() {
    let (repo, first) = numbered_repo(&[1, 2, 3]);
    let hub = LocalHub::builder().repo(repo).quota(20, HANG).start().unwrap();
    hub.inject(move |request, _| is_index(request).then_some(Fault::StallInBody { after: first }));
    let client = client(&hub).retry_policy(RetryPolicy::default().max_attempts(1));
    let client = client.read_timeout(Duration::from_millis(500)).build().unwrap();
    client.model("org/model").count().await.unwrap_err();
    assert_eq!(requested_shards(&hub), Vec::<usize>::new());
}

/// The length of the first range depends on the complete index.
#[tokio::test]
async fn prefetch_waits_for_a_short_index() {
    let hub = hub_with_two_resets();
    let client = client(&hub).retry_policy(RetryPolicy::default().max_attempts(1)).build().unwrap();
    let model = client.model("org/model");
    model.clone().plan(hf_meta::Plan::Prefetch).parse_safetensors_metadata().await.unwrap_err();
    assert_eq!(response_counts(&hub), (1, [0, 0]));
}

#[tokio::test]
async fn an_interrupted_index_is_read_again_and_its_shards_are_not() {
    let hub = hub_with_two_resets();
    let model = client(&hub).build().unwrap().model("org/model");
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
    assert_eq!(response_counts(&hub), (3, [2, 2]));

    let hub = hub_with_two_resets();
    let counts = client(&hub).build().unwrap().model("org/model").count().await.unwrap();
    assert_eq!(counts.parameter_count.total(), 2);
    assert_eq!(response_counts(&hub), (3, [2, 2]));

    let hub = hub_with_two_resets();
    let verdict = client(&hub).build().unwrap().model("org/model").verify().await.unwrap();
    assert_eq!((verdict.sets[0].valid_files, verdict.findings()), (2, vec![]));
    assert_eq!(response_counts(&hub), (3, [2, 2]));
}

#[tokio::test]
async fn the_cache_stores_an_interrupted_index_completely() {
    let (hub, folder) = (hub_with_two_resets(), tempfile::tempdir().unwrap());
    let builder = client(&hub).header_cache(DiskCache::new(folder.path()));
    let model = builder.build().unwrap().model("org/model");
    let read = model.parse_safetensors_metadata().await.unwrap();
    let kept = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(kept.report().fetch.requests, 1);
    assert_eq!(kept.parameter_count(), read.parameter_count());
    assert_eq!(response_counts(&hub), (3, [2, 2]));
}

#[tokio::test]
async fn progress_increases_up_to_all_shards() {
    let hub = hub_with_two_resets();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let tell = move |progress: Progress| list.lock().unwrap().push((progress.done, progress.total));
    let model = client(&hub).build().unwrap().model("org/model").on_progress(tell);
    model.parse_safetensors_metadata().await.unwrap();
    let told = told.lock().unwrap();
    assert!(told.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{told:?}");
    assert!(told.iter().all(|(done, total)| done <= total), "{told:?}");
    assert_eq!(told.last(), Some(&(2, 2)));
}

/// The first, interrupted response names a shard that does not exist. The complete one does not.
#[tokio::test]
async fn a_shard_that_only_an_interrupted_response_names_is_ignored() {
    let commit = "1".repeat(40);
    let first = JSON.replace("a.safetensors", "gone.safetensors");
    let other = Repo::new("org/other").commit(&commit).file(INDEX, File::from_bytes(first));
    let hub = LocalHub::start([repo(&commit), other]).unwrap();
    let stored = format!("/api/resolve-cache/models/org/other/{commit}/{INDEX}");
    let other_url = format!("{}{stored}", hub.endpoint());
    let (index_requests, is_missed) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let tell = Arc::clone(&is_missed);
    hub.inject(move |request, _| {
        if request.path.ends_with("gone.safetensors") {
            tell.notify_one();
        }
        if !is_index(request) {
            return None;
        }
        match index_requests.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Fault::redirect(307, other_url.clone())),
            1 | 2 => Some(Fault::ResetInBody { after: HALF + 5 }),
            _ => None,
        }
    });
    let model = client(&hub).build().unwrap().model("org/model");
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    is_missed.notified().await;
    assert_eq!(parsed.parameter_count().total(), 2);
    assert_eq!(model.verify().await.unwrap().findings(), vec![]);
}

/// Shards of two commits are never mixed.
#[tokio::test]
async fn an_index_of_another_commit_after_a_retry_is_an_error() {
    let [old, new] = ["1", "2"].map(|digit| digit.repeat(40));
    let hub = LocalHub::start([repo(&old)]).unwrap();
    let other = new.clone();
    hub.inject(move |request, before| match before {
        0 if is_index(request) => Some(Fault::ResetInBody { after: HALF }),
        _ if is_index(request) => Some(Fault::Header("x-repo-commit", other.clone())),
        _ => None,
    });
    let model = client(&hub).build().unwrap().model("org/model");
    match model.parse_safetensors_metadata().await {
        Err(Error::Changed { message, .. }) => {
            assert!(message.ends_with(&format!("at commit {old}, got commit {new}")), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// The result does not depend on the order in which the errors occur.
#[tokio::test]
async fn an_error_in_the_index_takes_precedence_over_an_error_in_a_shard() {
    let broken = JSON.replace("a.", "missing.").replace("b.", "../b.");
    let repo = Repo::new("org/model").file(INDEX, File::from_bytes(broken));
    let hub = LocalHub::start([repo]).unwrap();
    hub.inject(|request, _| {
        is_index(request).then_some(Fault::Trickle { interval: Duration::from_millis(1) })
    });
    let model = client(&hub).build().unwrap().model("org/model");
    match model.parse_safetensors_metadata().await {
        Err(Error::InvalidIndex { source, .. })
            if source.kind == IndexErrorKind::UnsafeShardName => {}
        other => panic!("{other:?}"),
    }
}

/// Headers take memory until they are counted, and they are counted once the index is complete. Only 16 of these
/// fit into the memory for them.
#[tokio::test]
async fn long_headers_wait_for_the_end_of_the_index() {
    const HEADER: usize = 2 << 20;
    const AT_ONCE: usize = 16;
    let shards: Vec<_> = (1..=AT_ONCE + 2).map(numbered(AT_ONCE + 2)).collect();
    let entries: Vec<_> = shards.iter().map(|shard| (&**shard, &**shard)).collect();
    let index = support::index(&entries);
    let end = index.size() - 2;
    let repo = shards.iter().fold(Repo::new("org/model").file(INDEX, index), |repo, shard| {
        let json = format!(r#"{{"{shard}":{{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}}}"#);
        let padded = json.clone() + &" ".repeat(HEADER - 8 - json.len());
        repo.file(shard, support::file_with_header(&padded, 1))
    });
    let hub = LocalHub::start([repo]).unwrap();
    let is_header = |entry: &LoggedRequest| {
        entry.host == Host::Cdn && entry.range.as_deref() != Some("bytes=0-7")
    };
    hub.inject(move |request, _| match request {
        request if is_index(request) => Some(Fault::StallInBody { after: end }),
        request if is_header(request) => Some(Fault::StallInBody { after: 9 }),
        _ => None,
    });
    let headers = || hub.log().iter().filter(|entry| is_header(entry)).count();
    let model = client(&hub).build().unwrap().model("org/model");
    let waiting = Box::pin(async {
        while headers() < AT_ONCE {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(300)).await;
    });
    match select(model.count().into_future(), waiting).await {
        Either::Right(_) => assert_eq!(headers(), AT_ONCE),
        Either::Left((ended, _)) => panic!("the call ended: {ended:?}"),
    }
    hub.inject(|_, _| None);
    for is_prefetch in [false, true] {
        let counts = model.clone().plan(support::plan(is_prefetch)).count().await.unwrap();
        assert_eq!(counts.parameter_count.total(), shards.len() as u64);
    }
}

/// There are more shards than allowed connections. One is missing, and the others stall.
#[tokio::test]
async fn the_retry_of_an_index_gets_a_connection_while_its_shards_stall() {
    let shards = (1..=160).map(numbered(160));
    let names: Vec<_> = shards.map(|shard| (format!("t of {shard}"), shard)).collect();
    let entries: Vec<_> = names.iter().map(|(name, shard)| (&**name, &**shard)).collect();
    let repo = Repo::new("org/model").file(INDEX, support::index(&entries));
    let repo = names[1..]
        .iter()
        .fold(repo, |repo, (name, shard)| repo.file(shard, support::weights(&[name])));
    let hub = LocalHub::start([repo]).unwrap();
    hub.inject(|request, before| match request.host {
        Host::Cdn => Some(Fault::Stall),
        Host::Hub if is_index(request) && before == 0 => Some(Fault::StallInBody { after: 2_000 }),
        Host::Hub => None,
    });
    let client = client(&hub).read_timeout(Duration::from_millis(100));
    let client = client.call_timeout(Duration::from_secs(20)).build().unwrap();
    let error = client.model("org/model").parse_safetensors_metadata().await.unwrap_err();
    assert!(!matches!(error, Error::DeadlineExceeded { .. }), "{error:?}");
}

/// There are more calls than allowed connections, and each call waits for another request while its index
/// arrives.
#[tokio::test]
async fn an_open_index_stream_does_not_block_the_connections_of_others() {
    const CALLS: usize = 80;
    for (lists_sets, is_busy) in [(true, false), (false, true)] {
        let repos = (0..CALLS).map(|n| support::sharded(&format!("org/{n}")));
        let hub = LocalHub::start(repos).unwrap();
        hub.inject(move |request, before| {
            let is_file = request.path.ends_with("/model.safetensors");
            (is_busy && is_file && before == 0).then_some(Fault::Status(503, vec![]))
        });
        let client = client(&hub).build().unwrap();
        let calls = (0..CALLS).map(|n| {
            let model = client.model(format!("org/{n}")).other_sets(lists_sets);
            async move { model.parse_safetensors_metadata().await.map(drop) }
        });
        let failed = join_all(calls).await.into_iter().find_map(Result::err);
        assert!(failed.is_none(), "{failed:?}");
    }
}
