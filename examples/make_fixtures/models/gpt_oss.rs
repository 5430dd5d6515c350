//! gpt-oss: experts in MXFP4, all of a layer in one tensor, and the rest in BF16.

use serde_json::{Value, json};

use super::module::{Dtype, Module};

const VOCABULARY: u64 = 201_088;
const HIDDEN: u64 = 2880;
const HEAD: u64 = 64;
const HEADS: u64 = 64;
const KEY_HEADS: u64 = 8;

pub struct Size {
    layers: u64,
    experts: u64,
}

pub const GPT_OSS_20B: Size = Size { layers: 24, experts: 32 };
pub const GPT_OSS_120B: Size = Size { layers: 36, experts: 128 };

pub fn model(size: &Size) -> Module {
    let model = Module::new(Dtype::BF16)
        .tensor("embed_tokens.weight", &[VOCABULARY, HIDDEN])
        .layers("layers", 0..size.layers, &layer(size.experts))
        .rms_norm("norm", HIDDEN);
    Module::new(Dtype::BF16).child("model", model).tensor("lm_head.weight", &[VOCABULARY, HIDDEN])
}

fn layer(experts: u64) -> Module {
    Module::new(Dtype::BF16)
        .rms_norm("input_layernorm", HIDDEN)
        .linear("self_attn.q_proj", HIDDEN, HEADS * HEAD)
        .linear("self_attn.k_proj", HIDDEN, KEY_HEADS * HEAD)
        .linear("self_attn.v_proj", HIDDEN, KEY_HEADS * HEAD)
        .linear("self_attn.o_proj", HEADS * HEAD, HIDDEN)
        .tensor("self_attn.sinks", &[HEADS])
        .rms_norm("post_attention_layernorm", HIDDEN)
        .linear("mlp.router", HIDDEN, experts)
        .child("mlp.experts", mxfp4("gate_up_proj", experts, 2 * HIDDEN))
        .child("mlp.experts", mxfp4("down_proj", experts, HIDDEN))
}

/// A dense layer of every expert: blocks of 32 values, two to an element, and a scale for each block.
fn mxfp4(name: &str, experts: u64, outputs: u64) -> Module {
    let blocks = HIDDEN / 32;
    Module::new(Dtype::BF16)
        .buffer(&format!("{name}_blocks"), Dtype::U8, &[experts, outputs, blocks, 16])
        .buffer(&format!("{name}_scales"), Dtype::U8, &[experts, outputs, blocks])
        .tensor(&format!("{name}_bias"), &[experts, outputs])
}

pub fn config(size: &Size) -> Value {
    json!({
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": true,
        "experts_per_token": 4,
        "head_dim": HEAD,
        "hidden_size": HIDDEN,
        "initial_context_length": 4096,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": 131_072,
        "model_type": "gpt_oss",
        "num_attention_heads": HEADS,
        "num_experts_per_tok": 4,
        "num_hidden_layers": size.layers,
        "num_key_value_heads": KEY_HEADS,
        "num_local_experts": size.experts,
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "sliding_window": 128,
        "tie_word_embeddings": false,
        "vocab_size": VOCABULARY,
    })
}
