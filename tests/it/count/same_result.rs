//! The same files give the same figures, whatever path the headers take to the counter.

use std::fs;

use hf_meta::{Client, CountReport, DiskCache, Dtype, Source};
use hf_meta::{RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, SafetensorsParseFromRepo};
use hf_meta_count::count::Configs;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// A tensor, with the shard that holds it.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dtype: &'static str,
    shape: Vec<u64>,
    shard: usize,
}

const SHARDS: usize = 3;

/// Parts of modules: packed weights with what belongs to them, experts, buffers and draft layers.
const PARTS: [&str; 18] = [
    "q_proj.weight",
    "q_proj.qweight",
    "q_proj.qzeros",
    "q_proj.scales",
    "q_proj.biases",
    "q_proj.g_idx",
    "q_proj.weight_packed",
    "q_proj.weight_scale",
    "q_proj.weight.absmax",
    "mlp.experts.0.w1.weight",
    "mlp.experts.1.w1.weight",
    "mlp.experts.1.w1.scales",
    "mlp.experts.gate_up_proj_blocks",
    "mlp.experts.gate_up_proj_scales",
    "mlp.shared_experts.w1.weight",
    "attn.bias",
    "position_ids",
    "norm.weight",
];

const MODULES: [&str; 4] = ["model.layers.0", "model.layers.1", "model.layers.2", "mtp"];

const DTYPES: [&str; 7] = ["U8", "I8", "I32", "U32", "I64", "F16", "F8_E4M3"];

const CONFIGS: [Option<&str>; 9] = [
    None,
    Some("{"),
    Some(
        r#"{"num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,"num_hidden_layers":2}"#,
    ),
    Some(
        r#"{"quantization_config":{"quant_method":"gptq","bits":4},"num_experts":2,"num_experts_per_tok":1}"#,
    ),
    Some(r#"{"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true}}"#),
    Some(
        r#"{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized"}}"#,
    ),
    Some(
        r#"{"expert_dtype":"fp4","quantization_config":{"quant_method":"fp8"},"num_experts":2,"num_experts_per_tok":1}"#,
    ),
    Some(r#"{"quantization_config":{"quant_method":"mxfp4"}}"#),
    Some(r#"{"quantization":{"bits":4,"group_size":64}}"#),
];

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let names: Vec<_> =
        MODULES.iter().flat_map(|module| PARTS.map(|part| format!("{module}.{part}"))).collect();
    prop::sample::subsequence(names, 1..24).prop_flat_map(|names| {
        let attributes =
            (prop::sample::select(&DTYPES[..]), prop::sample::select(shapes()), 0..SHARDS);
        prop::collection::vec(attributes, names.len()).prop_map(move |attributes| {
            let tensors = names.iter().cloned().zip(attributes);
            tensors
                .map(|(name, (dtype, shape, shard))| Tensor { name, dtype, shape, shard })
                .collect()
        })
    })
}

fn shapes() -> Vec<Vec<u64>> {
    vec![vec![], vec![3], vec![2, 4], vec![4, 8], vec![1, 1, 4, 4], vec![2, 0]]
}

fn shard_name(shard: usize) -> String {
    format!("model-{:05}-of-{SHARDS:05}.safetensors", shard + 1)
}

/// A file with the tensors of a shard.
fn file(tensors: &[Tensor], shard: usize) -> Vec<u8> {
    let (mut entries, mut end) = (serde_json::Map::new(), 0);
    for tensor in tensors.iter().filter(|tensor| tensor.shard == shard) {
        let bits = Dtype::from(tensor.dtype).bits().unwrap();
        let begin = end;
        end += tensor.shape.iter().product::<u64>() * bits / 8;
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, end]});
        entries.insert(tensor.name.clone(), entry);
    }
    let mut file = support::file_start(&Value::Object(entries).to_string());
    file.resize(file.len() + usize::try_from(end).unwrap(), 0);
    file
}

fn index(tensors: &[Tensor]) -> String {
    let map: serde_json::Map<_, _> = tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), shard_name(tensor.shard).into()))
        .collect();
    json!({"weight_map": map}).to_string()
}

/// All files of a set of weights by name, with the index or without.
fn files(tensors: &[Tensor], config: Option<&str>, has_index: bool) -> Vec<(String, Vec<u8>)> {
    let shards =
        (0..SHARDS).filter(|shard| !has_index || tensors.iter().any(|t| t.shard == *shard));
    let mut files: Vec<_> = shards.map(|shard| (shard_name(shard), file(tensors, shard))).collect();
    if has_index {
        files.push(("model.safetensors.index.json".to_owned(), index(tensors).into()));
    }
    files.extend(config.map(|config| ("config.json".to_owned(), config.into())));
    files
}

