//! The files of a set: names, indexes, shards and copies.
//!
//! Add a test here if files are missing, left over, or not found by the loader.

use hf_meta::{Client, Source};
use hf_meta_count::results::{Finding, Severity};
use serde_json::{Value, json};

use super::{checked, verify};
use crate::call::layouts::repo;
use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, weights};

/// Mistral's and llama.cpp's shards are found without an index.
#[tokio::test]
async fn shards_without_an_index_are_found() {
    let hub = |name: &str| {
        let files = [1, 2].map(|number| format!("{name}-{number:05}-of-00002.safetensors"));
        let repo = files
            .iter()
            .fold(Repo::new("org/shards"), |repo, file| repo.file(file, weights(&[file.as_str()])));
        LocalHub::start([repo]).unwrap()
    };
    let shards = "model-*-of-00002.safetensors".to_owned();
    let missing = Finding::MissingIndex { shards };
    assert_eq!(verify(&hub("model"), "org/shards", false).await.findings(), [missing]);
    assert_eq!(verify(&hub("consolidated"), "org/shards", false).await.findings(), []);
}

const TRANSFORMERS: &str = r#"{"model_type":"brand_new","architectures":["BrandNewModel"]}"#;

/// A loader looks for its names, and nothing else.
#[tokio::test]
async fn a_name_that_the_stated_loader_does_not_find_is_a_warning() {
    let diffusers = r#"{"_class_name":"AutoencoderKL","_diffusers_version":"0.30.0"}"#;
    let peft = r#"{"peft_type":"LORA","r":8}"#;
    let warned = |file: &str, loader, expected: &str| {
        let (file, expected) = (file.to_owned(), expected.to_owned());
        Some(Finding::UnexpectedName { file, loader, expected })
    };
    let standard = "model.safetensors";
    // The configuration, its content, the files, and the expected warning.
    let cases = [
        (
            "config.json",
            TRANSFORMERS,
            &["model.fp16.safetensors"][..],
            warned("model.fp16.safetensors", "transformers", standard),
        ),
        (
            "config.json",
            TRANSFORMERS,
            &["Model.safetensors"],
            warned("Model.safetensors", "transformers", standard),
        ),
        (
            "config.json",
            TRANSFORMERS,
            &["my-model.safetensors"],
            warned("my-model.safetensors", "transformers", standard),
        ),
        ("config.json", diffusers, &[standard], warned(standard, "diffusers", VAE_FILE)),
        ("config.json", TRANSFORMERS, &[VAE_FILE], warned(VAE_FILE, "transformers", standard)),
        ("config.json", TRANSFORMERS, &[standard, "model.fp16.safetensors"], None),
        ("config.json", TRANSFORMERS, &[standard, "other.safetensors"], None),
        ("config.json", diffusers, &[VAE_FILE], None),
        // Nothing states a loader.
        ("config.json", "{}", &["my-model.safetensors"], None),
        ("config.json", r#"{"model_type":"x"}"#, &["my-model.safetensors"], None),
        (
            "config.json",
            r#"{"model_type":"x","architectures":["X"],"quantization":{"bits":4}}"#,
            &["weights.safetensors"],
            None,
        ),
        (
            "config.json",
            r#"{"model_type":"x","architectures":["X"],"transformers_weights":"a.safetensors"}"#,
            &["a.safetensors"],
            None,
        ),
        ("readme.json", TRANSFORMERS, &["my-model.safetensors"], None),
        ("adapter_config.json", peft, &["adapter_model.safetensors"], None),
    ];
    for (config, json, files, expected) in cases {
        let repo = repo("org/model", files).file(config, File::from_bytes(json));
        let hub = LocalHub::start([repo]).unwrap();
        for all in [false, true] {
            let found = verify(&hub, "org/model", all).await.findings();
            let found: Vec<_> = found
                .iter()
                .filter(|found| matches!(found, Finding::UnexpectedName { .. }))
                .collect();
            assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{json} {files:?} {all}");
        }
    }
    let text = warned("unet/model.fp16.safetensors", "transformers", standard).unwrap().to_string();
    assert!(
        text.ends_with("it loads `model.safetensors`, or this file with variant=\"fp16\""),
        "{text}"
    );
    let text = warned("Model.safetensors", "transformers", standard).unwrap().to_string();
    assert!(
        text.ends_with("which the configuration states: it loads `model.safetensors`"),
        "{text}"
    );
}

const VAE_FILE: &str = "diffusion_pytorch_model.safetensors";

/// transformers loads the single file; vLLM looks for the shards of the index.
#[tokio::test]
async fn an_index_that_was_left_over_is_found() {
    let shard = "model-00001-of-00001.safetensors";
    let with_index = |id: &str, listed: &str| {
        repo(id, &["model.safetensors"])
            .file("model.safetensors.index.json", support::index(&[("x", listed)]))
    };
    // MLX writes an index that lists the single file.
    let sound = with_index("org/mlx", "model.safetensors");
    let hub = LocalHub::start([with_index("org/stale", shard), sound]).unwrap();
    let stale = Finding::StaleIndex {
        index: "model.safetensors.index.json".to_owned(),
        file: "model.safetensors".to_owned(),
        shard: shard.to_owned(),
    };
    assert_eq!(verify(&hub, "org/stale", false).await.findings(), [stale]);
    assert_eq!(verify(&hub, "org/mlx", false).await.findings(), []);
}

/// A folder is checked like a repository.
#[tokio::test]
async fn duplicate_weights_and_leftover_shards_are_found_everywhere() {
    let index = support::index(&[("x", "model-00001-of-00001.safetensors")]);
    let index = || index.clone();
    let repo = Repo::new("org/twice")
        .file("model.safetensors", weights(&["x"]))
        .file("model.safetensors.index.json", index())
        .file("model-00001-of-00001.safetensors", weights(&["x"]));
    let leftover = Repo::new("org/leftover")
        .file("model.safetensors.index.json", index())
        .file("model-00001-of-00001.safetensors", weights(&["x"]))
        .file("model-00002-of-00002.safetensors", weights(&["x"]));
    let twice = Finding::StoredTwice {
        file: "model.safetensors".to_owned(),
        index: "model.safetensors.index.json".to_owned(),
    };
    let shard = "model-00002-of-00002.safetensors".to_owned();
    let unindexed = Finding::UnindexedShard { shard };
    let hub = LocalHub::start([repo, leftover]).unwrap();
    for (id, finding) in [("org/twice", twice), ("org/leftover", unindexed)] {
        let report = verify(&hub, id, false).await;
        assert_eq!(report.findings(), std::slice::from_ref(&finding), "{id}");
        assert_eq!(finding.severity(), Severity::Warning);
        let folder = tempfile::tempdir().unwrap();
        let files = ["model-00001-of-00001.safetensors", "model-00002-of-00002.safetensors"];
        let files = files.iter().chain(&["model.safetensors", "model.safetensors.index.json"]);
        for file in files {
            let read = support::client(&hub).model(id).read_file(&file.parse().unwrap(), 1_000);
            if let Ok(bytes) = read.await {
                std::fs::write(folder.path().join(file), bytes).unwrap();
            }
        }
        let source = Source::Local(folder.path().to_owned());
        let local = Client::new().unwrap().source(source).verify().await.unwrap();
        assert_eq!(local.findings(), [finding], "{id}");
        assert_eq!(checked(&local).1, checked(&report).1, "{id}");
    }
}

/// MLX writes an index of a single file, too.
#[tokio::test]
async fn an_index_of_the_single_file_is_not_a_second_copy() {
    let index = support::index(&[("x", "model.safetensors")]);
    let repo = Repo::new("org/mlx").file("model.safetensors", weights(&["x"]));
    let hub = LocalHub::start([repo.file("model.safetensors.index.json", index)]).unwrap();
    for all in [false, true] {
        assert_eq!(verify(&hub, "org/mlx", all).await.findings(), [], "{all}");
    }
    assert_eq!(run(&hub, &["verify", "org/mlx", "--strict"]).code, 0);
}

#[tokio::test]
async fn one_shard_is_not_a_complete_model() {
    let path = "model-00001-of-00004.safetensors";
    let hub = LocalHub::start([repo("org/one", &[path])]).unwrap();
    let report = support::client(&hub).model("org/one").path(path).verify().await.unwrap();
    assert!(report.is_valid() && !report.is_complete(), "{:?}", report.findings());
    let url = format!("{}/org/one/resolve/main/{path}", hub.endpoint());
    let ran = run(&hub, &["verify", &url]);
    assert!(ran.stdout.contains("\nshard 1 of 4: 1 file and 1 tensor of "), "{}", ran.stdout);
    assert_eq!((ran.code, run(&hub, &["verify", &url, "--strict"]).code), (0, 1));
    let json: Value = serde_json::from_str(&run(&hub, &["verify", &url, "--json"]).stdout).unwrap();
    assert_eq!((&json["valid"], &json["complete"]), (&json!(true), &json!(false)));
    assert_eq!(json["unchecked"], Value::Null);
}
