//! The header cache: fewer requests, the same results, and no entry for a reader without access.

mod folder;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_meta::{ClientBuilder, DiskCache, Error, ErrorKind, SafetensorsParseFromRepo};
use serde_json::Value;

use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support::{self, error_chain};
use crate::wire::traces::Capture;

fn builder(hub: &LocalHub, folder: &Path) -> ClientBuilder {
    hf_meta::Client::builder().endpoint(hub.endpoint()).header_cache(DiskCache::new(folder))
}

async fn parse(builder: ClientBuilder, repo: &str) -> Result<SafetensorsParseFromRepo, Error> {
    builder.build().unwrap().model(repo).parse_safetensors_metadata().await
}

/// Returns a result without its statistics of requests.
fn figures(parsed: &SafetensorsParseFromRepo) -> Value {
    let mut json = serde_json::to_value(parsed).unwrap();
    json.as_object_mut().unwrap().remove("fetch").unwrap();
    json
}

/// Returns method, path and status of each request since the last call of this function.
fn requests(hub: &LocalHub) -> Vec<String> {
    let log = hub.log();
    hub.clear_log();
    log.iter().map(|entry| format!("{} {} {}", entry.method, entry.path, entry.status)).collect()
}

/// Returns all files of a folder, at any depth.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test]
async fn a_cached_branch_costs_one_request_and_a_cached_commit_none() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    for repo in [
        "gpt2",
        "bigscience/bloom",
        // The counts of the next two depend on `config.json`,
        "openai/gpt-oss-20b",
        "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
        // and the weights of the last two are found in a listing.
        "CompVis/stable-diffusion-v1-4",
        "example/shards-without-index",
    ] {
        let plain = support::parse(&hub, repo).await.unwrap();
        let without = requests(&hub).len();
        let first = parse(builder(&hub, folder.path()), repo).await.unwrap();
        assert_eq!(requests(&hub).len(), without, "{repo}: a miss costs no additional request");
        assert_eq!(figures(&first), figures(&plain));

        let second = parse(builder(&hub, folder.path()), repo).await.unwrap();
        let status = if repo == "gpt2" { 302 } else { 404 };
        let head = format!("HEAD /{repo}/resolve/main/model.safetensors {status}");
        assert_eq!(requests(&hub), [head]);
        assert_eq!(figures(&second), figures(&plain));
        assert_eq!((second.report().fetch.requests, second.report().fetch.bytes_read), (1, 0));

        let commit = plain.report().commit.clone().unwrap();
        let client = builder(&hub, folder.path()).build().unwrap();
        for prefetch in [false, true] {
            let third = client.model(repo).revision(commit.as_str()).plan(support::plan(prefetch));
            let third = third.parse_safetensors_metadata().await.unwrap();
            assert_eq!(requests(&hub), [""; 0]);
            assert_eq!(third.parameter_count(), plain.parameter_count());
        }
    }
}

