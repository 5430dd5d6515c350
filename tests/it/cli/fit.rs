//! `--memory` and `--fit`.

use serde_json::Value;

use super::run;
use crate::hub::{File, LocalHub, Repo};
use crate::quantization::tensors;

fn repo(id: &str, config: &'static str) -> Repo {
    let weights = tensors(&[("model.embed_tokens.weight", "BF16", &[1_000, 500], 2)]);
    Repo::new(id).file("model.safetensors", weights).file("config.json", File::from_bytes(config))
}

const DENSE: &str = r#"{"model_type":"llama","dtype":"bfloat16","max_position_embeddings":8192,
    "num_hidden_layers":4,"hidden_size":512,"num_attention_heads":8,"num_key_value_heads":2}"#;
const SLIDING: &str = r#"{"model_type":"gemma3","text_config":{"model_type":"gemma3_text",
    "num_hidden_layers":6,"sliding_window":512,"max_position_embeddings":131072}}"#;
const LATENT: &str =
    r#"{"model_type":"deepseek_v3","num_hidden_layers":3,"max_position_embeddings":163840}"#;
const HYBRID: &str =
    r#"{"model_type":"qwen3_next","num_hidden_layers":8,"max_position_embeddings":262144}"#;

fn hub() -> LocalHub {
    let cases = [("dense", DENSE), ("sliding", SLIDING), ("latent", LATENT), ("hybrid", HYBRID)];
    let repos = cases.map(|(name, config)| repo(&format!("org/{name}"), config));
    let unknown = repo("org/unknown", r#"{"model_type":"brand_new"}"#);
    LocalHub::start(repos.into_iter().chain([unknown])).unwrap()
}

#[test]
fn memory_is_listed_by_context() {
    let hub = hub();
    let page = |name: &str| run(&hub, &[&format!("org/{name}"), "--fit", "2GB"]).stdout;
    let cases = [
        ("dense", "llama, 4 layers: 4 × full; cache in bf16, engine stored"),
        ("dense", "2.0 GB: yes, at 8,192 tokens; at most 8,192 tokens fit"),
        ("sliding", "1 × full, 5 × window 512"),
        ("latent", "deepseek_v3, 3 layers: 3 × full"),
        ("hybrid", "2 × full, 6 × fixed, 6 × state"),
        ("unknown", "cache unknown: the cache of architecture `brand_new` is unknown"),
        ("unknown", "2.0 GB: the weights fit; the cache is unknown"),
    ];
    for (name, expected) in cases {
        let text = page(name);
        assert!(text.contains(expected), "{text}");
        let table = text.lines().take_while(|line| !line.contains("engine"));
        assert!(table.clone().all(|line| line.chars().count() <= 80), "{text}");
        assert!(table.count() >= 3, "{text}");
    }
    // 2,048 bytes per token.
    let row: Vec<_> =
        page("dense").lines().nth(3).unwrap().split("  ").map(str::to_owned).collect();
    assert_eq!(
        row.join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
        "8,192 1.0 MB 16.8 MB 17.8 MB"
    );
}

#[test]
fn memory_is_part_of_the_json_and_of_the_overview() {
    let hub = hub();
    let json =
        run(&hub, &["org/dense", "--json", "--summary", "--memory", "--context", "1k"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    let memory = &json["memory"];
    assert_eq!(memory["context"], 1_024);
    assert_eq!(memory["exact"], true);
    assert_eq!(memory["weightBytes"], 1_000_000);
    assert_eq!(memory["cacheElements"], 4 * 2 * 2 * 64 * 1_024);
    assert_eq!(memory["totalBytes"], 1_000_000 + 2 * 4 * 2 * 2 * 64 * 1_024);
    assert_eq!(memory["caches"][0]["formula"], "2*num_key_value_heads*head_dim");
    let unknown = run(&hub, &["org/unknown", "--json", "--summary", "--memory"]);
    let json: Value = serde_json::from_str(&unknown.stdout).unwrap();
    assert_eq!(json["memory"]["cacheBytes"], Value::Null);
    assert_eq!(json["memory"]["unknown"]["code"], "unknownArchitecture");
    assert_eq!(json["findings"][0]["kind"], "unknownCacheSize");
    let table = run(&hub, &["org/dense", "org/latent", "--memory", "--context", "4k"]).data();
    assert!(table.lines().next().unwrap().contains("memory"), "{table}");
    let plain = run(&hub, &["org/dense", "org/latent"]).data();
    assert!(!plain.contains("memory"), "{plain}");
}

#[test]
fn options_without_a_view_are_rejected() {
    let hub = hub();
    let output = run(&hub, &["org/dense", "--context", "4k"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("require `--memory` or `--fit`"), "{}", output.stderr);
}
