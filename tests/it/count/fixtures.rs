//! The fixtures agree with the code that generates them, and that code with the models' documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::models;

fn folder(repo: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(repo)
}

fn json_of(repo: &str, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder(repo).join(name)).unwrap()).unwrap()
}

/// Reads the header of a file of weights. The fixture on disk has no data.
fn header_text(repo: &str, name: &str) -> String {
    let file = fs::read(folder(repo).join(name)).unwrap();
    let (length, header) = file.split_first_chunk().unwrap();
    assert_eq!(
        u64::from_le_bytes(*length),
        header.len() as u64,
        "{repo}/{name} ends with its header"
    );
    String::from_utf8(header.to_vec()).unwrap()
}

fn tensors(repo: &str, name: &str) -> BTreeMap<String, Value> {
    let mut header: BTreeMap<_, Value> = serde_json::from_str(&header_text(repo, name)).unwrap();
    assert_eq!(header.remove("__metadata__"), Some(json!({ "format": "pt" })));
    header
}

fn weights(repo: &str) -> Vec<String> {
    json_of(repo, "hub.json")["sizes"].as_object().unwrap().keys().cloned().collect()
}

fn offsets(tensor: &Value) -> [u64; 2] {
    serde_json::from_value(tensor["data_offsets"].clone()).unwrap()
}

/// Returns the elements per dtype over all files, without scalars, which are constants.
fn counts(repo: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for tensor in weights(repo).iter().flat_map(|name| tensors(repo, name).into_values()) {
        let shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).unwrap();
        if !shape.is_empty() {
            let dtype = tensor["dtype"].as_str().unwrap().to_owned();
            *counts.entry(dtype).or_default() += shape.iter().product::<u64>();
        }
    }
    counts
}

/// Returns the files in a folder and below it.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

#[test]
fn files_on_disk_agree_with_the_generator() {
    for model in models::fixtures() {
        let (files, folder) = (model.files().unwrap(), folder(model.repo));
        let on_disk: BTreeSet<_> = below(&folder).into_iter().collect();
        assert_eq!(on_disk, files.keys().map(|name| folder.join(name)).collect());
        for (name, content) in files {
            assert!(fs::read(folder.join(&name)).unwrap() == content, "{}/{name}", model.repo);
        }
    }
}

#[test]
fn data_has_no_holes_and_ends_with_the_file() {
    for model in models::fixtures() {
        for (name, size) in json_of(model.repo, "hub.json")["sizes"].as_object().unwrap() {
            let mut spans: Vec<_> = tensors(model.repo, name).values().map(offsets).collect();
            spans.sort_unstable();
            let end = spans.iter().fold(0, |end, [start, next]| {
                assert_eq!(*start, end, "{}/{name}", model.repo);
                *next
            });
            assert_eq!(size.as_u64(), Some(8 + header_text(model.repo, name).len() as u64 + end));
        }
    }
}

#[test]
fn counts_agree_with_the_documentation() {
    let expected = json!({
        "gpt2": { "F32": 137_022_720 },
        "roberta-base": { "F32": 124_697_433, "I64": 514 },
        "Jean-Baptiste/camembert-ner": { "F32": 110_035_205, "I64": 514 },
        "roberta-large": { "F32": 355_412_057, "I64": 514 },
        "distilbert-base-german-cased": { "F32": 67_431_550 },
        "EleutherAI/gpt-neox-20b": { "F16": 20_554_568_208_u64, "U8": 184_549_376 },
        "bigscience/bloom-560m": { "F16": 559_214_592 },
        "bigscience/bloom": { "BF16": 176_247_271_424_u64 },
        "bigscience/bloom-3b": { "F16": 3_002_557_440_u64 },
    });
    let counted: BTreeMap<_, _> =
        models::documented().iter().map(|model| (model.repo, counts(model.repo))).collect();
    assert_eq!(json!(counted), expected);
}

