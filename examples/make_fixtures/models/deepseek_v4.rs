//! DeepSeek-V4-Pro: FP4 experts, FP8 elsewhere, compressed attention of two kinds, and hyper-connections.

use serde_json::{Value, json};

use super::format::Format;
use super::module::{Dtype, Module};

const VOCABULARY: u64 = 129_280;
const HIDDEN: u64 = 7168;
const EXPERT: u64 = 3072;
const EXPERTS: u64 = 384;
const EXPERTS_PER_TOKEN: u64 = 6;
const LAYERS: u64 = 61;
/// The first layers choose experts by a table of the vocabulary.
const HASH_LAYERS: u64 = 3;
const HEADS: u64 = 128;
const HEAD: u64 = 512;
const QUERY_RANK: u64 = 1536;
const OUTPUT_GROUPS: u64 = 16;
const OUTPUT_RANK: u64 = 1024;
const INDEX_HEADS: u64 = 64;
const INDEX_HEAD: u64 = 128;
/// The number of copies of the hidden state in the hyper-connections.
const COPIES: u64 = 4;

const FP8: Format = Format::Fp8 { scale: "scale", dtype: Dtype::F8E8M0 };

pub fn model() -> Module {
    let embedded = Module::new(Dtype::BF16).tensor("embed.weight", &[VOCABULARY, HIDDEN]);
    let model = (0..LAYERS).fold(embedded, |model, n| {
        let route = if n < HASH_LAYERS { by_table() } else { by_bias() };
        model.child(&format!("layers.{n}"), layer(compressed(n), route))
    });
    let model = model.rms_norm("norm", HIDDEN).tensor("head.weight", &[VOCABULARY, HIDDEN]);
    connection(model, "hc_head", COPIES, 1).child("mtp.0", next_token())
}

/// The layer that predicts the token after the next: attention to a window alone, and no table.
fn next_token() -> Module {
    let layer = layer(attention(), by_bias())
        .rms_norm("enorm", HIDDEN)
        .rms_norm("hnorm", HIDDEN)
        .rms_norm("norm", HIDDEN)
        .projection("e_proj", FP8, HIDDEN, HIDDEN)
        .projection("h_proj", FP8, HIDDEN, HIDDEN);
    connection(layer, "hc_head", COPIES, 1)
}

fn layer(attention: Module, route: Module) -> Module {
    let mixture = Module::new(Dtype::BF16)
        .tensor("gate.weight", &[EXPERTS, HIDDEN])
        .child("gate", route)
        .layers("experts", 0..EXPERTS, &mlp(Format::Fp4))
        .child("shared_experts", mlp(FP8));
    let layer = Module::new(Dtype::BF16)
        .rms_norm("attn_norm", HIDDEN)
        .child("attn", attention)
        .rms_norm("ffn_norm", HIDDEN)
        .child("ffn", mixture);
    // What to take from the copies, what to give each, and how to mix them.
    let mixed = (2 + COPIES) * COPIES;
    connection(connection(layer, "hc_attn", mixed, 3), "hc_ffn", mixed, 3)
}

fn by_table() -> Module {
    Module::new(Dtype::I64).tensor("tid2eid", &[VOCABULARY, EXPERTS_PER_TOKEN])
}

fn by_bias() -> Module {
    Module::new(Dtype::F32).tensor("bias", &[EXPERTS])
}

fn mlp(format: Format) -> Module {
    Module::new(Dtype::BF16)
        .projection("w1", format, HIDDEN, EXPERT)
        .projection("w2", format, EXPERT, HIDDEN)
        .projection("w3", format, HIDDEN, EXPERT)
}

fn connection(module: Module, name: &str, outputs: u64, scales: u64) -> Module {
    module
        .buffer(&format!("{name}_base"), Dtype::F32, &[outputs])
        .buffer(&format!("{name}_fn"), Dtype::F32, &[outputs, COPIES * HIDDEN])
        .buffer(&format!("{name}_scale"), Dtype::F32, &[scales])
}

fn attention() -> Module {
    Module::new(Dtype::BF16)
        .buffer("attn_sink", Dtype::F32, &[HEADS])
        .projection("wq_a", FP8, HIDDEN, QUERY_RANK)
        .rms_norm("q_norm", QUERY_RANK)
        .projection("wq_b", FP8, QUERY_RANK, HEADS * HEAD)
        .projection("wkv", FP8, HIDDEN, HEAD)
        .rms_norm("kv_norm", HEAD)
        .projection("wo_a", FP8, HEADS * HEAD / OUTPUT_GROUPS, OUTPUT_GROUPS * OUTPUT_RANK)
        .projection("wo_b", FP8, OUTPUT_GROUPS * OUTPUT_RANK, HIDDEN)
}

/// The number of tokens that the attention of a layer compresses into one.
fn ratio(layer: u64) -> u64 {
    if layer > 1 && layer.is_multiple_of(2) { 4 } else { 128 }
}

/// Attention to what is compressed, which a low ratio does in overlapping windows and chooses by an index.
fn compressed(layer: u64) -> Module {
    let attention = attention();
    if ratio(layer) == 128 {
        return attention.child("compressor", compressor(128, HEAD, HEAD));
    }
    let indexer = Module::new(Dtype::BF16)
        .projection("wq_b", FP8, QUERY_RANK, INDEX_HEADS * INDEX_HEAD)
        .projection("weights_proj", Format::Plain, HIDDEN, INDEX_HEADS)
        .child("compressor", compressor(4, INDEX_HEAD, 2 * INDEX_HEAD));
    attention.child("compressor", compressor(4, HEAD, 2 * HEAD)).child("indexer", indexer)
}

fn compressor(ratio: u64, head: u64, width: u64) -> Module {
    Module::new(Dtype::BF16)
        .buffer("ape", Dtype::F32, &[ratio, width])
        .projection("wkv", Format::Plain, HIDDEN, width)
        .projection("wgate", Format::Plain, HIDDEN, width)
        .rms_norm("norm", head)
}

/// The content of a shard: a layer, the layer that predicts the token after the next, the embedding, or the rest.
pub fn part(name: &str) -> &str {
    match name.split_once('.') {
        Some(("layers", rest)) => rest.split('.').next().unwrap_or_default(),
        Some((part @ ("embed" | "mtp"), _)) => part,
        _ => "head",
    }
}

/// The configuration names the dtype of the experts next to the quantization.
pub fn config() -> Value {
    // One for each layer, and none for that of the token after the next.
    let ratios: Vec<_> = (0..LAYERS).map(ratio).chain([0]).collect();
    json!({
        "architectures": ["DeepseekV4ForCausalLM"],
        "compress_ratios": ratios,
        "expert_dtype": "fp4",
        "hidden_size": HIDDEN,
        "model_type": "deepseek_v4",
        "moe_intermediate_size": EXPERT,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "num_hash_layers": HASH_LAYERS,
        "num_hidden_layers": LAYERS,
        "num_nextn_predict_layers": 1,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
        "tie_word_embeddings": false,
        "vocab_size": VOCABULARY,
    })
}