#[tokio::test]
async fn a_result_with_other_sets_has_its_own_entry() {
    let repo = support::sharded("org/model").file("vae/a.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let client = builder(&hub, folder.path()).build().unwrap();
    for round in 0..2 {
        for (lists, sets) in [(false, None), (true, Some(1))] {
            let model = client.model("org/model").other_sets(lists);
            let parsed = model.parse_safetensors_metadata().await.unwrap();
            let found = parsed.report().other_sets.as_ref().map(Vec::len);
            assert_eq!(found, sets, "round {round}");
            assert!(round == 0 || parsed.report().fetch.requests == 1);
        }
    }
}

#[tokio::test]
async fn a_moved_branch_is_read_again() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let hub = LocalHub::start([support::two_commits("org/moving", &old, &new)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let total = async |lifetime| {
        let builder = builder(&hub, folder.path()).branch_ttl(lifetime);
        parse(builder, "org/moving").await.unwrap().parameter_count().total()
    };
    assert_eq!(total(Duration::ZERO).await, 1);
    hub.move_branch("org/moving", "main", &new);
    assert_eq!(total(Duration::from_secs(3_600)).await, 1, "within its time to live");
    hub.clear_log();
    assert_eq!(total(Duration::ZERO).await, 2);
    assert!(requests(&hub)[0].starts_with("HEAD "));
    assert_eq!(total(Duration::ZERO).await, 2);
    assert_eq!(requests(&hub).len(), 1);
    hub.move_branch("org/moving", "main", &old);
    assert_eq!(total(Duration::ZERO).await, 1, "the entry of the first commit is still there");
    assert_eq!(requests(&hub).len(), 1);
}

#[tokio::test]
async fn folders_files_and_revisions_have_their_own_entries() {
    let commit = "1".repeat(40);
    let repo = Repo::new("org/many")
        .commit(&commit)
        .file("model.safetensors", support::weights(&["x"]))
        .file("a/model.safetensors", support::weights(&["x", "y"]))
        .file("b.safetensors", support::weights(&["x", "y", "z"]))
        .revision("v1", &commit);
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let client = builder(&hub, folder.path()).build().unwrap();
    for round in 0..2 {
        for (source, total) in [
            ("org/many", 1),
            ("hf://org/many@main/a", 2),
            ("hf://org/many@main/b.safetensors", 3),
            ("hf://org/many@v1/a", 2),
        ] {
            let parsed = client.source(source.parse().unwrap()).parse_safetensors_metadata().await;
            assert_eq!(parsed.unwrap().parameter_count().total(), total, "{source}, round {round}");
        }
    }
}

#[tokio::test]
async fn entries_are_separate_per_token() {
    let repos = [support::sharded("org/gated").gated(), support::sharded("org/private").private()];
    let hub = LocalHub::builder().repos(repos).token("hf_good").unprivileged_token("hf_other");
    let hub = hub.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for repo in ["org/gated", "org/private"] {
        let with = |token: &str| builder(&hub, folder.path()).token(token);
        let commit = parse(with("hf_good"), repo).await.unwrap().report().commit.clone().unwrap();
        for token in ["", "hf_other", "hf_bad"] {
            assert!(parse(with(token), repo).await.is_err(), "{repo} {token:?}");
            let pinned = with(token).build().unwrap().model(repo).revision(commit.as_str());
            assert!(pinned.parse_safetensors_metadata().await.is_err(), "{repo}@ {token:?}");
        }
        assert!(parse(with("hf_good"), repo).await.is_ok());
    }
    for file in files(folder.path()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hf_good"), "{}", file.display());
    }
}

#[tokio::test]
async fn a_cached_branch_is_an_error_for_a_token_that_lost_its_access() {
    let hub = LocalHub::builder().repo(support::sharded("org/model").gated()).token("hf_good");
    let hub = hub.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let with = || builder(&hub, folder.path()).token("hf_good");
    parse(with(), "org/model").await.unwrap();
    let gone = vec![("x-error-code", "GatedRepo".to_owned()), ("x-repo-commit", "1".repeat(40))];
    hub.inject(move |_, _| Some(Fault::Status(403, gone.clone())));
    assert_eq!(parse(with(), "org/model").await.unwrap_err().kind(), ErrorKind::Gated);
}

#[tokio::test]
async fn a_public_repository_is_read_and_cached_without_an_expired_token() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let with = builder(&hub, folder.path()).token("hf_expired");
        assert_eq!(parse(with, "org/model").await.unwrap().parameter_count().total(), 2);
    }
}

/// Some mirrors send the commit with the bytes only, and some servers refuse `HEAD`.
#[tokio::test]
async fn responses_without_a_commit_are_not_cached() {
    let folder = tempfile::tempdir().unwrap();
    let hub = LocalHub::builder().repo(support::sharded("org/model")).mirror().start().unwrap();
    let total = async |hub: &LocalHub| {
        parse(builder(hub, folder.path()), "org/model").await.unwrap().parameter_count().total()
    };
    assert_eq!((total(&hub).await, total(&hub).await), (2, 2));
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    hub.inject(|request, _| (request.method == "HEAD").then(|| Fault::Status(405, Vec::new())));
    assert_eq!((total(&hub).await, total(&hub).await), (2, 2));
}