#[test]
fn gpt2_is_the_file_of_the_format_documentation() {
    let file = "model.safetensors";
    let (text, tensors) = (header_text("gpt2", file), tensors("gpt2", file));
    assert_eq!(text.len(), 14_283);
    assert_eq!(tensors.len(), 160);
    assert_eq!(json_of("gpt2", "hub.json")["sizes"], json!({ file: 548_105_171 }));
    assert!(text.starts_with(r#"{"__metadata__":{"format":"pt"},"h."#));
    assert_eq!(
        tensors["h.10.ln_1.weight"],
        json!({ "dtype": "F32", "shape": [768], "data_offsets": [223_154_176, 223_157_248] })
    );
    assert_eq!(offsets(&tensors["h.2.attn.c_attn.weight"]), [541_012_992, 548_090_880]);
    assert_eq!(tensors["h.0.attn.bias"]["shape"], json!([1, 1, 1024, 1024]));
}

#[test]
fn bloom_is_72_shards_around_its_layers() {
    let (repo, index) =
        ("bigscience/bloom", json_of("bigscience/bloom", "model.safetensors.index.json"));
    assert_eq!(weights(repo).len(), 72);
    assert_eq!(index["metadata"], json!({ "total_size": 352_494_542_848_u64 }));
    assert_eq!(index["weight_map"].as_object().unwrap().len(), 845);
    assert_eq!(index["weight_map"]["word_embeddings.weight"], "model_00001-of-00072.safetensors");
    assert_eq!(index["weight_map"]["ln_f.bias"], "model_00072-of-00072.safetensors");
    assert_eq!(
        tensors(repo, "model_00012-of-00072.safetensors")["h.10.input_layernorm.weight"],
        json!({ "dtype": "BF16", "shape": [14_336], "data_offsets": [3_288_649_728_u64, 3_288_678_400_u64] })
    );
}

#[test]
fn neox_keeps_masks_and_scalars_in_46_shards() {
    let (repo, index) = (
        "EleutherAI/gpt-neox-20b",
        json_of("EleutherAI/gpt-neox-20b", "model.safetensors.index.json"),
    );
    assert_eq!(weights(repo).len(), 46);
    assert_eq!(index["metadata"], json!({ "total_size": 41_293_685_880_u64 }));
    let map = index["weight_map"].as_object().unwrap();
    assert_eq!(map.len(), 664);
    let stored = |name: &str| tensors(repo, map[name].as_str().unwrap())[name].clone();
    assert_eq!(stored("gpt_neox.layers.7.attention.bias")["shape"], json!([1, 1, 2048, 2048]));
    assert_eq!(stored("gpt_neox.layers.7.attention.bias")["dtype"], "U8");
    assert_eq!(stored("gpt_neox.layers.7.attention.masked_bias")["shape"], json!([]));
}

/// Returns the tensors of the shards next to an index, each with the name of its shard.
fn found_beside(repo: &str, index: &str) -> BTreeMap<String, String> {
    let stem = index.strip_suffix(".safetensors.index.json").unwrap();
    let is_shard =
        |path: &&String| path.strip_prefix(stem).is_some_and(|n| n.starts_with(['-', '_']));
    let weights = weights(repo);
    let shards = weights.iter().filter(is_shard).map(|path| (path, Path::new(path).file_name()));
    shards
        .flat_map(|(path, name)| {
            let name = name.unwrap().to_str().unwrap();
            tensors(repo, path).into_keys().map(move |tensor| (tensor, name.to_owned()))
        })
        .collect()
}

#[test]
fn an_index_lists_every_tensor_in_its_shard() {
    let mut indexes = 0;
    for model in models::fixtures() {
        let files = model.files().unwrap();
        for index in files.keys().filter(|path| path.ends_with(".index.json")) {
            indexes += 1;
            let map = &json_of(model.repo, index)["weight_map"];
            assert!(*map == json!(found_beside(model.repo, index)), "{}", model.repo);
        }
    }
    assert_eq!(indexes, 6);
}

#[test]
fn no_documented_header_follows_the_order_of_names_or_of_the_data() {
    for model in models::documented() {
        for name in weights(model.repo) {
            let (text, tensors) = (header_text(model.repo, &name), tensors(model.repo, &name));
            if tensors.len() < 4 {
                continue;
            }
            let place = |(tensor, entry): (&String, &Value)| {
                (text.find(&format!("\"{tensor}\":")), offsets(entry))
            };
            let (listed, data): (Vec<_>, Vec<_>) = tensors.iter().map(place).unzip();
            assert!(!listed.is_sorted(), "{}/{name} lists its tensors by name", model.repo);
            assert!(!data.is_sorted(), "{}/{name} stores its tensors by name", model.repo);
            let mut both: Vec<_> = listed.into_iter().zip(data).collect();
            both.sort_unstable();
            assert!(
                !both.is_sorted_by_key(|(_, data)| *data),
                "{}/{name} lists its data in order",
                model.repo
            );
        }
    }
}

/// The tensors in the tests of huggingface.js. Their offsets depend on all data before them.
#[test]
fn tensors_have_the_offsets_of_their_repositories() {
    let known = [
        (
            "google-bert/bert-base-uncased",
            "model.safetensors",
            "bert.embeddings.LayerNorm.beta",
            [0, 3072],
        ),
        (
            "CompVis/stable-diffusion-v1-4",
            "unet/diffusion_pytorch_model.safetensors",
            "up_blocks.3.resnets.0.norm2.bias",
            [3_409_382_416, 3_409_383_696],
        ),
        (
            "Alignment-Lab-AI/ALAI-gemma-7b",
            "7b/1/model-00004-of-00004.safetensors",
            "model.layers.24.mlp.up_proj.weight",
            [301_996_032, 452_990_976],
        ),
    ];
    for (repo, file, tensor, span) in known {
        assert_eq!(offsets(&tensors(repo, file)[tensor]), span, "{repo}");
    }
}

#[test]
fn weights_in_other_places_have_their_documented_counts() {
    // The U-Net, the VAE and the text encoder, each in two precisions.
    let pipeline = 859_520_964 + 83_653_863 + 123_060_480;
    let expected = json!({
        "CompVis/stable-diffusion-v1-4": { "F32": pipeline, "F16": pipeline, "I64": 2 * 77 },
        "sentence-transformers/LaBSE": { "F32": 470_926_848 + 590_592, "I64": 512 },
        "Alignment-Lab-AI/ALAI-gemma-7b": { "BF16": 8_537_680_896_u64 },
        "mistralai/Mistral-7B-v0.3": { "BF16": 2 * 7_248_023_552_u64 },
        "example/consolidated": { "BF16": 7_248_023_552_u64 },
        "example/shards-without-index": { "BF16": 7_248_023_552_u64 },
        "example/lora": { "F32": 6_815_744 },
        "example/lora-without-weights": {},
    });
    let counted: BTreeMap<_, _> =
        models::layouts().iter().map(|model| (model.repo, counts(model.repo))).collect();
    assert_eq!(json!(counted), expected);
}
