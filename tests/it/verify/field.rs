//! Small repositories that public reports describe: wrong names, leftovers, and files that other programs cut or replaced.

use hf_meta_count::memory::{CacheDtype, Engine, MemoryOptions};
use hf_meta_count::results::{Finding, Severity};
use hf_meta_format::formats::weight_sets::is_part_of_file;

use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// Writes a safetensors file.
fn file(tensors: &[(&str, &str, &[u64])]) -> File {
    let header = support::header(tensors.iter().copied(), None);
    let length = header.data_length();
    let entries = header.tensors().iter().map(|(name, tensor)| {
        let (start, end) = tensor.data_offsets;
        let (dtype, shape) = (&tensor.dtype, &tensor.shape);
        format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        )
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    support::file_with_header(&json, length)
}

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 640\n";

/// mlx, `llama.cpp` and people rename files. The content decides, and the wrong name is said.
#[tokio::test]
async fn a_file_with_the_name_of_another_format_is_read() {
    let repo = Repo::new("org/model").file("pytorch_model.bin", support::weights(&["x", "y"]));
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("org/model");
    let report = model.count().await.unwrap();
    assert_eq!((report.format, report.parameter_count.total()), ("safetensors", 2));
    let found = Finding::Misnamed { file: "pytorch_model.bin".to_owned(), format: "safetensors" };
    assert!(report.findings.contains(&found), "{:?}", report.findings);
    let verified = model.verify().await.unwrap();
    assert!(verified.is_valid() && verified.findings().contains(&found));
    let shown = run(&hub, &["org/model"]);
    assert!(shown.stderr.contains("contains safetensors, although its name says otherwise"));
}

#[tokio::test]
async fn a_pointer_in_place_of_a_small_file_is_named() {
    let pointer = || File::from_bytes(POINTER);
    let packed: &[(&str, &str, &[u64])] = &[
        ("m.qweight", "I32", &[8, 64]),
        ("m.scales", "F16", &[1, 64]),
        ("m.qzeros", "I32", &[1, 8]),
    ];
    let repos = [
        Repo::new("org/config")
            .file("model.safetensors", file(packed))
            .file("config.json", pointer()),
        Repo::new("org/index")
            .file("model.safetensors.index.json", pointer())
            .file("a.safetensors", support::weights(&["x"])),
    ];
    let hub = LocalHub::start(repos).unwrap();
    for repo in ["org/config", "org/index"] {
        let verified = support::client(&hub).model(repo).verify().await.unwrap();
        let messages: Vec<_> = verified.findings().iter().map(ToString::to_string).collect();
        let is_named =
            |text: &String| text.contains("Git LFS pointer") && text.contains("`git lfs pull`");
        assert!(messages.iter().any(is_named), "{messages:?}");
    }
    let shown = run(&hub, &["--memory", "org/config"]).stdout;
    assert!(shown.contains("cache unknown: config.json looks like a Git LFS pointer"), "{shown}");
}

/// The loader of such a repository reads this file first.
#[tokio::test]
async fn a_pointer_in_place_of_a_list_of_parts_is_an_error() {
    let weights = || support::weights(&["x"]);
    let repos = [
        Repo::new("org/pipeline")
            .file("unet/diffusion_pytorch_model.safetensors", weights())
            .file("vae/diffusion_pytorch_model.safetensors", weights())
            .file("model_index.json", File::from_bytes(POINTER)),
        Repo::new("org/encoder")
            .file("model.safetensors", weights())
            .file("modules.json", File::from_bytes(POINTER)),
    ];
    let hub = LocalHub::start(repos).unwrap();
    for (repo, file) in [("org/pipeline", "model_index.json"), ("org/encoder", "modules.json")] {
        let verified = support::client(&hub).model(repo).verify().await.unwrap();
        let findings = verified.findings();
        let errors = findings.iter().filter(|found| found.severity() == Severity::Error);
        let errors: Vec<_> = errors.map(ToString::to_string).collect();
        assert!(errors.iter().any(|error| error.contains(file)), "{errors:?}");
    }
}

/// Returns a ZIP archive of stored entries without content.
fn archive(names: &[&str]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for name in names {
        let length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let offset = u32::try_from(archive.len()).unwrap().to_le_bytes();
        archive.extend([&b"PK\x03\x04"[..], &[0; 22], &length, &[0; 2], name.as_bytes()].concat());
        let entry = [&b"PK\x01\x02"[..], &[0; 24], &length, &[0; 12], &offset, name.as_bytes()];
        directory.extend(entry.concat());
    }
    let count = u16::try_from(names.len()).unwrap().to_le_bytes();
    let [length, start] =
        [directory.len(), archive.len()].map(|at| u32::try_from(at).unwrap().to_le_bytes());
    let end = [&b"PK\x05\x06"[..], &[0; 4], &count, &count, &length, &start, &[0; 2]].concat();
    [archive, directory, end].concat()
}

/// No format has the name `.jit`, so the message names the format of the content.
#[tokio::test]
async fn a_program_of_torchscript_is_not_called_safetensors() {
    let program = archive(&["m/data.pkl", "m/constants.pkl"]);
    let folder = tempfile::tempdir().unwrap();
    let hub = LocalHub::start([]).unwrap();
    for name in ["model.jit", "model.ts", "model.safetensors"] {
        let path = folder.path().join(name);
        std::fs::write(&path, &program).unwrap();
        let ran = run(&hub, &[path.to_str().unwrap()]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        for text in ["is not a valid PyTorch file", "the file is a TorchScript program"] {
            assert!(ran.stderr.contains(text), "{name}: {}", ran.stderr);
        }
    }
}

/// A second save with fewer shards, as in mflux.
#[tokio::test]
async fn a_shard_of_an_earlier_save_is_a_finding() {
    let index = [("x", "0.safetensors"), ("y", "1.safetensors")];
    let repo = Repo::new("org/model")
        .file("model.safetensors.index.json", support::index(&index))
        .file("0.safetensors", support::weights(&["x"]))
        .file("1.safetensors", support::weights(&["y"]))
        .file("2.safetensors", support::weights(&["z"]))
        .file("vae.safetensors", support::weights(&["z"]));
    let hub = LocalHub::start([repo]).unwrap();
    let verified = support::client(&hub).model("org/model").verify().await.unwrap();
    let shard = Finding::UnindexedShard { shard: "2.safetensors".to_owned() };
    assert!(verified.findings().contains(&shard), "{:?}", verified.findings());
    let unchecked = verified.unchecked.unwrap();
    let unchecked: Vec<_> = unchecked.iter().map(|set| set.path.as_str()).collect();
    assert_eq!(unchecked, ["2.safetensors", "vae.safetensors"]);
}

/// A second save that has only one shard.
#[tokio::test]
async fn shards_of_an_earlier_save_are_found_next_to_a_single_one() {
    let repo = Repo::new("org/model")
        .file("model.safetensors.index.json", support::index(&[("x", "0.safetensors")]))
        .file("0.safetensors", support::weights(&["x"]))
        .file("1.safetensors", support::weights(&["y"]))
        .file("lora.safetensors", support::weights(&["z"]));
    let hub = LocalHub::start([repo]).unwrap();
    let verified = support::client(&hub).model("org/model").verify().await.unwrap();
    let mut shards = verified.findings();
    shards.retain(|finding| matches!(finding, Finding::UnindexedShard { .. }));
    assert_eq!(shards, [Finding::UnindexedShard { shard: "1.safetensors".to_owned() }]);
}

/// `.jit` and other names that no format has.
#[tokio::test]
async fn a_file_of_any_name_is_read_by_its_content() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pytorch/ema.pt");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ema.weights");
    std::fs::copy(fixture, &path).unwrap();
    let hub = LocalHub::start([]).unwrap();
    let ran = run(&hub, &[path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("contains pytorch, although its name says otherwise"));
}

#[tokio::test]
async fn more_shards_than_their_names_imply_are_named() {
    let shard = |number| format!("model-0000{number}-of-00001.safetensors");
    let repo = Repo::new("org/model")
        .file(&shard(0), support::weights(&["x"]))
        .file(&shard(1), support::weights(&["y"]));
    let hub = LocalHub::start([repo]).unwrap();
    let error = support::client(&hub).model("org/model").count().await.unwrap_err();
    let text = "has no index, and 2 shards, although the names imply 1";
    assert!(error.to_string().contains(text), "{error}");
    let verified = support::client(&hub).model("org/model").verify().all_sets(true).await.unwrap();
    let messages: Vec<_> = verified.findings().iter().map(ToString::to_string).collect();
    assert!(messages.iter().any(|message| message.contains(text)), "{messages:?}");
}

#[tokio::test]
async fn parts_of_a_file_are_to_be_joined() {
    for name in [
        "x.gguf.part1of2",
        "x.Q6_K.gguf-split-a",
        "x.gguf.001",
        "x.safetensors.partaa",
        "x.gguf-part-b",
    ] {
        assert!(is_part_of_file(name), "{name}");
        let repo = Repo::new("org/model").file(name, support::weights(&["x"]));
        let hub = LocalHub::start([repo]).unwrap();
        let ran = run(&hub, &["org/model"]);
        assert_eq!(ran.code, 1, "{name}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("parts of a split file") && ran.stderr.contains("`cat`"),
            "{}",
            ran.stderr
        );
    }
    for name in [
        "model.safetensors.index.json",
        "x.gguf",
        "x.gguf.md5",
        "x.bin.gz",
        "x-00001-of-00002.gguf",
        "x.gguf.lock",
        "x.part1.txt",
    ] {
        assert!(!is_part_of_file(name), "{name}");
    }
}

/// modelopt describes the quantization in a separate file, also of the cache. vLLM reads it.
#[tokio::test]
async fn the_recipe_of_modelopt_is_read() {
    let name = |part: &str| format!("model.layers.0.mlp.up_proj.{part}");
    let [weight, scale, second] = ["weight", "weight_scale", "weight_scale_2"].map(name);
    let tensors: [(&str, &str, &[u64]); 5] = [
        (&weight, "U8", &[128, 32]),
        (&scale, "F8_E4M3", &[128, 4]),
        (&second, "F32", &[]),
        ("model.embed_tokens.weight", "BF16", &[96, 64]),
        ("model.norm.weight", "BF16", &[64]),
    ];
    let config = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"num_hidden_layers":1,
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"vocab_size":96,
        "dtype":"bfloat16","tie_word_embeddings":true,"max_position_embeddings":4096}"#;
    let recipe = |cache: &str| {
        format!(
            r#"{{"producer":{{"name":"modelopt"}},"quantization":{{"quant_algo":"NVFP4","kv_cache_quant_algo":{cache},"group_size":16}}}}"#
        )
    };
    for (cache, dtype) in [(r#""FP8""#, CacheDtype::Fp8), ("null", CacheDtype::Bf16)] {
        let repo = Repo::new("org/model")
            .file("model.safetensors", file(&tensors))
            .file("config.json", File::from_bytes(config))
            .file("hf_quant_config.json", File::from_bytes(recipe(cache)));
        let hub = LocalHub::start([repo]).unwrap();
        let options = MemoryOptions { engine: Engine::Vllm, ..MemoryOptions::default() };
        let report =
            support::client(&hub).model("org/model").count().memory(options).await.unwrap();
        assert_eq!(report.breakdown.method.as_deref(), Some("modelopt"));
        assert_eq!(report.parameter_count.total(), 128 * 64 + 96 * 64 + 64);
        assert_eq!(report.memory.unwrap().cache_dtype, dtype);
    }
}

/// A checkpoint with an average of the weights and the moments of Adam.
#[test]
fn the_state_of_a_training_run_is_not_part_of_bits_and_memory() {
    let hub = LocalHub::start([]).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pytorch/ema.pt");
    let csv = run(&hub, &["--format", "csv", path]).stdout;
    let rows: Vec<Vec<_>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let value = |name| rows[1][rows[0].iter().position(|column| *column == name).unwrap()];
    assert_eq!([value("parameters"), value("bits")], ["16", "32"]);
    assert!(run(&hub, &[path]).stdout.contains(", 32 bits each"));
    let json = run(&hub, &["--json", "--memory", path]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // 16 floats, and a number of 64 bits.
    assert_eq!(json["memory"]["weightBytes"], 16 * 4 + 8, "{}", json["memory"]);
}
