//! Checkpoints in both formats, whose counts must be equal.
//!
//! Add a test here if a file is compared with its conversion.

use std::collections::{BTreeMap, BTreeSet};

use hf_meta_count::results::diff::Diff;
use hf_meta_format::formats::pytorch::PyTorch;
use hf_meta_format::formats::{Format as _, HeaderError, read_header};
use serde::Deserialize;

use super::{fixture, json, stems};
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// Name, dtype and shape.
type Tensor<'a> = (&'a str, &'a str, &'a [u64]);

/// A conversion drops one of two tied tensors, and stores an expanded tensor as it is loaded.
#[tokio::test]
async fn a_conversion_does_not_differ() {
    let cases: [(&str, &[Tensor<'_>]); 5] = [
        ("tied.bin", &[("wte.weight", "F32", &[6, 4]), ("h.weight", "F32", &[2, 2])]),
        ("legacy-tied.bin", &[("lm_head.weight", "F32", &[6, 4]), ("h.weight", "F32", &[2, 2])]),
        ("slices.bin", &[("q", "F32", &[2, 4]), ("k", "F32", &[2, 4]), ("v", "F32", &[2, 4])]),
        ("expanded.bin", &[("e", "F32", &[5, 3]), ("s", "F32", &[2, 2]), ("w", "F32", &[4, 4])]),
        ("dtype-bfloat16.bin", &[("w", "BF16", &[2, 3]), ("scalar", "BF16", &[])]),
    ];
    for (name, tensors) in cases {
        let safetensors = File::safetensors(tensors.iter().copied());
        let repos = [
            Repo::new("org/pickle").file("pytorch_model.bin", File::from_bytes(fixture(name))),
            Repo::new("org/converted").file("model.safetensors", safetensors),
        ];
        let hub = LocalHub::start(repos).unwrap();
        let client = support::client(&hub);
        let before = client.model("org/pickle").inspect().await.unwrap();
        let after = client.model("org/converted").inspect().await.unwrap();
        for diff in [Diff::new(&before, &after, false), Diff::new(&after, &before, false)] {
            assert!(diff.is_empty(), "{name}: {:?}", diff.changes);
        }
    }
}

/// A model as safetensors: dtype and shape of each tensor by name.
type Header = BTreeMap<String, (String, Vec<u64>)>;

fn safetensors(header: &Header) -> File {
    File::safetensors(
        header.iter().map(|(name, (dtype, shape))| (name.as_str(), dtype.as_str(), &shape[..])),
    )
}

/// Compares a checkpoint with its conversion in both directions, and returns the number of parameters of each.
async fn compare(name: &str, pickle: Vec<u8>, converted: &Header, config: &str) -> [u64; 2] {
    let config = File::from_bytes(config.to_owned());
    let hub = LocalHub::start([
        Repo::new("org/pickle")
            .file("pytorch_model.bin", File::from_bytes(pickle))
            .file("config.json", config.clone()),
        Repo::new("org/converted")
            .file("model.safetensors", safetensors(converted))
            .file("config.json", config),
    ])
    .unwrap();
    let client = support::client(&hub);
    let before = client.model("org/pickle").inspect().await.unwrap();
    let after = client.model("org/converted").inspect().await.unwrap();
    for diff in [Diff::new(&before, &after, false), Diff::new(&after, &before, false)] {
        assert!(diff.is_empty(), "{name}: {:?}", diff.changes);
    }
    let mut totals = [0; 2];
    for (total, repo) in totals.iter_mut().zip(["org/pickle", "org/converted"]) {
        let report = client.model(repo).count().await.unwrap();
        assert!(report.is_exact(), "{name}: {:?}", report.findings);
        *total = report.parameter_count.total();
    }
    totals
}

/// Models of 18 architectures as `save_pretrained` of transformers 4.30 and 5.23 writes them in both formats. Tied
/// tensors are in the pickle only.
#[tokio::test]
async fn conversions_of_transformers_do_not_differ() {
    for folder in ["models/transformers-4.30.2", "models/transformers-5.23.0"] {
        let headers: BTreeMap<String, Header> = json(&format!("{folder}/safetensors.json"));
        assert_eq!(headers.len(), 18);
        let mut dropped = 0;
        for (name, converted) in headers {
            let pickle = fixture(&format!("{folder}/{name}.bin"));
            let [found, expected] = compare(&name, pickle, &converted, "{}").await;
            assert_eq!(found, expected, "{folder}/{name}");
            let names = stored_names(&format!("{folder}/{name}.bin"));
            dropped += names.iter().filter(|name| !converted.contains_key(*name)).count();
        }
        assert!(dropped >= 10, "{folder}: only {dropped} tied tensors");
    }
}

/// Returns the names of all tensors that `torch.load` finds in a model.
fn stored_names(name: &str) -> BTreeSet<String> {
    let file = fixture(name);
    let parser = PyTorch.parser(&"model.bin".parse().unwrap(), 1 << 30);
    let header = read_header(parser, Some(file.len() as u64), |range| {
        let at = |offset: u64| usize::try_from(offset).unwrap().min(file.len());
        Ok::<_, HeaderError>(file[at(range.start)..at(range.end)].to_vec())
    });
    let header = header.unwrap();
    let aliases = header.pickle.as_deref().unwrap().aliases().map(|view| view.name.clone());
    header.tensors().iter().map(|(name, _)| name.to_owned()).chain(aliases).collect()
}

#[tokio::test]
async fn shards_of_an_older_transformers_are_read() {
    let folder = "models/transformers-4.30.2/sharded";
    let shards = stems(folder, ".bin");
    assert!(shards.len() > 1, "{shards:?}");
    let index = "pytorch_model.bin.index.json";
    let repo =
        Repo::new("org/model").file(index, File::from_bytes(fixture(&format!("{folder}/{index}"))));
    let repo = shards.iter().fold(repo, |repo, shard| {
        repo.file(
            &format!("{shard}.bin"),
            File::from_bytes(fixture(&format!("{folder}/{shard}.bin"))),
        )
    });
    let hub = LocalHub::start([repo]).unwrap();
    let report = support::client(&hub).model("org/model").verify().await.unwrap();
    assert!(report.is_valid(), "{:?}", report.findings());
    let report = support::client(&hub).model("org/model").count().await.unwrap();
    // GPT-2 with 40 tokens, 10 positions, 2 layers and 8 channels; the masks of version 4.30 are not persistent.
    let layer = 4 * 8 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8);
    assert_eq!(report.parameter_count.total(), 40 * 8 + 10 * 8 + 2 * layer + 2 * 8);
}

/// The fixture of a quantized model; see `tests/oracles/fixture.py`.
#[derive(Deserialize)]
struct Quantized {
    true_parameters: u64,
    config: serde_json::Value,
    tensors: Vec<QuantizedTensor>,
}

#[derive(Deserialize)]
struct QuantizedTensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
}

/// The state dictionaries of bitsandbytes, GPTQModel and AutoAWQ.
#[tokio::test]
async fn quantized_pickles_have_the_counts_of_their_safetensors() {
    let names = stems("quantized", ".bin");
    assert!(names.len() >= 11, "{names:?}");
    for name in names {
        let Quantized { true_parameters, config, tensors } =
            json(&format!("quantized/{name}.json"));
        let tensors = tensors.into_iter();
        let header = tensors.map(|tensor| (tensor.name, (tensor.dtype, tensor.shape))).collect();
        let pickle = fixture(&format!("quantized/{name}.bin"));
        let totals = compare(&name, pickle, &header, &config.to_string()).await;
        assert_eq!(totals, [true_parameters; 2], "{name}");
    }
}
