//! `verify` finds every planted defect, and nothing else.
//!
//! Add a test here if the expected value is a finding, or a difference between two models. A defect of one file is planted
//! in `planted`, one that its author did not notice is in `accidents`, and the choice of weight sets is in `sets`. Each
//! finding also needs a sound model in which it does not occur. Sound ones of authors are in `published`.

mod accidents;
mod against;
mod diff;
mod field;
mod formats;
mod planted;
mod published;
mod requests;
mod sets;
mod work_tree;

use hf_meta::{Client, VerifyReport};
use hf_meta_count::results::Finding;
use hf_meta_count::results::ParameterSources;
use serde_json::{Value, json};

use crate::command::run;
use crate::count::quantization::tensors;
use crate::hub::{Fault, File, LocalHub, LoggedRequest, Repo};
use crate::support;
use crate::support::checkpoint::Checkpoint;

/// A checkpoint of 72 shards, one of the shards, the shard before it, and a tensor of the first one.
const BLOOM: &str = "bigscience/bloom";

const SHARD: &str = "model_00007-of-00072.safetensors";

const OTHER: &str = "model_00006-of-00072.safetensors";

const TENSOR: &str = "h.5.input_layernorm.weight";

fn tie(set: &mut Checkpoint, tied: bool) {
    let config = json!({ "tie_word_embeddings": tied, "architectures": ["BloomForCausalLM"] });
    set.replace("config.json", &config.to_string());
}

async fn verify(repo: Repo) -> VerifyReport {
    let hub = LocalHub::start([repo]).unwrap();
    support::client(&hub).model("org/planted").verify().await.unwrap()
}

#[tokio::test]
async fn the_fixtures_are_valid() {
    let hub = support::fixtures_hub();
    for repo in ["gpt2", BLOOM, "EleutherAI/gpt-neox-20b", "roberta-base"] {
        let report = support::client(&hub).model(repo).verify().await.unwrap();
        assert_eq!(report.findings(), [], "{repo}");
        assert!(report.is_valid() && report.is_complete());
        assert_eq!(report.sets[0].files, report.sets[0].valid_files);
    }
}

#[tokio::test]
async fn single_files_are_checked() {
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
        let report = verify(Repo::new("org/planted").file("model.safetensors", file)).await;
        assert_eq!(
            (report.findings(), report.sets[0].files, report.sets[0].tensors),
            (findings, 1, 1)
        );
    }
    let file = support::file_with_header(&format!(" {{{entry}}}"), 2);
    let repo = Repo::new("org/planted").file("model.safetensors", file);
    let finding = Finding::LeadingSpace { file: "model.safetensors".to_owned() };
    assert_eq!(verify(repo.clone()).await.findings(), [finding]);
    let parsed = support::parse(&LocalHub::start([repo]).unwrap(), "org/planted").await.unwrap();
    assert_eq!((parsed.parameter_count().total(), &parsed.report().findings[..]), (2, &[][..]));
    let broken = Repo::new("org/planted").file("model.safetensors", File::from_bytes("{}"));
    let report = verify(broken).await;
    assert!(
        matches!(report.findings()[..], [Finding::MalformedHeader { .. }]),
        "{:?}",
        report.findings()
    );
    assert_eq!((report.sets[0].files, report.sets[0].valid_files), (1, 0));
}

