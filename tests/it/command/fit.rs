//! `--memory` and `--fit`.

mod options;
mod several;

use serde_json::Value;

use super::run;
use crate::count::quantization::tensors;
use crate::hub::{File, LocalHub, Repo};

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

/// Creates a GGUF file with 16-bit floats.
fn gguf(file_type: u32, elements: u64, architecture: &str, keys: &[(&str, u32)]) -> File {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let number = |key: &str, number: u32| {
        [text(key), 4_u32.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()].concat()
    };
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend(1_u64.to_le_bytes());
    head.extend((keys.len() as u64 + 2).to_le_bytes());
    head.extend(text("general.architecture"));
    head.extend(8_u32.to_le_bytes());
    head.extend(text(architecture));
    head.extend(number("general.file_type", file_type));
    for (key, value) in keys {
        head.extend(number(&format!("{architecture}.{key}"), *value));
    }
    head.extend(text("output.weight"));
    head.extend(1_u32.to_le_bytes());
    head.extend(elements.to_le_bytes());
    head.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    head.resize(head.len().next_multiple_of(32), 0);
    let size = head.len() as u64 + 2 * elements;
    File::padded(head, size)
}

/// A repository with three quantizations, of 8, 4 and 2 MB. The cache of 4,096 tokens takes 4.2 MB.
fn quantizations() -> Repo {
    let keys = [
        ("block_count", 4),
        ("context_length", 4_096),
        ("embedding_length", 512),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 1),
    ];
    let file = |file_type, elements| gguf(file_type, elements, "llama", &keys);
    Repo::new("org/gguf")
        .file("model-Q8_0.gguf", file(7, 4_000_000))
        .file("model-Q4_K_M.gguf", file(15, 2_000_000))
        .file("model-Q2_K.gguf", file(10, 1_000_000))
}

