//! `verify` finds what is planted, and nothing else.

use hf_meta::safetensors::{Finding, Severity};
use hf_meta::{Client, Verdict};
use serde_json::{Value, json};

use crate::checkpoint::{Checkpoint, INDEX};
use crate::cli::run;
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support;

/// A set of 72 shards, one of them, the one before, and a tensor of it.
const BLOOM: &str = "bigscience/bloom";
const SHARD: &str = "model_00007-of-00072.safetensors";
const OTHER: &str = "model_00006-of-00072.safetensors";
const TENSOR: &str = "h.5.input_layernorm.weight";

/// A shard of the same model, split into fewer.
const LEFT_OVER: &str = "model_00001-of-00036.safetensors";

/// What is wrong, how it comes about, and the kinds of all findings that it gives cause for.
type Defect = (&'static str, fn(&mut Checkpoint), &'static [&'static str]);

const ERRORS: &[Defect] = &[
    ("a byte too few", |set| *set.data(SHARD) -= 1, &["badHeader"]),
    ("a byte too many", |set| *set.data(SHARD) += 1, &["badHeader"]),
    ("another shape", |set| set.entry(SHARD, TENSOR)["shape"] = json!([14_335]), &["badHeader"]),
    ("another dtype", |set| set.entry(SHARD, TENSOR)["dtype"] = json!("F32"), &["badHeader"]),
    (
        "an overlap",
        |set| *span(set) = json!([1_233_297_406_u64, 1_233_326_078_u64]),
        &["badHeader"],
    ),
    (
        "a git-LFS pointer",
        |set| set.replace(SHARD, "version https://git-lfs.github.com/"),
        &["badHeader"],
    ),
    (
        "two broken shards",
        |set| {
            *set.data(SHARD) += 1;
            *set.data(OTHER) += 1;
        },
        &["badHeader", "badHeader"],
    ),
    ("no shard", |set| drop(set.shards.remove(SHARD)), &["noFile"]),
    ("no tensor", |set| *set.place("ghost.weight") = json!(SHARD), &["missing"]),
    ("a tensor in two shards", |set| set.add(OTHER, TENSOR), &["inTwoShards"]),
    ("an index with a conflict", |set| set.replace(INDEX, "{\n<<<<<<< HEAD\n"), &["badIndex"]),
    (
        "an index of paths outside",
        |set| *set.place(TENSOR) = json!("../x.safetensors"),
        &["badIndex"],
    ),
    (
        "a lost output embedding",
        |set| {
            output(set);
            tie(set, false);
        },
        &["missing"],
    ),
];

const WARNINGS: &[Defect] = &[
    ("a tensor that the index does not name", |set| set.add(SHARD, "extra"), &["notInIndex"]),
    ("a tensor in another shard", |set| *set.place(TENSOR) = json!(OTHER), &["otherShard"]),
    ("another total size", |set| set.index["metadata"]["total_size"] = json!(1), &["totalSize"]),
    (
        "another total of parameters",
        |set| set.index["metadata"]["total_parameters"] = json!(333_312),
        &["totalParameters"],
    ),
    (
        "an unknown dtype",
        |set| set.entry(SHARD, TENSOR)["dtype"] = json!("BF17"),
        &["unknownDtype"],
    ),
    ("a number left out", leave_out, &["numberMissing"]),
    (
        "a number too high",
        |set| set.rename(SHARD, "model_00073-of-00072.safetensors"),
        &["numberBeyond"],
    ),
    ("a number twice", |set| set.rename(SHARD, "model_6-of-00072.safetensors"), &["numberTwice"]),
    (
        "another number of shards",
        |set| set.rename(SHARD, "model_00007-of-00073.safetensors"),
        &["numberOf"],
    ),
    ("a shard of another split", |set| set.replace(LEFT_OVER, "anything"), &["leftOver"]),
    (
        "a tied output embedding in the index",
        |set| {
            output(set);
            tie(set, true);
        },
        &["droppedTied"],
    ),
    ("no output embedding", |set| tie(set, false), &["noOutput"]),
    ("a config that is none", |set| set.replace("config.json", "<html>"), &["config"]),
];

const NOTES: &[Defect] = &[
    ("a tied output embedding", |set| tie(set, true), &["tied"]),
    (
        "a tied output embedding that is stored",
        |set| {
            set.add(SHARD, "lm_head.weight");
            *set.place("lm_head.weight") = json!(SHARD);
            set.index["metadata"]["total_size"] = json!(352_494_542_849_u64);
            tie(set, true);
        },
        &["tiedTwice"],
    ),
    ("a config that says nothing of it", |set| set.replace("config.json", "{}"), &[]),
];

fn span(set: &mut Checkpoint) -> &mut Value {
    &mut set.entry(SHARD, TENSOR)["data_offsets"]
}

/// The index names an output embedding.
fn output(set: &mut Checkpoint) {
    *set.place("lm_head.weight") = json!(SHARD);
}

fn tie(set: &mut Checkpoint, tied: bool) {
    let config = json!({ "tie_word_embeddings": tied, "architectures": ["BloomForCausalLM"] });
    set.replace("config.json", &config.to_string());
}

/// A shard that the index never heard of, nor of its tensors.
fn leave_out(set: &mut Checkpoint) {
    let (header, bytes) = set.shards.remove(SHARD).unwrap();
    for tensor in header.as_object().unwrap().keys() {
        set.unlist(tensor);
    }
    set.index["metadata"]["total_size"] = json!(352_494_542_848 - bytes);
}

async fn verdict(repo: Repo) -> Verdict {
    let hub = LocalHub::start([repo]).unwrap();
    support::client(&hub).model("org/planted").verify().await.unwrap()
}

/// Plants each defect, and returns what is said of it.
async fn check(defects: &[Defect], severity: Severity) -> String {
    let mut said = Vec::new();
    for (name, plant, kinds) in defects {
        let mut set = Checkpoint::of(BLOOM);
        plant(&mut set);
        let verdict = verdict(set.repo("org/planted")).await;
        let json = serde_json::to_value(&verdict).unwrap();
        let found: Vec<_> = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["kind"].as_str().unwrap())
            .collect();
        assert_eq!(found, *kinds, "{name}: {:?}", verdict.findings);
        assert!(verdict.findings.iter().all(|finding| finding.severity() == severity), "{name}");
        assert_eq!(verdict.is_valid(), severity < Severity::Error, "{name}");
        assert!(verdict.is_complete(), "{name}");
        let findings: Vec<_> =
            verdict.findings.iter().map(|finding| format!("  {finding}\n")).collect();
        said.push(format!("{name}\n{}", findings.concat()));
    }
    said.concat()
}

#[tokio::test]
async fn errors() {
    insta::assert_snapshot!(check(ERRORS, Severity::Error).await);
}

#[tokio::test]
async fn warnings() {
    insta::assert_snapshot!(check(WARNINGS, Severity::Warning).await);
}

#[tokio::test]
async fn notes() {
    insta::assert_snapshot!(check(NOTES, Severity::Note).await);
}

#[tokio::test]
async fn fixtures_are_valid() {
    let hub = support::documented();
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
        (support::file(&format!("{{{entry}}}"), 2), vec![]),
        (support::file(&claim, 2), vec![Finding::TotalParameters { declared: 7, found: 2 }]),
    ];
    for (file, findings) in cases {
        let verdict = verdict(Repo::new("org/planted").file("model.safetensors", file)).await;
        assert_eq!((verdict.findings, verdict.files, verdict.tensors), (findings, 1, 1));
    }
    let broken = Repo::new("org/planted").file("model.safetensors", File::whole("{}"));
    let verdict = verdict(broken).await;
    assert!(matches!(verdict.findings[..], [Finding::BadHeader { .. }]), "{:?}", verdict.findings);
    assert_eq!((verdict.files, verdict.valid_files), (1, 0));
}

/// What a failing server keeps from being checked is said, and the rest is checked.
#[tokio::test]
async fn a_server_that_fails() {
    let mut set = Checkpoint::of(BLOOM);
    set.add(OTHER, "extra");
    let hub = LocalHub::start([set.repo("org/planted")]).unwrap();
    hub.inject(|request, _| request.path.contains(SHARD).then(|| Fault::Status(500, vec![])));
    let retry = hf_meta::RetryPolicy::default().attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry(retry).build().unwrap();
    let verdict = client.model("org/planted").verify().await.unwrap();
    let [Finding::NotRead { file, .. }, Finding::NotInIndex { .. }] = &verdict.findings[..] else {
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
        let retry = hf_meta::RetryPolicy::default().attempts(1);
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
    json["cost"]["seconds"] = "some".into();
    insta::assert_json_snapshot!(json);
}
