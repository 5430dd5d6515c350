//! `verify --engine`: whether an engine loads a model.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::run;
use crate::hub::{File, LocalHub, Repo};

/// The sides of a small language model with two layers, or of a large one.
#[derive(Clone, Copy)]
struct Sizes {
    hidden: u64,
    inner: u64,
    vocabulary: u64,
    layers: u64,
}

const SMALL: Sizes = Sizes { hidden: 512, inner: 1_024, vocabulary: 1_000, layers: 2 };
/// Some 16 GB in 16-bit floats.
const LARGE: Sizes = Sizes { hidden: 4_096, inner: 14_336, vocabulary: 128_256, layers: 32 };

/// Returns the configuration and the weights of a Llama, with other keys.
fn llama(sizes: Sizes, changed: &[(&str, Value)]) -> (Value, File) {
    let Sizes { hidden, inner, vocabulary, layers } = sizes;
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": vocabulary,
        "max_position_embeddings": 131_072, "tie_word_embeddings": false,
    });
    for (key, value) in changed {
        config[*key] = value.clone();
    }
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![vocabulary, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
        ("lm_head.weight".to_owned(), vec![vocabulary, hidden]),
    ];
    for layer in 0..layers {
        let modules = [
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![hidden / 4, hidden]),
            ("self_attn.v_proj", vec![hidden / 4, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![inner, hidden]),
            ("mlp.up_proj", vec![inner, hidden]),
            ("mlp.down_proj", vec![hidden, inner]),
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
        ];
        let name = |module| format!("model.layers.{layer}.{module}.weight");
        tensors.extend(modules.into_iter().map(|(module, shape)| (name(module), shape)));
    }
    let tensors = tensors.iter().map(|(name, shape)| (&**name, "BF16", &**shape));
    (config, File::safetensors(tensors))
}

fn repo(id: &str, sizes: Sizes, changed: &[(&str, Value)]) -> Repo {
    let (config, weights) = llama(sizes, changed);
    let config = File::from_bytes(config.to_string());
    Repo::new(id).file("model.safetensors", weights).file("config.json", config)
}

/// Returns a `LoRA` of one module, whose configuration has other keys.
fn adapter(id: &str, rank: u64, changed: &[(&str, Value)]) -> Repo {
    let mut config = json!({
        "peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"],
        "base_model_name_or_path": "org/llama",
    });
    for (key, value) in changed {
        config[*key] = value.clone();
    }
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    let [a, b] = ["A", "B"].map(|part| format!("{module}.lora_{part}.weight"));
    let tensors = [(&*a, "F32", &[rank, 4_096][..]), (&*b, "F32", &[4_096, rank])];
    let repo = Repo::new(id).file("adapter_model.safetensors", File::safetensors(tensors));
    repo.file("adapter_config.json", File::from_bytes(config.to_string()))
}

/// Creates a GGUF file with a matrix of 16-bit floats. `sides` are in the order of GGUF.
fn gguf(
    architecture: &str,
    texts: &[(&str, &str)],
    numbers: &[(&str, u32)],
    name: &str,
    sides: [u64; 2],
) -> File {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend(1_u64.to_le_bytes());
    head.extend((1 + texts.len() as u64 + numbers.len() as u64).to_le_bytes());
    for (key, value) in [("general.architecture", architecture)].iter().chain(texts) {
        head.extend([text(key), 8_u32.to_le_bytes().to_vec(), text(value)].concat());
    }
    for (key, value) in numbers {
        let [kind, value] = [4, *value].map(|number: u32| number.to_le_bytes().to_vec());
        head.extend([text(key), kind, value].concat());
    }
    head.extend(text(name));
    head.extend(2_u32.to_le_bytes());
    head.extend(sides.iter().flat_map(|side| side.to_le_bytes()));
    head.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    head.resize(head.len().next_multiple_of(32), 0);
    let size = head.len() as u64 + 2 * sides[0] * sides[1];
    File::padded(head, size)
}

/// Returns the language model and two projectors of a model of images.
fn images() -> Repo {
    let keys = [
        ("llama.block_count", 4),
        ("llama.context_length", 4_096),
        ("llama.embedding_length", 512),
        ("llama.attention.head_count", 8),
        ("llama.attention.head_count_kv", 8),
    ];
    let kind = [("clip.projector_type", "mlp")];
    let projector = |width| gguf("clip", &kind, &[], "mm.2.weight", [1_024, width]);
    Repo::new("org/images")
        .file("model-Q8_0.gguf", gguf("llama", &[], &keys, "output.weight", [512, 1_000]))
        .file("mmproj-512.gguf", projector(512))
        .file("mmproj-4096.gguf", projector(4_096))
}

