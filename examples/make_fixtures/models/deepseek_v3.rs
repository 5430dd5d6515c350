//! DeepSeek-V3 and R1, and the language model of Kimi K2, which has their architecture in other sizes.

use serde_json::{Map, Value, json};

use super::format::Format;
use super::module::{Dtype, Module};

pub const HIDDEN: u64 = 7168;
const INTERMEDIATE: u64 = 18_432;
const EXPERT: u64 = 2048;
const LAYERS: u64 = 61;
const QUERY_RANK: u64 = 1536;
const KEY_RANK: u64 = 512;
/// The part of a head without positions, which is also its value, and the part with them.
const HEAD: u64 = 128;
const ROTARY: u64 = 64;

/// The limit that gives the repo its 163 shards.
pub const SHARD_BYTES: u64 = 4_250_000_000;

const FP8: Format = Format::Fp8 { scale: "weight_scale_inv", dtype: Dtype::F32 };

pub struct Size {
    pub vocabulary: u64,
    pub heads: u64,
    pub experts: u64,
    /// The number of layers before the first layer with experts.
    pub dense_layers: u64,
    /// The format of the experts that are chosen, and of every other dense layer.
    pub expert: Format,
    pub other: Format,
}

pub const DEEPSEEK_V3: Size = Size {
    vocabulary: 129_280,
    heads: 128,
    experts: 256,
    dense_layers: 3,
    expert: FP8,
    other: FP8,
};

pub fn causal_lm(size: &Size) -> Module {
    embedding(size).and(layers(size)).and(head(size))
}

pub fn embedding(size: &Size) -> Module {
    Module::new(Dtype::BF16).tensor("model.embed_tokens.weight", &[size.vocabulary, HIDDEN])
}

pub fn layers(size: &Size) -> Module {
    let dense = layer(size).child("mlp", mlp(size.other, INTERMEDIATE));
    let mixture = layer(size).child("mlp", mixture(size));
    Module::new(Dtype::BF16).layers("model.layers", 0..size.dense_layers, &dense).layers(
        "model.layers",
        size.dense_layers..LAYERS,
        &mixture,
    )
}

pub fn head(size: &Size) -> Module {
    Module::new(Dtype::BF16)
        .rms_norm("model.norm", HIDDEN)
        .tensor("lm_head.weight", &[size.vocabulary, HIDDEN])
}

/// The model with its layer that predicts the token after the next, which has a separate embedding and head.
pub fn with_next_token_prediction(size: &Size) -> Module {
    let next = layer(size)
        .child("mlp", mixture(size))
        .tensor("embed_tokens.weight", &[size.vocabulary, HIDDEN])
        .rms_norm("enorm", HIDDEN)
        .rms_norm("hnorm", HIDDEN)
        .tensor("eh_proj.weight", &[HIDDEN, 2 * HIDDEN])
        .rms_norm("shared_head.norm", HIDDEN)
        .tensor("shared_head.head.weight", &[size.vocabulary, HIDDEN]);
    causal_lm(size).child(&format!("model.layers.{LAYERS}"), next)
}

fn layer(&Size { heads, other, .. }: &Size) -> Module {
    let attention = Module::new(Dtype::BF16)
        .projection("q_a_proj", other, HIDDEN, QUERY_RANK)
        .rms_norm("q_a_layernorm", QUERY_RANK)
        .projection("q_b_proj", other, QUERY_RANK, heads * (HEAD + ROTARY))
        .projection("kv_a_proj_with_mqa", other, HIDDEN, KEY_RANK + ROTARY)
        .rms_norm("kv_a_layernorm", KEY_RANK)
        .projection("kv_b_proj", other, KEY_RANK, heads * 2 * HEAD)
        .projection("o_proj", other, heads * HEAD, HIDDEN);
    Module::new(Dtype::BF16)
        .rms_norm("input_layernorm", HIDDEN)
        .child("self_attn", attention)
        .rms_norm("post_attention_layernorm", HIDDEN)
}

fn mixture(size: &Size) -> Module {
    Module::new(Dtype::BF16)
        .tensor("gate.weight", &[size.experts, HIDDEN])
        .buffer("gate.e_score_correction_bias", Dtype::F32, &[size.experts])
        .layers("experts", 0..size.experts, &mlp(size.expert, EXPERT))
        .child("shared_experts", mlp(size.other, EXPERT))
}

fn mlp(format: Format, width: u64) -> Module {
    Module::new(Dtype::BF16)
        .projection("gate_proj", format, HIDDEN, width)
        .projection("up_proj", format, HIDDEN, width)
        .projection("down_proj", format, width, HIDDEN)
}

/// The fields of `config.json` that both families share; the quantization is beside or around them.
pub fn fields(size: &Size) -> Map<String, Value> {
    let fields = json!({
        "architectures": ["DeepseekV3ForCausalLM"],
        "first_k_dense_replace": size.dense_layers,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "model_type": "deepseek_v3",
        "moe_intermediate_size": EXPERT,
        "moe_layer_freq": 1,
        "n_routed_experts": size.experts,
        "n_shared_experts": 1,
        "num_attention_heads": size.heads,
        "num_experts_per_tok": 8,
        "num_hidden_layers": LAYERS,
        "tie_word_embeddings": false,
        "vocab_size": size.vocabulary,
    });
    fields.as_object().cloned().unwrap_or_default()
}

pub fn config() -> Value {
    let mut config = fields(&DEEPSEEK_V3);
    config.insert("num_nextn_predict_layers".to_owned(), json!(1));
    config.insert(
        "quantization_config".to_owned(),
        json!({
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        }),
    );
    Value::Object(config)
}
