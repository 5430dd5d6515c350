//! The requests of a call: exactly these, for one commit, with the token for the endpoint only.

mod hub_plan;
mod prefetch;
mod streamed_index;

use std::collections::BTreeMap;
use std::sync::Arc;

use hf_meta::{Cache, Client, DiskCache, Endpoint, RepoId, Revision, Source};
use hf_meta_count::results::Finding;

use crate::hub::{Host, LocalHub, LoggedRequest, Repo};
use crate::support;

/// Formats each request as host, path, range and status.
fn lines(log: &[LoggedRequest]) -> Vec<String> {
    log.iter()
        .map(|entry| {
            let range = entry.range.as_deref().unwrap_or("whole");
            format!("{:?} {} {range} {}", entry.host, entry.path, entry.status)
        })
        .collect()
}

#[tokio::test]
async fn a_single_file_is_read_in_two_ranges() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "gpt2").await.unwrap();
    let commit = parsed.report().commit.as_ref().unwrap();
    let mut lines = lines(&hub.log());
    lines[..3].sort();
    assert_eq!(
        lines,
        [
            format!("Cdn /models/gpt2/{commit}/model.safetensors bytes=0-7 206"),
            "Hub /gpt2/resolve/main/model.safetensors bytes=0-7 302".to_owned(),
            "Hub /gpt2/resolve/main/model.safetensors.index.json whole 404".to_owned(),
            format!("Hub /gpt2/resolve/{commit}/model.safetensors bytes=8-14290 302"),
            format!("Cdn /models/gpt2/{commit}/model.safetensors bytes=8-14290 206"),
        ]
    );
    assert_eq!(parsed.report().fetch.requests, 5);
}

#[tokio::test]
async fn bloom_is_read_with_two_ranges_per_shard_and_291_requests() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "bigscience/bloom").await.unwrap();
    let commit = parsed.report().commit.as_ref().unwrap();

    let mut expected = BTreeMap::new();
    let mut expect = |line: String| *expected.entry(line).or_insert(0) += 1;
    let repo = "/bigscience/bloom/resolve";
    expect(format!("Hub {repo}/main/model.safetensors bytes=0-7 404"));
    expect(format!("Hub {repo}/main/model.safetensors.index.json whole 307"));
    let cache = format!("/api/resolve-cache/models/bigscience/bloom/{commit}");
    expect(format!("Hub {cache}/model.safetensors.index.json whole 200"));
    for (path, header) in parsed.files() {
        for range in ["0-7".to_owned(), format!("8-{}", 7 + header.length())] {
            expect(format!("Hub {repo}/{commit}/{path} bytes={range} 302"));
            expect(format!("Cdn /models/bigscience/bloom/{commit}/{path} bytes={range} 206"));
        }
    }

    let mut found = BTreeMap::new();
    for line in lines(&hub.log()) {
        *found.entry(line).or_insert(0) += 1;
    }
    assert_eq!(found, expected);
    assert_eq!(found.len(), 3 + 72 * 4);
    assert_eq!(found.len(), 291);
    assert_eq!(parsed.report().fetch.requests, hub.log().len() as u64);
}

/// Only the two requests that locate the weights are redirected.
#[tokio::test]
async fn a_name_in_the_wrong_case_costs_two_requests() {
    let (hub, cache) = (support::fixtures_hub(), tempfile::tempdir().unwrap());
    let client = Client::builder().endpoint(hub.endpoint());
    let client = client.header_cache(DiskCache::new(cache.path())).build().unwrap();
    for requests in [293, 2] {
        let report = client.model("BigScience/Bloom").count().await.unwrap();
        let renamed = Finding::Renamed { repo: "bigscience/bloom".to_owned() };
        assert_eq!(report.findings, [renamed]);
        assert_eq!(report.fetch.requests, requests);
    }
    let report = client.model("bigscience/bloom").count().await.unwrap();
    assert_eq!(report.findings, []);
}

#[tokio::test]
async fn a_branch_that_moves_during_the_call_is_not_followed() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let repo = |repo: Repo, commit: &str, second: &str| {
        repo.commit(commit)
            .file(
                "model.safetensors.index.json",
                support::index(&[("x", "a.safetensors"), (second, "b.safetensors")]),
            )
            .file("a.safetensors", support::weights(&["x"]))
            .file("b.safetensors", support::weights(&[second]))
    };
    let repo = repo(repo(Repo::new("org/moving"), &new, "z"), &old, "y");
    let hub = Arc::new(LocalHub::start([repo]).unwrap());
    let client =
        Client::builder().endpoint(hub.endpoint()).max_concurrent_requests(1).build().unwrap();
    let pusher = Arc::clone(&hub);
    let push = move |_| pusher.move_branch("org/moving", "main", &new);
    let parsed = client.model("org/moving").on_progress(push).parse_safetensors_metadata().await;
    let parsed = parsed.unwrap();
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), old);
    let names: Vec<_> = parsed.files().flat_map(|(_, header)| header.tensors()).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["x", "y"]);
}