fn hub() -> LocalHub {
    let cases = [("dense", DENSE), ("sliding", SLIDING), ("latent", LATENT), ("hybrid", HYBRID)];
    let repos = cases.map(|(name, config)| repo(&format!("org/{name}"), config));
    let unknown = repo("org/unknown", r#"{"model_type":"brand_new"}"#);
    LocalHub::start(repos.into_iter().chain([unknown, quantizations()])).unwrap()
}

/// Engines can extend the context of a model.
#[test]
fn a_context_beyond_the_maximum_has_a_row() {
    let hub = hub();
    let printed = run(&hub, &["org/dense", "--memory", "--context", "10000"]).stdout;
    assert!(printed.lines().any(|line| line.trim_start().starts_with("10,000 ")), "{printed}");
}

#[test]
fn memory_is_listed_by_context() {
    let hub = hub();
    let page = |name: &str| run(&hub, &[&format!("org/{name}"), "--fit", "2GB"]).stdout;
    let cases = [
        ("dense", "llama, 4 layers: 4 × full\ncache in bf16, engine stored"),
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
        page("dense").lines().nth(4).unwrap().split("  ").map(str::to_owned).collect();
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

/// Every field is documented.
#[test]
fn the_page_lists_all_fields() {
    let hub = hub();
    let page = include_str!("../../../src/docs/json.md");
    let section = page.split("\n# ").find(|section| section.starts_with("Memory\n")).unwrap();
    for repo in ["org/sliding", "org/hybrid", "org/unknown"] {
        let json = run(&hub, &[repo, "--json", "--summary", "--memory"]).stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        let memory = json["memory"].as_object().unwrap();
        let caches = memory.get("caches").and_then(Value::as_array).into_iter().flatten();
        for cache in caches.clone() {
            let kind = cache["kind"].as_str().unwrap();
            assert!(section.contains(&format!("`{kind}`")), "{kind}");
        }
        let fields = caches.filter_map(Value::as_object).chain([memory]).flat_map(|map| map.keys());
        for field in fields {
            assert!(section.contains(&format!("`{field}`")), "{field}");
        }
    }
}

/// The configuration is read if the count depends on it, as for experts.
#[test]
fn the_default_view_describes_the_architecture() {
    let config = r#"{"model_type":"mixtral","num_hidden_layers":32,"hidden_size":4096,
        "num_attention_heads":32,"max_position_embeddings":32768,"num_experts_per_tok":2,"num_local_experts":8}"#;
    let expert = "model.layers.0.block_sparse_moe.experts.0.w1.weight";
    let moe = tensors(&[(expert, "BF16", &[8, 4], 2)]);
    let moe = Repo::new("org/moe")
        .file("model.safetensors", moe)
        .file("config.json", File::from_bytes(config));
    let hub = LocalHub::start([moe, repo("org/dense", DENSE)]).unwrap();
    let line = "mixtral, 32 layers, hidden size 4,096, context of 32,768 tokens";
    let text = run(&hub, &["org/moe"]).data();
    assert!(text.lines().any(|found| found.trim() == line), "{text}");
    let text = run(&hub, &["org/dense"]).data();
    assert!(!text.contains("hidden size"), "{text}");
}

/// Every line fits into 80 columns.
#[test]
fn transcripts() {
    let hub = hub();
    let mut pages = Vec::new();
    for name in ["dense", "sliding", "latent", "hybrid", "gguf", "unknown"] {
        for args in [&["--memory"][..], &["--fit", "9MB", "--context", "2k"]] {
            let repo = format!("org/{name}");
            let output = run(&hub, &[&[&*repo], args].concat());
            pages.push(format!("$ hf-meta {repo} {}\n{}", args.join(" "), output.stdout));
        }
    }
    for args in [["dense", "llama.cpp"], ["latent", "vllm"], ["sliding", "vllm"]] {
        let repo = format!("org/{}", args[0]);
        let output = run(&hub, &[&repo, "--memory", "--engine", args[1]]);
        pages.push(format!("$ hf-meta {repo} --memory --engine {}\n{}", args[1], output.stdout));
    }
    let text = pages.join("\n");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_largest_quantization_that_fits_is_named() {
    let hub = hub();
    // 1,024 bytes per token, of which 4,096 are stored.
    let cases = [
        ("13MB", "the largest quantization that fits is Q8_0 (8.0 MB)"),
        ("9MB", "the largest quantization that fits is Q4_K_M (4.0 MB)"),
        ("8MB", "the largest quantization that fits is Q2_K (2.0 MB)"),
        ("6MB", "no quantization fits"),
    ];
    for (size, expected) in cases {
        let text = run(&hub, &["org/gguf", "--fit", size]).stdout;
        assert!(text.contains(expected), "{size}: {text}");
    }
}

#[test]
fn a_badge_shows_the_memory_at_a_context() {
    let hub = hub();
    let badge = |repo: &str, context: &[&str]| {
        let args = [&["badge", repo, "--json", "--show", "memory"], context].concat();
        let output = run(&hub, &args);
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        (json["message"].as_str().unwrap().to_owned(), output.stderr.contains("brand_new"))
    };
    assert_eq!(badge("org/dense", &["--context", "1k"]), ("3.1 MB at 1k".to_owned(), false));
    assert_eq!(badge("org/dense", &[]), ("17.8 MB at 8k".to_owned(), false));
    assert_eq!(badge("org/unknown", &[]), ("unknown".to_owned(), true));
}

/// The overview, CSV and JSON have the same answers, and the exit code tells programs.
#[test]
fn answers_are_the_same_in_all_formats() {
    let hub = hub();
    let repos = ["org/dense", "org/latent", "org/unknown", "org/sliding"];
    let fit = ["--fit", "0.5 GB", "--context", "64k"];
    let list = |format: &[&str]| run(&hub, &[&repos[..], &fit, format].concat());
    let csv = list(&["--format", "csv"]);
    assert_eq!(csv.code, 1);
    let rows: Vec<Vec<_>> = csv.stdout.lines().map(|line| line.split(',').collect()).collect();
    let column = |name| rows[0].iter().position(|heading| *heading == name).unwrap();
    let columns = [column("memory"), column("fits"), column("longest_context")];
    let rows: Vec<_> = rows[1..].iter().map(|row| columns.map(|at| row[at])).collect();
    let expected = [
        // 64k exceed the maximum of 8,192.
        ["135217728", "false", "8192"],
        ["227492416", "true", "144386"],
        ["", "", ""],
    ];
    assert_eq!(rows[..3], expected);
    let json = list(&["--json", "--summary"]);
    assert_eq!(json.code, 1);
    for (line, row) in json.stdout.lines().zip(&rows) {
        let json: Value = serde_json::from_str(line).unwrap();
        let memory = &json["memory"];
        let text = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
        let found = [&memory["totalBytes"], &memory["fits"], &memory["longestContext"]].map(text);
        assert_eq!(found, row.map(str::to_owned), "{line}");
        let is_too_long = memory["reason"]["code"] == "contextTooLong";
        assert_eq!(memory["fits"].is_null() || is_too_long, memory["reason"].is_object(), "{line}");
        assert_eq!(is_too_long, line.starts_with(r#"{"source":"org/dense""#), "{line}");
        assert_eq!(memory["budgetBytes"], 500_000_000);
        assert_eq!(memory["contextSource"], "option");
    }
    let table = list(&[]);
    assert_eq!(table.code, 1);
    let heading = table.stdout.lines().next().unwrap();
    assert!(heading.contains("fits") && heading.contains("longest_context"), "{heading}");
    assert!(list(&["--format", "md"]).stdout.contains("| yes "));
    assert_eq!(run(&hub, &["org/dense", "--fit", "24G"]).code, 0);
    assert_eq!(run(&hub, &["org/dense", "--fit", "1MiB"]).code, 1);
    assert_eq!(run(&hub, &["org/unknown", "--fit", "24G"]).code, 1);
    assert_eq!(run(&hub, &["org/none", "org/dense", "--fit", "1MiB"]).code, 3);
}

#[test]
fn a_context_beyond_the_maximum_and_an_assumed_one_are_named() {
    let hub = hub();
    let first = |args: &[&str]| run(&hub, args).stdout.lines().nth(1).unwrap().to_owned();
    assert_eq!(
        first(&["org/dense", "--fit", "1GB", "--context", "128k"]),
        "1.0 GB: no, 131,072 tokens exceed its maximum; at most 8,192 tokens fit"
    );
    let config = r#"{"model_type":"gpt2","torch_dtype":"float16"}"#;
    let hub = LocalHub::start([repo("org/old", config)]).unwrap();
    let text = run(&hub, &["org/old", "--fit", "1GB"]).stdout;
    assert!(text.contains("yes, at 4,096 tokens (assumed); at most 27,099 tokens fit"), "{text}");
    assert!(text.contains("no maximum context is stated"), "{text}");
    let json = run(&hub, &["org/old", "--fit", "1GB", "--json", "--summary"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["memory"]["contextSource"], "default");
}
