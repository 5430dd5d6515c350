//! Prefetch: one range per file, if it contains the whole header.

use hf_meta::SafetensorsParseFromRepo;

use crate::hub::{Host, LocalHub, LoggedRequest, Repo};
use crate::support;

async fn prefetch(hub: &LocalHub, repo: &str) -> SafetensorsParseFromRepo {
    let model = support::client(hub).model(repo).plan(hf_meta::Plan::Prefetch);
    model.parse_safetensors_metadata().await.unwrap()
}

/// Returns the ranges requested from the CDN.
fn ranges(log: &[LoggedRequest]) -> Vec<&str> {
    let is_cdn = |entry: &&LoggedRequest| entry.host == Host::Cdn;
    log.iter().filter(is_cdn).filter_map(|entry| entry.range.as_deref()).collect()
}

#[tokio::test]
async fn each_shard_is_read_in_one_range() {
    for (repo, shards) in [("bigscience/bloom", 72), ("EleutherAI/gpt-neox-20b", 46)] {
        let hub = support::fixtures_hub();
        let parsed = prefetch(&hub, repo).await;
        let log = hub.log();
        assert_eq!(ranges(&log).len(), shards, "{repo}");
        let exact = support::parse(&hub, repo).await.unwrap();
        assert_eq!(parsed.parameter_count(), exact.parameter_count());
        let lengths = |parsed: &SafetensorsParseFromRepo| {
            parsed.files().map(|(_, header)| header.length() + 8).sum::<u64>()
        };
        assert_eq!(lengths(&parsed), lengths(&exact));
        let sent: u64 = log
            .iter()
            .filter(|entry| entry.host == Host::Cdn)
            .map(|entry| entry.sent.bytes())
            .sum();
        assert!(sent * 10 <= lengths(&exact) * 13, "{repo}: {sent} of {}", lengths(&exact));
    }
}

#[tokio::test]
async fn a_single_file_is_read_in_one_range() {
    let hub = support::fixtures_hub();
    let parsed = prefetch(&hub, "gpt2").await;
    assert_eq!(ranges(&hub.log()), ["bytes=0-65535"]);
    assert_eq!(parsed.report().fetch.requests, 3);
}

#[tokio::test]
async fn a_file_can_be_shorter_than_the_first_range() {
    let hub = LocalHub::start([
        Repo::new("org/short").file("model.safetensors", support::weights(&["x"]))
    ]);
    let hub = hub.unwrap();
    assert_eq!(prefetch(&hub, "org/short").await.parameter_count().total(), 1);
    assert_eq!(ranges(&hub.log()), ["bytes=0-65535"]);
}

#[tokio::test]
async fn the_rest_of_a_long_header_is_read_with_a_second_range() {
    let names: Vec<_> = (0..2_000).map(|n| format!("layers.{n}.weight")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let hub =
        LocalHub::start(
            [Repo::new("org/long").file("model.safetensors", support::weights(&names))],
        );
    let hub = hub.unwrap();
    let parsed = prefetch(&hub, "org/long").await;
    let SafetensorsParseFromRepo::Single(file) = &parsed else { panic!("{parsed:?}") };
    let rest = format!("bytes=65536-{}", 7 + file.header.length());
    assert_eq!(ranges(&hub.log()), ["bytes=0-65535", &rest]);
    assert_eq!(parsed.parameter_count().total(), 2_000);
}