#[tokio::test]
async fn a_renamed_repository_is_cached_under_its_old_name() {
    let hub = LocalHub::start([support::sharded("org/new").renamed_from("org/old")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for requests in [None, Some(2)] {
        let parsed = parse(builder(&hub, folder.path()), "org/old").await.unwrap();
        assert_eq!(parsed.parameter_count().total(), 2);
        assert!(requests.is_none_or(|requests| requests == parsed.report().fetch.requests));
    }
}

#[tokio::test]
async fn a_failed_call_is_not_cached() {
    let hub = LocalHub::start([Repo::new("org/empty"), support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert!(parse(builder(&hub, folder.path()), "org/empty").await.is_err());
    assert!(parse(builder(&hub, folder.path()), "org/none").await.is_err());
    hub.inject(|request, _| {
        request.path.ends_with("b.safetensors").then(|| Fault::Status(403, Vec::new()))
    });
    assert!(parse(builder(&hub, folder.path()), "org/model").await.is_err());
    assert!(files(folder.path()).is_empty());
}

/// Another reader may have access to it.
#[tokio::test]
async fn a_count_without_a_forbidden_configuration_is_not_cached() {
    let header = r#"{"a.table":{"dtype":"I32","shape":[2,1],"data_offsets":[0,8]}}"#;
    let repo =
        Repo::new("org/packed").file("model.safetensors", support::file_with_header(header, 8));
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    hub.inject(|request, _| {
        request.path.ends_with("config.json").then(|| Fault::Status(403, Vec::new()))
    });
    let parsed = parse(builder(&hub, folder.path()), "org/packed").await.unwrap();
    assert_eq!(parsed.report().findings.len(), 1);
    assert!(files(folder.path()).is_empty());
}

/// The first range of a prefetch reaches into the data, which must not fill the cache.
#[cfg(unix)]
#[tokio::test]
async fn a_pipe_in_place_of_an_entry_is_replaced() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let builder = || builder(&hub, folder.path());
    parse(builder(), "gpt2").await.unwrap();
    let entries = files(folder.path());
    for entry in &entries {
        fs::remove_file(entry).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(entry).status().unwrap().success());
    }
    assert_eq!(parse(builder(), "gpt2").await.unwrap().parameter_count().total(), 137_022_720);
    assert!(entries.iter().all(|entry| fs::symlink_metadata(entry).unwrap().is_file()));
}

/// Another client may have stored what this one would not read, and other formats find other weights.
#[tokio::test]
async fn an_entry_of_a_call_with_other_limits_or_formats_is_not_corrupt() {
    let (hub, capture) = (support::fixtures_hub(), Capture::default());
    let folder = tempfile::tempdir().unwrap();
    let builder = || builder(&hub, folder.path());
    parse(builder(), "bigscience/bloom").await.unwrap();
    hub.clear_log();
    for small in [
        builder().branch_ttl(Duration::from_secs(3_600)).max_index_bytes(100),
        builder().branch_ttl(Duration::from_secs(3_600)).max_header_bytes(100),
        builder().branch_ttl(Duration::from_secs(3_600)).max_total_header_bytes(100),
        builder().offline(true).hub_cache("/nonexistent").max_index_bytes(100),
    ] {
        let error = capture.record(parse(small, "bigscience/bloom")).await.unwrap_err();
        assert!(error.is_malformed(), "{error:?}");
        assert!(error_chain(&error).contains("100"), "{error:?}");
    }
    assert_eq!(requests(&hub), [""; 0]);
    let gguf = "example/Llama-3.2-1B-GGUF";
    builder().build().unwrap().model(gguf).count().await.unwrap();
    let error = capture.record(parse(builder(), gguf)).await.unwrap_err();
    assert!(error.has_no_weights(), "{error:?}");
    let levels: Vec<_> = capture.recorded().into_iter().map(|recorded| recorded.level).collect();
    assert!(!levels.is_empty() && !levels.contains(&"WARN".to_owned()), "{levels:?}");
}

#[tokio::test]
async fn a_server_without_head_gets_a_full_request() {
    let (hub, folder) = (support::fixtures_hub(), tempfile::tempdir().unwrap());
    hub.inject(|request, _| (request.method == "HEAD").then(|| Fault::Status(501, Vec::new())));
    for stale in [Duration::ZERO, Duration::from_secs(86_400)] {
        for _ in 0..2 {
            let builder = builder(&hub, folder.path()).stale_if_error(stale);
            let parsed = parse(builder, "gpt2").await.unwrap();
            assert_eq!(parsed.parameter_count().total(), 137_022_720);
        }
    }
    assert!(hub.log().iter().any(|request| request.status == 501));
}

#[tokio::test]
async fn entries_of_prefetched_headers_contain_no_tensor_data() {
    let data: Vec<u8> =
        (0..40_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let header = r#"{"a":{"dtype":"U8","shape":[160000],"data_offsets":[0,160000]}}"#;
    let file = File::from_bytes([support::file_start(header), data].concat());
    let hub = LocalHub::start([Repo::new("org/model").file("model.safetensors", file)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = || {
        builder(&hub, folder.path())
            .build()
            .unwrap()
            .model("org/model")
            .plan(hf_meta::Plan::Prefetch)
    };
    assert_eq!(
        model().parse_safetensors_metadata().await.unwrap().report().fetch.bytes_read,
        65_536
    );
    for entry in files(folder.path()) {
        assert!(fs::metadata(&entry).unwrap().len() < 1_000, "{}", entry.display());
    }
    assert_eq!(model().parse_safetensors_metadata().await.unwrap().report().fetch.requests, 1);
}
