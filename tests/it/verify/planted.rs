//! Defects that are planted one by one, and the findings of each.

use hf_meta_count::results::Severity;
use serde_json::{Value, json};

use super::{BLOOM, OTHER, SHARD, TENSOR, tie, verify};
use crate::support::checkpoint::{Checkpoint, INDEX};

/// A shard of another split of the same model.
const LEFT_OVER: &str = "model_00001-of-00036.safetensors";

/// A description, a function that plants the defect, and the kinds of all findings that it causes.
type Defect = (&'static str, fn(&mut Checkpoint), &'static [&'static str]);

const ERRORS: &[Defect] = &[
    ("a config that is none", |set| set.replace("config.json", "<html>"), &["invalidConfig"]),
    ("a number left out", leave_out, &["missingNumber", "shardNumberMissing"]),
    (
        "an unknown dtype",
        |set| set.entry(SHARD, TENSOR)["dtype"] = json!("BF17"),
        &["unknownDtype"],
    ),
    ("a byte too few", |set| *set.data(SHARD) -= 1, &["malformedHeader"]),
    ("a byte too many", |set| *set.data(SHARD) += 1, &["malformedHeader"]),
    (
        "another shape",
        |set| set.entry(SHARD, TENSOR)["shape"] = json!([14_335]),
        &["malformedHeader"],
    ),
    ("another dtype", |set| set.entry(SHARD, TENSOR)["dtype"] = json!("F32"), &["malformedHeader"]),
    (
        "an overlap",
        |set| *span(set) = json!([1_233_297_406_u64, 1_233_326_078_u64]),
        &["malformedHeader"],
    ),
    (
        "a Git LFS pointer",
        |set| set.replace(SHARD, "version https://git-lfs.github.com/"),
        &["malformedHeader"],
    ),
    (
        "two broken shards",
        |set| {
            *set.data(SHARD) += 1;
            *set.data(OTHER) += 1;
        },
        &["malformedHeader", "malformedHeader"],
    ),
    ("no shard", |set| drop(set.shards.remove(SHARD)), &["missingShard"]),
    ("no tensor", |set| *set.indexed_shard("ghost.weight") = json!(SHARD), &["missingTensor"]),
    ("a tensor in two shards", |set| set.add(OTHER, TENSOR), &["duplicateTensor"]),
    (
        "an index with a conflict",
        |set| set.replace(INDEX, "{\n<<<<<<< HEAD\n"),
        &["malformedIndex"],
    ),
    (
        "an index of paths outside",
        |set| *set.indexed_shard(TENSOR) = json!("../x.safetensors"),
        &["malformedIndex"],
    ),
    (
        "a lost output embedding",
        |set| {
            output(set);
            tie(set, false);
        },
        &["missingTensor"],
    ),
];

const WARNINGS: &[Defect] = &[
    ("a tensor that the index does not name", |set| set.add(SHARD, "extra"), &["unindexedTensor"]),
    ("a tensor in another shard", |set| *set.indexed_shard(TENSOR) = json!(OTHER), &["wrongShard"]),
    (
        "another total size",
        |set| set.index["metadata"]["total_size"] = json!(1),
        &["totalSizeMismatch"],
    ),
    (
        "another total of parameters",
        |set| set.index["metadata"]["total_parameters"] = json!(333_312),
        &["totalParametersMismatch"],
    ),
    (
        "a number too high",
        |set| set.rename(SHARD, "model_00073-of-00072.safetensors"),
        &["shardNumberOutOfRange"],
    ),
    (
        "a number twice",
        |set| set.rename(SHARD, "model_6-of-00072.safetensors"),
        &["duplicateShardNumber"],
    ),
    (
        "another number of shards",
        |set| set.rename(SHARD, "model_00007-of-00073.safetensors"),
        &["shardTotalMismatch"],
    ),
    ("a shard of another split", |set| set.replace(LEFT_OVER, "anything"), &["unindexedShard"]),
    (
        "a tied output embedding in the index",
        |set| {
            output(set);
            tie(set, true);
        },
        &["droppedTiedEmbedding"],
    ),
    ("no output embedding", |set| tie(set, false), &["missingOutputEmbedding"]),
];

const NOTES: &[Defect] = &[
    ("a tied output embedding", |set| tie(set, true), &["tiedEmbedding"]),
    (
        "a tied output embedding that is stored",
        |set| {
            set.add(SHARD, "lm_head.weight");
            *set.indexed_shard("lm_head.weight") = json!(SHARD);
            set.index["metadata"]["total_size"] = json!(352_494_542_849_u64);
            tie(set, true);
        },
        &["tiedEmbeddingStored"],
    ),
    ("a config that says nothing of it", |set| set.replace("config.json", "{}"), &[]),
];

fn span(set: &mut Checkpoint) -> &mut Value {
    &mut set.entry(SHARD, TENSOR)["data_offsets"]
}

/// Adds an output embedding to the index.
fn output(set: &mut Checkpoint) {
    *set.indexed_shard("lm_head.weight") = json!(SHARD);
}

/// Removes a shard and all its tensors from the index.
fn leave_out(set: &mut Checkpoint) {
    let (header, bytes) = set.shards.remove(SHARD).unwrap();
    for tensor in header.as_object().unwrap().keys() {
        set.unlist(tensor);
    }
    set.index["metadata"]["total_size"] = json!(352_494_542_848 - bytes);
}

/// Plants each defect, checks its findings, and returns their messages.
async fn check(defects: &[Defect], severity: Severity) -> String {
    let mut said = Vec::new();
    for (name, plant, kinds) in defects {
        let mut set = Checkpoint::from_fixture(BLOOM);
        plant(&mut set);
        let report = verify(set.repo("org/planted")).await;
        let json = serde_json::to_value(&report).unwrap();
        let found: Vec<_> = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["kind"].as_str().unwrap())
            .collect();
        assert_eq!(found, *kinds, "{name}: {:?}", report.findings());
        let severities = report.findings().into_iter().map(|finding| finding.severity());
        assert!(severities.max().is_none_or(|most| most == severity), "{name}");
        assert_eq!(report.is_valid(), severity < Severity::Error, "{name}");
        assert!(report.is_complete(), "{name}");
        // The count of a model is right without the copy of its embedding.
        assert!(
            report.parameters().counted.is_some() || found != ["droppedTiedEmbedding"],
            "{name}"
        );
        let findings: Vec<_> =
            report.findings().iter().map(|finding| format!("  {finding}\n")).collect();
        said.push(format!("{name}\n{}", findings.concat()));
    }
    said.concat()
}

#[tokio::test]
async fn each_error_is_found() {
    insta::assert_snapshot!(check(ERRORS, Severity::Error).await);
}

#[tokio::test]
async fn each_warning_is_found() {
    insta::assert_snapshot!(check(WARNINGS, Severity::Warning).await);
}

#[tokio::test]
async fn each_note_is_found() {
    insta::assert_snapshot!(check(NOTES, Severity::Note).await);
}