#[tokio::test]
async fn the_token_is_sent_to_the_hub_only() {
    let hub = LocalHub::builder().repo(support::sharded("org/gated").gated()).token("hf_good");
    let hub = hub.start().unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).token("hf_good").build().unwrap();
    client.model("org/gated").parse_safetensors_metadata().await.unwrap();
    let (mut to_hub, mut to_cdn) = (0, 0);
    for entry in hub.log() {
        let token = entry.authorization.as_deref();
        match entry.host {
            Host::Hub => {
                assert_eq!(token, Some("Bearer hf_good"));
                to_hub += 1;
            }
            Host::Cdn => {
                assert_eq!(token, None);
                to_cdn += 1;
            }
        }
    }
    assert_eq!((to_hub, to_cdn), (7, 4));
    assert!(!format!("{client:?}").contains("hf_good"));
}

#[tokio::test]
async fn the_token_is_not_sent_to_another_server() {
    let [own, foreign] =
        [(), ()].map(|()| LocalHub::start([support::sharded("org/open")]).unwrap());
    let client = Client::builder().endpoint(own.endpoint()).token("hf_good").build().unwrap();
    let index = "org/open/resolve/main/model.safetensors.index.json";
    let source: Source = format!("{}/{index}", foreign.endpoint()).parse().unwrap();
    client.source(source).parse_safetensors_metadata().await.unwrap();
    assert!(own.log().is_empty());
    assert!(foreign.log().len() > 4);
    assert!(foreign.log().iter().all(|entry| entry.authorization.is_none()));
}

#[tokio::test]
async fn a_public_repository_is_read_despite_an_invalid_token() {
    let hub = LocalHub::start([support::sharded("org/open")]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).token("hf_old").build().unwrap();
    let parsed = client.model("org/open").parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
    let with_token = hub.log().iter().filter(|entry| entry.authorization.is_some()).count();
    assert_eq!(with_token, 2, "only the two requests that locate the weights");
}

#[tokio::test]
async fn requests_have_a_user_agent_and_ranges_use_identity_encoding() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    support::parse(&hub, "org/model").await.unwrap();
    for entry in hub.log() {
        let agent = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
        assert_eq!(entry.headers["user-agent"], agent);
        let encoding = if entry.range.is_some() { "identity" } else { "gzip" };
        assert_eq!(entry.headers["accept-encoding"], encoding);
        assert_eq!(entry.method, "GET");
    }
}

/// Names, endpoints and shared caches of this library are accepted where texts and caches are.
#[tokio::test]
async fn values_of_this_library_are_accepted_as_arguments() {
    let hub = LocalHub::start([support::sharded("datasets/org/set")]).unwrap();
    let cache: Arc<dyn Cache> = Arc::new(DiskCache::new(tempfile::tempdir().unwrap().path()));
    let endpoint = Endpoint::parse(hub.endpoint()).unwrap();
    let client = Client::builder().endpoint(&endpoint).header_cache(cache).build().unwrap();
    assert_eq!(Client::builder().endpoint(endpoint.clone()).build().unwrap().endpoint(), &endpoint);
    let repo: RepoId = "datasets/org/set".parse().unwrap();
    let revision = Revision::default();
    let first = client.model(&repo).revision(revision.as_str()).count().into_future();
    let commit = tokio::spawn(first).await.unwrap().unwrap().commit.unwrap();
    let second = tokio::spawn(client.model(repo).revision(commit.as_str()).verify().into_future());
    assert_eq!(second.await.unwrap().unwrap().findings(), []);
    assert!(tokio::spawn(client.model("datasets/org/set").weight_sets()).await.unwrap().is_ok());
}

/// Services spawn their calls, so the future must be `Send` and `'static`.
#[tokio::test]
async fn a_call_can_be_spawned_and_reports_its_progress() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let (sender, receiver) = std::sync::mpsc::channel();
    let call = tokio::spawn(async move {
        let tell = move |progress: hf_meta::Progress| {
            sender.send((progress.done, progress.total)).unwrap();
        };
        client.model("bigscience/bloom").on_progress(tell).parse_safetensors_metadata().await
    });
    call.await.unwrap().unwrap();
    let expected: Vec<_> = (1..=72).map(|done| (done, 72)).collect();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), expected);
}

/// Three calls of a file in two ranges, whose bytes count from the beginning of their call.
#[tokio::test]
async fn a_single_file_reports_its_progress_in_bytes() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let meter = client.meter();
    let mut all = Vec::new();
    for _ in 0..3 {
        let (sender, receiver) = std::sync::mpsc::channel();
        let tell = move |progress: hf_meta::Progress| sender.send(progress).unwrap();
        client.model("gpt2").meter(&meter).on_progress(tell).count().await.unwrap();
        let told: Vec<_> = receiver.iter().collect();
        let steps = told.iter().map(|progress| (progress.done, progress.total));
        assert!(steps.eq([(0, 1), (1, 1)]), "{told:?}");
        assert!(0 < told[0].bytes_read && told[0].bytes_read < told[1].bytes_read, "{told:?}");
        all.push(told);
    }
    assert!(all.iter().all(|told| *told == all[0]), "{all:?}");
}