/// A shard that the server fails to send is a finding, and the rest is checked.
#[tokio::test]
async fn a_failing_server_leaves_the_report_incomplete() {
    let mut set = Checkpoint::from_fixture(BLOOM);
    set.add(OTHER, "extra");
    let hub = LocalHub::start([set.repo("org/planted")]).unwrap();
    hub.inject(|request, _| request.path.contains(SHARD).then(|| Fault::Status(500, vec![])));
    let retry = hf_meta::RetryPolicy::default().max_attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(retry).build().unwrap();
    let report = client.model("org/planted").verify().await.unwrap();
    let [Finding::Unreadable { file, .. }, Finding::UnindexedTensor { .. }] =
        &report.findings()[..]
    else {
        panic!("{:?}", report.findings())
    };
    assert_eq!(file, SHARD);
    assert!(!report.is_complete() && !report.is_valid());
    assert_eq!((report.sets[0].files, report.sets[0].valid_files), (72, 71));
    let ran = run(&hub, &["verify", "org/planted", "--retries", "0"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stdout.contains("not fully checked: 71 of 72 files"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_failing_listing_leaves_the_report_incomplete_but_a_forbidden_one_does_not() {
    for (status, is_complete) in [(500, false), (403, true)] {
        let hub = LocalHub::start([Checkpoint::from_fixture(BLOOM).repo("org/planted")]).unwrap();
        hub.inject(move |request, _| {
            request.path.contains("/tree/").then(|| Fault::Status(status, vec![]))
        });
        let retry = hf_meta::RetryPolicy::default().max_attempts(1);
        let client =
            Client::builder().endpoint(hub.endpoint()).retry_policy(retry).build().unwrap();
        let report = client.model("org/planted").verify().await.unwrap();
        assert_eq!((report.sets[0].files, report.sets[0].valid_files), (72, 72));
        assert_eq!(report.is_complete(), is_complete, "{:?}", report.findings());
        assert_eq!(report.findings().is_empty(), is_complete, "{:?}", report.findings());
    }
}

#[tokio::test]
async fn a_repository_without_weights_is_an_error() {
    let hub = LocalHub::start([Repo::new("org/empty")]).unwrap();
    let client = support::client(&hub);
    let error = client.model("org/empty").verify().await.unwrap_err();
    assert!(error.has_no_weights() && !error.is_not_found(), "{error:?}");
    assert!(client.model("org/none").verify().await.unwrap_err().is_not_found());
    assert_eq!(run(&hub, &["verify", "org/empty"]).code, 1);
    assert_eq!(run(&hub, &["verify", "org/none"]).code, 3);
    assert_eq!(run(&hub, &["verify", "a/b/c"]).code, 2);
}

#[tokio::test]
async fn the_config_is_read_to_verify_and_not_to_count_plain_weights() {
    let hub = LocalHub::start([
        support::sharded("org/plain"),
        Checkpoint::from_fixture(BLOOM).repo("org/planted"),
    ])
    .unwrap();
    for repo in ["org/plain", "org/planted"] {
        hub.clear_log();
        support::client(&hub).model(repo).verify().await.unwrap();
        assert!(hub.log().iter().any(|entry| entry.path.contains("config.json")), "{repo}");
        hub.clear_log();
        support::parse(&hub, repo).await.unwrap();
        assert!(!hub.log().iter().any(|entry| entry.path.contains("config.json")), "{repo}");
    }
}

/// A checkpoint with many defects, and a good one.
fn hub_with_defects() -> LocalHub {
    let mut set = Checkpoint::from_fixture(BLOOM);
    *set.data(SHARD) += 1;
    set.shards.remove("model_00009-of-00072.safetensors");
    for n in 0..1_020 {
        *set.indexed_shard(&format!("ghost.{n}\u{1b}[2J")) = json!(OTHER);
    }
    set.add(OTHER, "extra");
    tie(&mut set, true);
    LocalHub::start([set.repo("org/planted"), Checkpoint::from_fixture(BLOOM).repo("org/good")])
        .unwrap()
}

#[test]
fn the_command_prints_findings() {
    let hub = hub_with_defects();
    let ran = run(&hub, &["verify", "org/planted"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(run(&hub, &["verify", "org/good"]).code, 0);
}

#[test]
fn the_command_prints_json() {
    let ran = run(&hub_with_defects(), &["verify", "org/planted", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let mut json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = json["findings"].as_array_mut().unwrap();
    assert_eq!(findings.len(), 2 + 1_001 + 1);
    findings.drain(3..1_002);
    // The index lacks shards that its first name predicts. Those already requested when it arrives are requested again.
    for key in ["seconds", "requests", "bytesRead"] {
        json["fetch"][key] = "some".into();
    }
    insta::assert_json_snapshot!(json);
}

/// The configuration of a model of 37,056 parameters, of which `q_proj` has 64 × 64.
const LLAMA: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":64,"hidden_size":64,
    "intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":4,"tie_word_embeddings":false,
    "quantization_config":{"quant_method":"modelopt"},"auto_map":{}}"#;

/// A model whose `q_proj` is packed in NVFP4.
fn packed_llama(config: &str) -> Repo {
    let weights = tensors(&[
        ("q_proj.weight", "U8", &[64, 32], 1),
        ("q_proj.weight_scale", "F8_E4M3", &[64, 4], 1),
        ("rest", "BF16", &[32_960], 2),
    ]);
    let repo = Repo::new("org/planted").file("model.safetensors", weights);
    repo.file("config.json", File::from_bytes(config.to_owned()))
}

#[tokio::test]
async fn the_count_is_compared_with_the_hub() {
    let found = 37_056;
    let hub_differs = |reported| Finding::HubCountMismatch { reported, found };
    let cases = [
        (found, vec![]),
        // The bytes as stored, as huggingface.js counts them.
        (found - 2048, vec![hub_differs(found - 2048)]),
        (7, vec![hub_differs(7)]),
    ];
    for (reported, findings) in cases {
        let report = verify(packed_llama(LLAMA).hub_reported_count("U8", reported)).await;
        assert_eq!(report.findings(), findings);
        let ParameterSources { counted, hub, .. } = report.parameters();
        assert_eq!((counted, hub), (Some(found), Some(reported)));
        assert!(report.is_valid() && report.is_complete());
    }
}

#[tokio::test]
async fn an_unreadable_hub_count_is_reported() {
    let hub = LocalHub::start([packed_llama(LLAMA)]).unwrap();
    let is_info = |request: &LoggedRequest| request.path.contains("/revision/");
    hub.inject(move |request, _| is_info(request).then(|| Fault::Status(403, Vec::new())));
    let client = support::client(&hub);
    let report = client.model("org/planted").verify().await.unwrap();
    assert!(
        matches!(&report.findings()[..], [Finding::HubCountUnavailable { reason }] if reason.contains("403")),
        "{:?}",
        report.findings()
    );
    assert_eq!(report.parameters().hub, None);
}

/// A model, a model with a warning, and a model with an error and a warning.
fn hub_of_each_severity() -> LocalHub {
    let [spaced, both] = ["Q8", "U8"].map(|dtype| {
        let entry = format!(r#""x":{{"dtype":"{dtype}","shape":[4],"data_offsets":[0,4]}}"#);
        support::file_with_header(&format!(" {{{entry}}}"), 4)
    });
    let repo = |id, file| Repo::new(id).file("model.safetensors", file);
    let good = repo("org/good", support::weights(&["x"]));
    LocalHub::start([good, repo("org/warning", both), repo("org/error", spaced)]).unwrap()
}

#[test]
fn warnings_are_errors_only_if_strict() {
    let hub = hub_of_each_severity();
    assert_eq!(run(&hub, &["verify", "org/warning"]).code, 0);
    assert_eq!(run(&hub, &["verify", "org/warning", "--strict", "--sarif"]).code, 1);
    let strict = run(&hub, &["verify", "org/warning", "--strict"]);
    let summary = "failed by --strict: 1 file and 1 tensor of model.safetensors checked, 0 errors, 1 warning\n";
    assert_eq!(strict.code, 1);
    assert!(strict.stdout.contains(summary), "{}", strict.stdout);
    let error = run(&hub, &["verify", "org/error", "--strict"]).stdout;
    assert!(error.contains("\nnot valid: "), "{error}");
    let repo = Repo::new("org/run").file("model.safetensors", support::weights(&["x"]));
    let odd = support::file_with_header(" {}", 0);
    let hub = LocalHub::start([repo.file("checkpoint-5/model.safetensors", odd)]).unwrap();
    let warned = Repo::new("org/run").file("model.safetensors", support::weights(&["x"]));
    let header = r#" {"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let spaced = support::file_with_header(header, 4);
    let several = LocalHub::start([warned.file("checkpoint-5/model.safetensors", spaced)]).unwrap();
    let ran = run(&several, &["verify", "org/run", "--all", "--strict"]);
    assert!(ran.stdout.ends_with("failed by --strict: 2 weight sets checked, 0 with errors\n"));
    let ran = run(&hub, &["verify", "org/run", "--all", "--strict"]);
    assert!(ran.stdout.ends_with("not valid: 2 weight sets checked, 1 with errors\n"));
}

/// With `-q`, a long list prints the models that need work.
#[test]
fn a_quiet_verification_prints_only_failures() {
    let hub = hub_of_each_severity();
    let names = ["org/good", "org/warning", "org/error"];
    let ran = run(&hub, &[&["verify", "-q"], &names[..]].concat());
    let lines: Vec<_> = ran.stdout.lines().collect();
    let [source, error, summary] = lines[..] else { panic!("{lines:?}") };
    assert_eq!((ran.code, source), (1, "org/error"));
    assert!(error.starts_with("error: ") && summary.starts_with("not valid: "), "{lines:?}");
    let strict = run(&hub, &[&["verify", "-q", "--strict"], &names[..]].concat()).stdout;
    let shown = |text: &str| strict.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!(["org/", "warning: ", "error: "].map(shown), [2, 2, 1], "{strict}");
    assert_eq!(run(&hub, &["verify", "-q", "org/good"]).stdout, "");
}
