//! `verify` finds what is planted, and nothing else.

mod planted;

use hf_meta::report::Finding;
use hf_meta::{Client, VerifyReport};
use serde_json::{Value, json};

use crate::checkpoint::Checkpoint;
use crate::cli::run;
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support;

/// A set of 72 shards, one of them, the one before, and a tensor of it.
const BLOOM: &str = "bigscience/bloom";
const SHARD: &str = "model_00007-of-00072.safetensors";
const OTHER: &str = "model_00006-of-00072.safetensors";
const TENSOR: &str = "h.5.input_layernorm.weight";

fn tie(set: &mut Checkpoint, tied: bool) {
    let config = json!({ "tie_word_embeddings": tied, "architectures": ["BloomForCausalLM"] });
    set.replace("config.json", &config.to_string());
}

async fn verdict(repo: Repo) -> VerifyReport {
    let hub = LocalHub::start([repo]).unwrap();
    support::client(&hub).model("org/planted").verify().await.unwrap()
}

#[tokio::test]
async fn fixtures_are_valid() {
    let hub = support::fixtures_hub();
    for repo in ["gpt2", BLOOM, "EleutherAI/gpt-neox-20b", "roberta-base"] {
        let verdict = support::client(&hub).model(repo).verify().await.unwrap();
        assert_eq!(verdict.findings, [], "{repo}");
        assert!(verdict.is_valid() && verdict.is_complete());
        assert_eq!(verdict.files, verdict.valid_files);
    }
}

#[tokio::test]
async fn single_files() {
    let entry = r#""w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
    let claim = format!(r#"{{"__metadata__":{{"total_parameters":"7"}},{entry}}}"#);
    let cases = [
        (support::file_with_header(&format!("{{{entry}}}"), 2), vec![]),
        (
            support::file_with_header(&claim, 2),
            vec![Finding::TotalParametersMismatch { declared: 7, found: 2 }],
        ),
    ];
    for (file, findings) in cases {
        let verdict = verdict(Repo::new("org/planted").file("model.safetensors", file)).await;
        assert_eq!((verdict.findings, verdict.files, verdict.tensors), (findings, 1, 1));
    }
    let broken = Repo::new("org/planted").file("model.safetensors", File::from_bytes("{}"));
    let verdict = verdict(broken).await;
    assert!(
        matches!(verdict.findings[..], [Finding::MalformedHeader { .. }]),
        "{:?}",
        verdict.findings
    );
    assert_eq!((verdict.files, verdict.valid_files), (1, 0));
}

/// What a failing server keeps from being checked is said, and the rest is checked.
#[tokio::test]
async fn a_server_that_fails() {
    let mut set = Checkpoint::of(BLOOM);
    set.add(OTHER, "extra");
    let hub = LocalHub::start([set.repo("org/planted")]).unwrap();
    hub.inject(|request, _| request.path.contains(SHARD).then(|| Fault::Status(500, vec![])));
    let retry = hf_meta::RetryPolicy::default().max_attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry(retry).build().unwrap();
    let verdict = client.model("org/planted").verify().await.unwrap();
    let [Finding::Unreadable { file, .. }, Finding::UnindexedTensor { .. }] = &verdict.findings[..]
    else {
        panic!("{:?}", verdict.findings)
    };
    assert_eq!(file, SHARD);
    assert!(!verdict.is_complete() && !verdict.is_valid());
    assert_eq!((verdict.files, verdict.valid_files), (72, 71));
    let ran = run(&hub, &["verify", "org/planted", "--retries", "0"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stdout.contains("not fully checked: 71 of 72 files"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_listing_that_fails_or_is_not_to_be_had() {
    for (status, is_complete) in [(500, false), (403, true)] {
        let hub = LocalHub::start([Checkpoint::of(BLOOM).repo("org/planted")]).unwrap();
        hub.inject(move |request, _| {
            request.path.contains("/tree/").then(|| Fault::Status(status, vec![]))
        });
        let retry = hf_meta::RetryPolicy::default().max_attempts(1);
        let client = Client::builder().endpoint(hub.endpoint()).retry(retry).build().unwrap();
        let verdict = client.model("org/planted").verify().await.unwrap();
        assert_eq!((verdict.files, verdict.valid_files), (72, 72));
        assert_eq!(verdict.is_complete(), is_complete, "{:?}", verdict.findings);
        assert_eq!(verdict.findings.is_empty(), is_complete, "{:?}", verdict.findings);
    }
}

/// What there is none of cannot be checked.
#[tokio::test]
async fn nothing_to_check() {
    let hub = LocalHub::start([Repo::new("org/empty")]).unwrap();
    let client = support::client(&hub);
    assert!(client.model("org/empty").verify().await.unwrap_err().is_not_found());
    assert!(client.model("org/none").verify().await.unwrap_err().is_not_found());
    assert_eq!(run(&hub, &["verify", "org/empty"]).code, 1);
    assert_eq!(run(&hub, &["verify", "org/none"]).code, 3);
    assert_eq!(run(&hub, &["verify", "a/b/c"]).code, 2);
}

#[tokio::test]
async fn the_config_is_asked_for_where_it_can_tell_something() {
    let hub =
        LocalHub::start([support::sharded("org/plain"), Checkpoint::of(BLOOM).repo("org/planted")])
            .unwrap();
    for (repo, asks) in [("org/plain", false), ("org/planted", true)] {
        hub.clear_log();
        support::client(&hub).model(repo).verify().await.unwrap();
        assert_eq!(
            hub.log().iter().any(|entry| entry.path.contains("config.json")),
            asks,
            "{repo}"
        );
        hub.clear_log();
        support::parse(&hub, repo).await.unwrap();
        assert!(!hub.log().iter().any(|entry| entry.path.contains("config.json")), "{repo}");
    }
}

/// A set with much wrong with it, for the command.
fn wreck() -> LocalHub {
    let mut set = Checkpoint::of(BLOOM);
    *set.data(SHARD) += 1;
    set.shards.remove("model_00009-of-00072.safetensors");
    for n in 0..1_020 {
        *set.place(&format!("ghost.{n}\u{1b}[2J")) = json!(OTHER);
    }
    set.add(OTHER, "extra");
    tie(&mut set, true);
    LocalHub::start([set.repo("org/planted"), Checkpoint::of(BLOOM).repo("org/good")]).unwrap()
}

#[test]
fn the_command() {
    let hub = wreck();
    let ran = run(&hub, &["verify", "org/planted"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(run(&hub, &["verify", "org/good"]).code, 0);
}

#[test]
fn the_command_as_json() {
    let ran = run(&wreck(), &["verify", "org/planted", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let mut json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = json["findings"].as_array_mut().unwrap();
    assert_eq!(findings.len(), 2 + 1_001 + 1);
    findings.drain(3..1_002);
    json["fetch"]["seconds"] = "some".into();
    insta::assert_json_snapshot!(json);
}