fn hub() -> LocalHub {
    let class = |name: &str| ("architectures", json!([name]));
    let kind = |name: &str| ("model_type", json!(name));
    let other = [class("Grok1ForCausalLM"), kind("grok-1")];
    let fp4 = json!({ "quant_method": "fp_quant" });
    let awq =
        json!({ "quant_method": "awq", "bits": 4, "modules_to_not_convert": ["mlp", "self_attn"] });
    LocalHub::start([
        repo("org/llama", LARGE, &[]),
        repo("org/small", SMALL, &[]),
        repo("org/other", SMALL, &other),
        repo("org/awq", SMALL, &[("quantization_config", awq)]),
        repo("org/new", SMALL, &[class("BrandNewForCausalLM"), kind("brand_new")]),
        repo(
            "org/code",
            SMALL,
            &[
                class("OwnModel"),
                kind("own"),
                ("auto_map", json!({ "AutoModel": "modeling.OwnModel" })),
            ],
        ),
        repo("org/deprecated", SMALL, &[("quantization_config", fp4)]),
        repo("org/gated", SMALL, &[]).gated(),
        repo("org/draft", Sizes { vocabulary: LARGE.vocabulary, ..SMALL }, &[]),
        adapter("org/lora", 16, &[]),
        adapter("org/lora-64", 64, &[]),
        adapter("org/lora-saved", 8, &[("modules_to_save", json!(["lm_head"]))]),
        adapter("org/dora", 8, &[("use_dora", json!(true))]),
        images(),
    ])
    .unwrap()
}

/// The arguments of each transcript.
const CASES: [&str; 13] = [
    "org/llama --engine vllm --gpu 2xH100 --context 32k",
    "org/llama --engine vllm --gpu rtx4090",
    "org/llama --engine vllm --fit 16GB --tp 2 --context 32k",
    "org/other --engine vllm --gpu h100",
    "org/awq --engine vllm --gpu v100",
    "org/llama --engine vllm --gpu 3xH100",
    "org/new --engine vllm --gpu h100",
    "org/code --engine transformers --gpu h100",
    "org/small --engine llama.cpp --gpu m3-max-64gb --reserve 8GB",
    "org/gated --engine vllm --gpu h100",
    "org/llama --engine vllm --gpu h100 --draft org/draft",
    "org/llama --engine vllm --gpu h100 --draft org/small",
    "org/llama --engine vllm --gpu 8xH100 --pp 4 --context 32k",
];

