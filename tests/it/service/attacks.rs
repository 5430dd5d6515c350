//! Repositories and clients that try to stall, drain or poison the service.

use std::time::Duration;

use axum::http::StatusCode;
use futures::future::join_all;
use hf_meta_server::Service;

use super::{Seen, cached_client, client, config, get, router};
use crate::hub::{Host, LocalHub, Repo};
use crate::support;

/// Creates a repository with an index of `shards` shards, with one tensor each.
fn many_shards(id: &str, shards: usize) -> Repo {
    let name = |n: usize| format!("m{n}.safetensors");
    let tensors: Vec<_> = (0..shards).map(|n| (format!("t{n}"), name(n))).collect();
    let map: Vec<_> = tensors.iter().map(|(tensor, shard)| (&**tensor, &**shard)).collect();
    let repo = Repo::new(id).file("model.safetensors.index.json", support::index(&map));
    tensors.iter().fold(repo, |repo, (tensor, shard)| repo.file(shard, support::weights(&[tensor])))
}

/// Returns the number of requests for weights at the Hub, and of all requests at the Hub.
fn requests(hub: &LocalHub) -> (usize, usize) {
    let log = hub.log();
    let asked = log.iter().filter(|request| request.host == Host::Hub);
    let is_shard =
        |path: &str| path.ends_with(".safetensors") && !path.ends_with("/model.safetensors");
    let shards = asked.clone().filter(|request| is_shard(&request.path) && request.status == 302);
    (shards.count(), asked.count())
}

/// Returns the spelling of `organization` with some letters in upper case.
fn spelling(n: usize) -> String {
    let letter = |(at, c): (usize, char)| if n >> at & 1 == 1 { c.to_ascii_uppercase() } else { c };
    "organization".chars().enumerate().map(letter).collect()
}

#[tokio::test]
async fn the_shards_of_a_commit_are_read_once_whatever_its_names() {
    let hub = LocalHub::start([many_shards("organization/model", 40)]).unwrap();
    let commit = client(&hub).model("organization/model").count().await.unwrap().commit.unwrap();
    hub.move_branch("organization/model", "v1", commit.as_str());
    hub.clear_log();
    let router = Service::new(cached_client(&hub), config()).router();
    let mut paths: Vec<_> = (0..21).map(|n| format!("/badge/{}/model.svg", spelling(n))).collect();
    paths.extend([
        "/api/models/organization/model?revision=main".to_owned(),
        format!("/badge/organization/model.svg?revision={commit}"),
        format!("/badge/ORGANIZATION/model.svg?revision={commit}&show=tensors"),
        "/badge/Organization/Model.svg?revision=v1".to_owned(),
    ]);
    get(&router, &paths[0]).await;
    let answers = join_all(paths.iter().map(|path| get(&router, path))).await;
    for (path, answer) in paths.iter().zip(answers) {
        let is_count = ["params: 40", "tensors: 40", "\"parameterTotal\":40,"];
        assert!(is_count.iter().any(|count| answer.body.contains(count)), "{path}: {answer:?}");
    }
    let (shards, all) = requests(&hub);
    assert_eq!(shards, 40);
    assert!(all <= 40 + paths.len() * 6, "{all} requests for one commit");
    let shards = hub.log().into_iter().filter(|request| request.host == Host::Cdn);
    let bytes: u64 = shards.map(|request| request.sent.bytes()).sum();
    assert!(bytes <= 40 * 200, "{bytes} bytes of 40 shards of less than 200 bytes");
}

/// The commit is not known before the first response, so these lookups cannot be recognized by their queries.
#[tokio::test]
async fn concurrent_lookups_of_one_commit_stay_within_the_budget_of_their_client() {
    let hub = LocalHub::start([many_shards("organization/model", 40)]).unwrap();
    let mut config = config();
    (config.upstream_requests_per_minute, config.max_requests_per_lookup) = (1, 50);
    let router = router(&hub, config);
    let paths: Vec<_> = (0..21).map(|n| format!("/badge/{}/model.svg", spelling(n))).collect();
    let badges = join_all(paths.iter().map(|path| get(&router, path))).await;
    let titles: Vec<_> = badges.iter().map(Seen::title).collect();
    let count = |title: &str| titles.iter().filter(|found| *found == title).count();
    assert_eq!((count("params: 40"), count("params: busy")), (1, 20), "{titles:?}");
    assert_eq!(requests(&hub).0, 40);
}

