//! Text output.

use serde_json::Value;

use super::run;
use crate::count::quantization::tensors;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, file_start};

/// Removes the duration, which differs between runs.
fn without_seconds(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(", ") {
        Some((line, seconds)) if seconds.ends_with(" s") => format!("{line}, … s"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn parameters_are_listed_by_dtype() {
    let hub = support::fixtures_hub();
    let repos = ["bigscience/bloom", "EleutherAI/gpt-neox-20b"];
    let stdout = repos.map(|repo| run(&hub, &[repo]).data());
    insta::assert_snapshot!(without_seconds(&stdout.join("\n")));
}

/// The state of an optimizer has bytes and elements, but no parameters.
#[test]
fn bits_per_parameter_exclude_the_state_of_an_optimizer() {
    let weights = tensors(&[
        ("state_dict.w", "BF16", &[1_000], 2),
        ("optimizer_states.0.state.0.exp_avg", "F32", &[1_000], 4),
        ("optimizer_states.0.state.0.exp_avg_sq", "F32", &[1_000], 4),
    ]);
    let hub = LocalHub::start([Repo::new("org/model").file("model.safetensors", weights)]).unwrap();
    let stdout = run(&hub, &["org/model"]).stdout;
    assert!(stdout.contains("1K parameters, 16 bits each; weights only: 2.0 kB"), "{stdout}");
}

/// A repository with packed experts (eight parameters per element), a mask and a norm.
fn packed_experts() -> Repo {
    let weights = tensors(&[
        ("h.0.mlp.experts.0.qweight", "I32", &[1_000, 4_000], 4),
        ("h.0.mlp.experts.1.qweight", "I32", &[1_000, 4_000], 4),
        ("h.0.mlp.experts.0.scales", "F16", &[1, 4_000], 2),
        ("h.0.mlp.experts.1.scales", "F16", &[1, 4_000], 2),
        ("h.0.attn.bias", "F32", &[1, 1, 64, 64], 4),
        ("norm.weight", "BF16", &[500], 2),
    ]);
    let config = r#"{"quantization_config":{"quant_method":"GPTQ","bits":4},
        "num_local_experts":2,"num_experts_per_tok":1}"#;
    Repo::new("org/packed")
        .file("model.safetensors", weights)
        .file("config.json", File::from_bytes(config))
}

#[test]
fn the_count_of_a_quantized_model_is_explained() {
    let hub = LocalHub::start([packed_experts()]).unwrap();
    let table = run(&hub, &["org/packed"]).data();
    insta::assert_snapshot!("quantized", without_seconds(&table));
    insta::assert_snapshot!("explained", run(&hub, &["org/packed", "--explain"]).data());
    let json = run(&hub, &["org/packed", "--json", "--summary"]).data();
    let mut json: Value = serde_json::from_str(&json).unwrap();
    json["fetch"] = Value::from("some");
    insta::assert_json_snapshot!("quantized_json", json);
}

#[test]
fn the_total_of_an_empty_checkpoint_is_zero() {
    let hub = support::fixtures_hub();
    let stdout = run(&hub, &["example/lora-without-weights"]).data();
    let table: Vec<_> = stdout.lines().skip(1).take(2).collect();
    let rows = ["dtype  parameters  share  bytes", "total           0      -    0 B"];
    assert_eq!(table, rows, "{stdout}");
}

#[test]
fn attention_masks_are_explained() {
    let hub = support::fixtures_hub();
    insta::assert_snapshot!("explained_gpt2", run(&hub, &["gpt2", "--explain"]).data());
}

#[test]
fn tensors_are_filtered_by_name() {
    let hub = support::fixtures_hub();
    let stdout = run(&hub, &["gpt2", "--tensors", "--filter", "h.11.attn.*"]).data();
    insta::assert_snapshot!(stdout);
    let all = run(&hub, &["bigscience/bloom", "--tensors"]).data();
    assert_eq!(all.lines().count(), 1 + 845);
}

#[test]
fn modules_are_drawn_as_a_tree() {
    let hub = support::fixtures_hub();
    let repos = ["bigscience/bloom", "EleutherAI/gpt-neox-20b", "openai/gpt-oss-20b"];
    let stdout = run(&hub, &[&repos[..], &["--tree"]].concat()).data();
    insta::assert_snapshot!(stdout);
}

#[test]
fn metadata_of_the_index_and_the_files_is_printed() {
    let header =
        r#"{"__metadata__":{"format":"pt","modelspec.title":"A \u001b[31mred\u001b[0m title"}}"#;
    let index = r#"{"metadata":{"total_size":2,"note":"n"},"weight_map":{"x":"a.safetensors"}}"#;
    let repo = Repo::new("org/spec")
        .file("model.safetensors.index.json", File::from_bytes(index))
        .file("a.safetensors", support::weights(&["x"]))
        .file("spec.safetensors", File::from_bytes(file_start(header)));
    let hub = LocalHub::start([repo]).unwrap();
    let index = run(&hub, &["org/spec", "--metadata"]);
    assert_eq!((index.code, &*index.stdout), (0, "org/spec\nnote = n\ntotal_size = 2\n"));
    assert!(index.stderr.contains("declares 2 bytes in total, but the tensors take up 1"));
    let file = run(&hub, &["org/spec", "--path", "spec.safetensors", "--metadata"]).data();
    let lines = [
        "org/spec",
        "ModelSpec",
        "modelspec.title = A \\u{1b}[31mred\\u{1b}[0m title",
        "missing: modelspec.sai_model_spec, modelspec.architecture, modelspec.implementation (required)",
        "other",
        "format = pt",
    ];
    assert_eq!(file.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn other_sets_of_weights_are_listed() {
    let weights = |repo: Repo, path: &str| repo.file(path, support::weights(&["x"]));
    let several = ["a.safetensors", "\u{202e}b.safetensors", "\u{1b}[2J.safetensors"];
    let pipeline = [
        "unet/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
        "a.safetensors",
    ];
    let hub = LocalHub::builder()
        .repo(pipeline.iter().fold(Repo::new("org/pipeline"), |repo, path| weights(repo, path)))
        .repo(several.iter().fold(Repo::new("org/several"), |repo, path| weights(repo, path)))
        .repo(support::sharded("org/model"))
        .repo(Repo::new("org/other").file("a.onnx", File::from_bytes("GGUF")))
        .start()
        .unwrap();
    insta::assert_snapshot!("other_sets", without_seconds(&run(&hub, &["org/pipeline"]).data()));
    let alone = run(&hub, &["org/model", "--sets"]).data();
    assert!(alone.contains("read from model.safetensors.index.json; no other weights"), "{alone}");
    assert!(!run(&hub, &["org/model"]).data().contains("other weights"));
    let choice = run(&hub, &["org/several"]);
    assert_eq!((choice.code, choice.stdout.as_str()), (1, ""));
    assert!(
        choice.stderr.contains(
            "help: set --path to one of them, or to its folder: a.safetensors, \\u{202e}b.safetensors"
        ),
        "{}",
        choice.stderr
    );
    assert!(choice.stderr.contains("contains 2 weight sets"), "{}", choice.stderr);
    assert!(!choice.stderr.contains(['\u{202e}', '\u{1b}']));
    let other = run(&hub, &["org/other"]);
    assert_eq!(other.code, 1);
    assert!(other.stderr.contains(", only ONNX (.onnx), 1 file"), "{}", other.stderr);
}

/// The configuration of an adapter takes one more request, with a redirect to the CDN or without.
#[test]
fn adapters_are_described() {
    let hub = support::fixtures_hub();
    insta::assert_snapshot!("adapter", without_seconds(&run(&hub, &["example/lora"]).data()));
    let json = run(&hub, &["example/lora", "--json", "--summary"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    insta::assert_json_snapshot!("adapter_json", json["adapter"]);
}
