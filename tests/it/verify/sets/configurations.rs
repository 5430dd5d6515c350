//! The configurations of a set.
//!
//! Add a test here if the choice of a configuration decides what a set is compared with.

use hf_meta_count::results::Finding;
use serde_json::{Value, json};

use super::verify;
use crate::hub::{File, LocalHub, Repo};

/// A recipe in the file of AutoGPTQ, which `config.json` replaced.
#[tokio::test]
async fn a_recipe_in_a_separate_file_is_compared() {
    let model = |id: &str, config: Value, recipe: &str| {
        let tensors = [
            ("model.layers.0.mlp.down_proj.g_idx", "I32", &[64][..]),
            ("model.layers.0.mlp.down_proj.qweight", "I32", &[8, 32]),
            ("model.layers.0.mlp.down_proj.qzeros", "I32", &[2, 4]),
            ("model.layers.0.mlp.down_proj.scales", "F16", &[2, 32]),
        ];
        let repo = Repo::new(id).file("model.safetensors", File::safetensors(tensors));
        let repo = repo.file("config.json", File::from_bytes(config.to_string()));
        repo.file("quantize_config.json", File::from_bytes(recipe.to_owned()))
    };
    let in_config =
        json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}});
    let repos = [
        model("org/sound", json!({}), r#"{"bits": 4, "group_size": 32}"#),
        model("org/group", json!({}), r#"{"bits": 4, "group_size": 64}"#),
        model("org/invalid", json!({}), "[]"),
        model("org/ignored", in_config, r#"{"bits": 4, "group_size": 64}"#),
    ];
    let hub = LocalHub::start(repos).unwrap();
    for (id, expected) in [
        ("org/sound", &[][..]),
        ("org/group", &["partShapeMismatch", "partShapeMismatch"]),
        ("org/invalid", &["unusableConfig"]),
        ("org/ignored", &[]),
    ] {
        let report = verify(&hub, id, false).await;
        let kinds = report.findings().into_iter();
        let kinds = kinds.map(|found| serde_json::to_value(found).unwrap());
        let kinds: Vec<_> = kinds.map(|found| found["kind"].clone()).collect();
        assert_eq!(kinds, expected, "{id}: {:?}", report.findings());
    }
}

/// The configuration at the root may describe another model than the weights in a folder.
#[tokio::test]
async fn weights_are_compared_with_the_configuration_next_to_them() {
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 1, "vocab_size": 10,
        "quantization_config": { "quant_method": "gptq", "bits": 4, "group_size": 32 },
    });
    let packed = || {
        File::safetensors([
            ("model.embed_tokens.weight", "BF16", &[10, 32][..]),
            ("model.layers.0.mlp.down_proj.qweight", "I32", &[8, 32]),
            ("model.layers.0.mlp.down_proj.qzeros", "I32", &[2, 4]),
            ("model.layers.0.mlp.down_proj.scales", "F16", &[2, 32]),
        ])
    };
    for (folder, is_compared) in [("", false), ("text/", true)] {
        let config = File::from_bytes(config.to_string());
        let repo = Repo::new("org/model").file("text/model.safetensors", packed());
        let repo = repo.file(&format!("{folder}config.json"), config);
        let hub = LocalHub::start([repo]).unwrap();
        let report = verify(&hub, "org/model", true).await;
        let rules = report.findings().iter().any(|found| matches!(found, Finding::Mismatch(_)));
        assert_eq!(rules, is_compared, "{folder:?}: {:?}", report.findings());
    }
}

/// An EAGLE head states the configuration of a whole model, and uses the embeddings of another one.
#[tokio::test]
async fn a_draft_of_another_model_is_not_compared() {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "vocab_size": 100,
        "num_attention_heads": 4, "num_hidden_layers": 1, "tie_word_embeddings": false,
    });
    for (projection, is_compared) in [([64, 128], false), ([100, 64], true)] {
        let tensors = [
            ("embed_tokens.weight", "BF16", &[100, 64][..]),
            ("fc.weight", "BF16", &projection),
            ("layers.0.self_attn.q_proj.weight", "BF16", &[64, 128]),
        ];
        let repo = Repo::new("org/eagle").file("model.safetensors", File::safetensors(tensors));
        let repo = repo.file("config.json", File::from_bytes(config.to_string()));
        let report = verify(&LocalHub::start([repo]).unwrap(), "org/eagle", false).await;
        assert_eq!(report.is_valid(), !is_compared, "{:?}", report.findings());
        let reason = report.sets[0].config_check.reason.as_deref();
        let is_draft = reason == Some("the model drafts tokens for another model");
        assert_eq!(is_draft, !is_compared, "{reason:?}");
    }
}
