//! Adapters with their configuration and their base model.
//!
//! Add a test here if the set is an adapter.

use serde_json::{Value, json};

use crate::command::run;
use crate::hub::{File, LocalHub, Repo};

/// A `LoRA` of one module, for a base model with `inputs` inputs.
fn adapter(id: &str, rank: u64, inputs: u64) -> Repo {
    let config = json!({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
        "base_model_name_or_path": "org/base",
    });
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    let [a, b] = ["A", "B"].map(|part| format!("{module}.lora_{part}.weight"));
    let tensors = [(&*a, "F32", &[rank, inputs][..]), (&*b, "F32", &[16, rank])];
    let repo = Repo::new(id).file("adapter_model.safetensors", File::safetensors(tensors));
    repo.file("adapter_config.json", File::from_bytes(config.to_string()))
}

#[test]
fn adapters_are_compared_with_their_configuration_and_base_model() {
    let query = [("model.layers.0.self_attn.q_proj.weight", "BF16", &[16, 32][..])];
    let base = Repo::new("org/base").file("model.safetensors", File::safetensors(query));
    let adapters = [
        ("org/sound", 4, 32, vec![]),
        ("org/rank", 6, 32, vec!["rankMismatch"]),
        ("org/other", 4, 48, vec!["baseShapeMismatch"]),
    ];
    let repos = adapters.iter().map(|(id, rank, inputs, _)| adapter(id, *rank, *inputs));
    let hub = LocalHub::start(repos.chain([base])).unwrap();
    for (id, _, _, expected) in adapters {
        let done = run(&hub, &["verify", id, "--base", "org/base", "--json"]);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let kinds = report["findings"].as_array().unwrap().iter().map(|found| &found["kind"]);
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{id}: {report}");
        assert_eq!(done.code, i32::from(!expected.is_empty()), "{id}");
    }
    let done = run(&hub, &["verify", "org/base", "--base", "org/base"]);
    assert!(done.stderr.contains("is not an adapter"), "{}", done.stderr);
    assert_eq!(run(&hub, &["verify", "org/sound", "--base", "org/none"]).code, 3);
}

/// Adapters of PEFT and diffusers in the format that both wrote before safetensors.
#[test]
fn pickled_adapters_are_checked_and_described() {
    let lora =
        || File::from_bytes(include_bytes!("../../../../fixtures/pytorch/lora.bin").to_vec());
    let config = |rank: u64| {
        let config = json!({
            "peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"],
            "base_model_name_or_path": "org/base",
        });
        File::from_bytes(config.to_string())
    };
    let peft = |id: &str, rank: u64| {
        let repo = Repo::new(id).file("adapter_model.bin", lora());
        repo.file("adapter_config.json", config(rank))
    };
    let invalid = peft("org/invalid", 2).file("adapter_config.json", File::from_bytes("[]"));
    let diffusers = Repo::new("org/diffusers").file("pytorch_lora_weights.bin", lora());
    let diffusers = diffusers.file("old/pytorch_lora_weights.bin", lora());
    let repos = [peft("org/sound", 2), peft("org/rank", 4), invalid, diffusers];
    let hub = LocalHub::start(repos).unwrap();
    for (id, expected) in [
        ("org/sound", &["pickledWeights"][..]),
        ("org/rank", &["pickledWeights", "rankMismatch"]),
        ("org/invalid", &["invalidConfig", "pickledWeights"]),
        ("org/diffusers", &["pickledWeights"]),
    ] {
        let done = run(&hub, &["verify", id, "--json"]);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let kinds = report["findings"].as_array().unwrap().iter().map(|found| &found["kind"]);
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{id}: {report}");
        assert_eq!(report["adapter"]["ranks"], json!({"2": 2}), "{id}");
        let shown = run(&hub, &[id, "--json", "--summary"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(shown["adapter"], report["adapter"], "{id}");
    }
}