#[test]
fn transcripts() {
    let hub = hub();
    let pages = CASES.map(|case| {
        let args: Vec<_> = ["verify"].into_iter().chain(case.split(' ')).collect();
        format!("$ hf-meta verify {case}\n{}", run(&hub, &args).stdout)
    });
    let text = pages.join("\n");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn exit_codes_and_first_reasons() {
    let hub = hub();
    let cases = [
        (CASES[0], 0, json!(true), ""),
        (CASES[1], 1, json!(false), "cache"),
        (CASES[2], 0, json!(true), ""),
        (CASES[3], 1, json!(false), "architecture"),
        (CASES[4], 1, json!(false), "gpu"),
        (CASES[5], 1, json!(false), "parallelism"),
        (CASES[6], 1, Value::Null, "architecture"),
        (CASES[7], 1, Value::Null, "remoteCode"),
        (CASES[8], 1, json!(false), "format"),
        ("org/deprecated --engine vllm --gpu h100", 1, Value::Null, "method"),
        ("org/small --engine transformers", 0, json!(true), ""),
        ("org/llama --engine vllm --gpu h100 --context 1m", 1, json!(false), "context"),
        ("org/llama --engine vllm --gpu t4", 1, json!(false), "weights"),
        ("org/small --engine sglang --gpu h100", 1, Value::Null, "cache"),
    ];
    for (case, code, loads, reason) in cases {
        let args: Vec<_> = ["verify", "--json"].into_iter().chain(case.split(' ')).collect();
        let output = run(&hub, &args);
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let engine = &document["engine"];
        let first = engine["reasons"][0]["code"].as_str().unwrap_or_default();
        assert_eq!((output.code, &engine["loads"], first), (code, &loads, reason), "{case}");
        assert!(engine["memory"]["engine"].is_string(), "{case}");
    }
    // What is loaded together with a model.
    let llama = "org/llama --engine vllm --gpu h100 --context 4k";
    let images = "hf://org/images/model-Q8_0.gguf --engine llama.cpp --gpu l4";
    let pairs = [
        (llama, "--draft org/draft", 0, json!(true), ""),
        (llama, "--draft org/small", 1, json!(false), "draft"),
        (llama, "--draft org/new", 1, json!(false), "draft"),
        (llama, "--adapter org/lora", 0, json!(true), ""),
        (llama, "--adapter org/lora-64", 1, json!(false), "adapter"),
        (llama, "--adapter org/lora-saved", 1, json!(false), "adapter"),
        (llama, "--adapter org/dora", 1, json!(false), "adapter"),
        (llama, "--mmproj hf://org/images/mmproj-512.gguf", 1, Value::Null, "projector"),
        (images, "--mmproj hf://org/images/mmproj-512.gguf", 0, json!(true), ""),
        (images, "--mmproj hf://org/images/mmproj-4096.gguf", 1, json!(false), "projector"),
        (images, "--draft org/small", 1, Value::Null, "draft"),
    ];
    for (model, pair, code, loads, reason) in pairs {
        let args = format!("verify --json {model} {pair}");
        let output = run(&hub, &args.split(' ').collect::<Vec<_>>());
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let engine = &document["engine"];
        let first = engine["reasons"][0]["code"].as_str().unwrap_or_default();
        let found = (output.code, &engine["loads"], first);
        assert_eq!(found, (code, &loads, reason), "{args} {document} {}", output.stderr);
        assert!(engine["pairs"][0]["weightBytes"].as_u64() > Some(0), "{args}");
    }
    let denied: [&[&str]; 3] =
        [&["org/gated"], &["org/missing"], &["org/small", "--revision", "v9"]];
    for source in denied {
        let output = run(&hub, &[&["verify", "--engine", "vllm"], source].concat());
        assert_eq!(output.code, 3, "{source:?}");
        assert!(output.stdout.contains("vllm 0.33.0: no\naccess: "), "{}", output.stdout);
    }
}

/// An error of `verify` excludes a model, and one that is found later is the first reason.
#[test]
fn invalid_values_are_a_reason() {
    let header = r#"{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    let values: Vec<u8> =
        [1.0, f32::NAN, 2.0, 3.0].iter().flat_map(|one: &f32| one.to_le_bytes()).collect();
    let weights = File::from_bytes([&length[..], header.as_bytes(), &values].concat());
    let config = File::from_bytes(r#"{"model_type":"own","architectures":["Own"]}"#);
    let repo = Repo::new("org/nan").file("model.safetensors", weights).file("config.json", config);
    let hub = LocalHub::start([repo]).unwrap();
    let answer = |args: &[&str]| -> (Value, Value) {
        let output =
            run(&hub, &[&["verify", "--json", "org/nan", "--engine", "vllm"], args].concat());
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let engine = &document["engine"];
        (engine["loads"].clone(), engine["reasons"][0]["code"].clone())
    };
    assert_eq!(answer(&[]), (Value::Null, json!("architecture")));
    assert_eq!(answer(&["--values"]), (json!(false), json!("files")));
}

/// The answer needs what `verify` reads.
#[test]
fn an_answer_costs_no_request() {
    let hub = hub();
    let paths = |args: &[&str]| -> BTreeSet<String> {
        hub.clear_log();
        run(&hub, &[&["verify", "org/llama"], args].concat());
        // The index is requested in advance, and the request ends early if there is none.
        let paths = hub.log().into_iter().map(|request| request.path);
        paths.filter(|path| !path.ends_with(".index.json")).collect()
    };
    let (plain, answered) = (paths(&[]), paths(&["--engine", "vllm", "--gpu", "h100"]));
    assert!(answered.len() > 3 && answered.is_subset(&plain), "{answered:?}");
}

#[test]
fn contradictions_are_said_in_one_sentence() {
    let hub = hub();
    let cases = [
        ("--engine vllm --engine sglang", "`--engine` accepts one program"),
        ("--engine vllm --gpu 2xh100 --tp 4", "cannot be divided among 4 of 2 × H100"),
        ("--engine vllm --gpu h100 --fit 80GB", "cannot be used with"),
        ("--engine llama.cpp --tp 2", "require `--engine vllm`"),
        ("--engine vllm --gpu h100 --reserve 1GB", "so it has no reserve"),
        ("--engine vllm --gpu rtx4095", "the nearest are rtx4090"),
        ("--engine vllm --gpu m3-max", "the memory of the computer is missing, as in m3-max-64gb"),
        ("--gpu h100", "--engine <NAME>"),
        ("--engine none", "expected one of transformers, vllm, llama.cpp, sglang, mlx-lm"),
        ("--engine vllm --all", "cannot be used with"),
        ("--draft org/draft", "--engine <NAME>"),
        ("--engine llama.cpp --pp 2", "require `--engine vllm`"),
        ("--engine vllm --gpu 4xh100 --tp 4 --pp 2", "cannot be divided among 8 of 4 × H100"),
    ];
    for (args, message) in cases {
        let args: Vec<_> = ["verify", "org/small"].into_iter().chain(args.split(' ')).collect();
        let output = run(&hub, &args);
        assert_eq!(output.code, 2, "{args:?}");
        assert!(output.stderr.contains(message), "{args:?} {}", output.stderr);
    }
}