/// The figures that must not depend on the path.
fn figures(report: &CountReport) -> Value {
    let mut figures = serde_json::to_value(report).unwrap();
    for key in ["source", "commit", "filepaths", "findings", "fetch", "otherSets", "plan"] {
        figures.as_object_mut().unwrap().remove(key);
    }
    figures
}

/// Reads a repository over HTTP in every way, and returns the figures of each.
async fn remote(hub: &LocalHub, repo: &str) -> Vec<(String, Value)> {
    let folder = tempfile::tempdir().unwrap();
    let cached = Client::builder()
        .endpoint(hub.endpoint())
        .header_cache(DiskCache::new(folder.path()))
        .build()
        .unwrap();
    let mut found = Vec::new();
    for prefetch in [false, true] {
        let model = support::client(hub).model(repo).plan(support::plan(prefetch));
        let parsed = model.parse_safetensors_metadata().await.unwrap();
        found.push((format!("{repo} parsed, prefetch {prefetch}"), figures(parsed.report())));
        let counted = model.count().await.unwrap();
        found.push((format!("{repo} counted, prefetch {prefetch}"), figures(&counted)));
    }
    for call in ["stored in the cache", "from the cache"] {
        let counted = cached.model(repo).plan(hf_meta::Plan::Prefetch).count().await.unwrap();
        found.push((format!("{repo} {call}"), figures(&counted)));
    }
    let parsed = cached.model(repo).parse_safetensors_metadata().await.unwrap();
    found.push((format!("{repo} parsed from the cache"), figures(parsed.report())));
    found
}

/// Reads a local folder.
async fn local(files: &[(String, Vec<u8>)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let source = Source::Local(folder.path().to_owned());
    let client = Client::new().unwrap();
    figures(&client.source(source).count().await.unwrap())
}

/// Assembles the result from headers in a different order.
fn from_headers(tensors: &[Tensor], config: Option<&str>, has_index: bool) -> Value {
    let index =
        has_index.then(|| SafetensorsIndexJson::from_json(index(tensors).as_bytes()).unwrap());
    let headers = files(tensors, None, has_index).into_iter().rev().filter_map(|(name, bytes)| {
        let path: RepoPath = name.parse().unwrap();
        let size = bytes.len() as u64;
        let header = || SafetensorsFileHeader::from_file_start(&bytes, Some(size)).unwrap();
        name.ends_with(".safetensors").then(|| (path, header()))
    });
    let configs = config.and_then(|json| Configs::from_config_json(json.as_bytes()).ok());
    let parsed = SafetensorsParseFromRepo::from_headers(
        index,
        headers.collect(),
        &configs.unwrap_or_default(),
    );
    figures(parsed.unwrap().report())
}

/// A configuration that no tensor needs is not read; from headers it is given all the same, and only its method
/// shows.
fn without_method(mut figures: Value) -> Value {
    figures["breakdown"]["method"] = Value::Null;
    figures
}

#[test]
fn all_paths_give_the_same_result() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let inputs = (tensors(), prop::sample::select(&CONFIGS[..]));
    let result = runner.run(&inputs, |(tensors, config)| {
        runtime.block_on(async {
            let [indexed, unindexed] = [true, false].map(|has| files(&tensors, config, has));
            let repo = |name: &str, files: &[(String, Vec<u8>)]| {
                files.iter().fold(Repo::new(name), |repo, (path, bytes)| {
                    repo.file(path, File::from_bytes(bytes.clone()))
                })
            };
            let repos = [repo("org/indexed", &indexed), repo("org/unindexed", &unindexed)];
            let hub = LocalHub::start(repos).unwrap();
            let mut found = remote(&hub, "org/indexed").await;
            found.extend(remote(&hub, "org/unindexed").await);
            found.push(("local folder".to_owned(), local(&indexed).await));
            found.push(("local folder without index".to_owned(), local(&unindexed).await));
            let (_, expected) = found[0].clone();
            for (path, figures) in found {
                prop_assert_eq!(&figures, &expected, "{}", path);
            }
            let expected = without_method(expected);
            for has_index in [true, false] {
                let figures = without_method(from_headers(&tensors, config, has_index));
                prop_assert_eq!(&figures, &expected, "from headers, index: {}", has_index);
            }
            Ok(())
        })
    });
    result.unwrap();
}