#[tokio::test]
async fn weights_in_too_many_files_are_not_requested() {
    let hub =
        LocalHub::start([many_shards("org/model", 501), many_shards("org/large", 497)]).unwrap();
    let mut config = config();
    config.upstream_requests_per_minute = 1;
    let router = router(&hub, config);
    let badge = get(&router, "/badge/org/model.svg").await;
    assert_eq!((badge.status, badge.title().as_str()), (StatusCode::OK, "params: too many files"));
    let api = get(&router, "/api/models/org/model").await;
    assert_eq!(
        (api.status, api.json()["error"]["code"].as_str()),
        (StatusCode::UNPROCESSABLE_ENTITY, Some("tooManyFiles"))
    );
    assert_eq!(
        api.json()["error"]["message"],
        "reading the weights takes 504 requests; this service sends at most 500"
    );
    let (shards, all) = requests(&hub);
    assert!(shards == 0 && all <= 4, "{all} requests");
    assert_eq!(
        get(&router, "/badge/org/large.svg").await.title(),
        "params: 497",
        "the budget of a client is enough for one large repository"
    );
    assert_eq!(get(&router, "/badge/org/other.svg").await.title(), "params: busy");
}

/// A listing of many pages is as large a lookup as weights in many files.
#[tokio::test]
async fn a_listing_in_too_many_pages_is_not_read_to_its_end() {
    let folders = |n| (format!("{n}/any.safetensors"), support::weights(&["t"]));
    let repo = (0..100)
        .map(folders)
        .fold(Repo::new("org/model"), |repo, (path, file)| repo.file(&path, file));
    let hub = LocalHub::builder().repo(repo).tree_page_size(2).start().unwrap();
    let mut config = config();
    (config.max_requests_per_lookup, config.upstream_requests_per_minute) = (20, 0);
    let router = router(&hub, config);
    let badge = get(&router, "/badge/org/model.svg").await;
    assert_eq!(badge.title(), "params: too many files");
    let (_, all) = requests(&hub);
    assert!((10..=20).contains(&all), "{all} requests");
}

#[tokio::test]
async fn clients_leave_a_reserve_for_known_badges() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let known = support::two_commits("org/known", &old, &new);
    let hub = LocalHub::start([known, support::sharded("org/one"), support::sharded("org/two")]);
    let (hub, mut config) = (hub.unwrap(), config());
    config.ttl = std::time::Duration::ZERO;
    config.total_upstream_requests_per_minute = 5;
    config.max_requests_per_lookup = 5;
    let router = router(&hub, config);
    let title = async |name: &str| get(&router, &format!("/badge/org/{name}.svg")).await.title();
    assert_eq!(
        (title("known").await, title("one").await),
        ("params: 1".into(), "params: 2".into())
    );
    assert_eq!(title("two").await, "params: busy");
    hub.move_branch("org/known", "main", &new);
    support::wait_until("the badge is refreshed", async || title("known").await == "params: 2")
        .await;
}

#[tokio::test]
async fn a_rejection_affects_only_one_client() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut few = config();
    few.requests_per_minute = 1;
    let router = router(&hub, few);
    get(&router, "/badge/org/none.svg").await;
    for path in ["/badge/org/model.svg", "/badge/org/model.json", "/api/models/org/model"] {
        let refused = get(&router, path).await;
        assert!(refused.body.contains("rate limited") || refused.status == 429, "{}", refused.body);
        assert_eq!(refused.header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test]
async fn a_client_cannot_drain_the_quota_with_known_badges() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut config = config();
    config.ttl = Duration::ZERO;
    (config.upstream_requests_per_minute, config.max_requests_per_lookup) = (1, 10);
    let router = router(&hub, config);
    for _ in 0..1_000 {
        assert_eq!(get(&router, "/badge/org/model.svg").await.title(), "params: 2");
        tokio::task::yield_now().await;
    }
    let (_, asked) = requests(&hub);
    assert!(asked < 40, "{asked} requests");
}
