//! Llama 3 in its sizes and its quantized forms, and Mistral 7B, which has the same architecture.

use serde_json::{Value, json};

use super::format::{Format, pack_quantized};
use super::module::{Dtype, Module};

/// Keys and values have eight heads of 128 in every size.
const KEYS: u64 = 8 * 128;

pub struct Size {
    vocabulary: u64,
    hidden: u64,
    intermediate: u64,
    layers: u64,
}

pub const LLAMA_8B: Size =
    Size { vocabulary: 128_256, hidden: 4096, intermediate: 14_336, layers: 32 };
pub const LLAMA_70B: Size =
    Size { vocabulary: 128_256, hidden: 8192, intermediate: 28_672, layers: 80 };
pub const MISTRAL_7B: Size = Size { vocabulary: 32_768, ..LLAMA_8B };

/// 4-bit integers in groups of 128, ordered by activation.
pub const W4A16: Format = Format::PackQuantized { group: 128, shape: Dtype::I64, is_ordered: true };

/// 4-bit integers of `AutoGPTQ` in groups of 128.
pub const GPTQ: Format = Format::Gptq { group: 128 };

/// The 224 states of `unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit` take 38,687 bytes in all, by what
/// huggingface.js counted before it left them out (8,248,929,342); that is 20 digits in 63 of them, else 19.
pub fn nf4(layer: u64) -> Format {
    Format::Nf4 { offset_digits: if layer < 9 { 20 } else { 19 } }
}

/// With the weights of each layer in the format that this gives for its number.
pub fn causal_lm(dtype: Dtype, size: &Size, format: impl Fn(u64) -> Format) -> Module {
    let embedded =
        Module::new(dtype).tensor("embed_tokens.weight", &[size.vocabulary, size.hidden]);
    let widths = Widths {
        hidden: size.hidden,
        queries: size.hidden,
        keys: KEYS,
        intermediate: size.intermediate,
    };
    let model = (0..size.layers)
        .fold(embedded, |model, n| {
            model.child(&format!("layers.{n}"), layer(dtype, &widths, format(n)))
        })
        .rms_norm("norm", size.hidden);
    Module::new(dtype)
        .child("model", model)
        .tensor("lm_head.weight", &[size.vocabulary, size.hidden])
}

/// The widths of a layer.
pub struct Widths {
    pub hidden: u64,
    pub queries: u64,
    /// Of the keys, and of the values.
    pub keys: u64,
    pub intermediate: u64,
}

/// A layer of Llama and of those that took it over.
pub fn layer(
    dtype: Dtype,
    &Widths { hidden, queries, keys, intermediate }: &Widths,
    format: Format,
) -> Module {
    Module::new(dtype)
        .projection("self_attn.q_proj", format, hidden, queries)
        .projection("self_attn.k_proj", format, hidden, keys)
        .projection("self_attn.v_proj", format, hidden, keys)
        .projection("self_attn.o_proj", format, queries, hidden)
        .projection("mlp.gate_proj", format, hidden, intermediate)
        .projection("mlp.up_proj", format, hidden, intermediate)
        .projection("mlp.down_proj", format, intermediate, hidden)
        .rms_norm("input_layernorm", hidden)
        .rms_norm("post_attention_layernorm", hidden)
}

/// The same weights under the names that their authors gave them, before they were converted for transformers.
pub fn consolidated(size: &Size) -> Module {
    const NAMES: [(&str, &str); 14] = [
        ("model.", ""),
        ("embed_tokens", "tok_embeddings"),
        ("lm_head", "output"),
        ("input_layernorm", "attention_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn", "attention"),
        ("mlp", "feed_forward"),
        ("q_proj", "wq"),
        ("k_proj", "wk"),
        ("v_proj", "wv"),
        ("o_proj", "wo"),
        ("gate_proj", "w1"),
        ("down_proj", "w2"),
        ("up_proj", "w3"),
    ];
    let model = causal_lm(Dtype::BF16, size, |_| Format::Plain);
    NAMES.iter().fold(model, |model, (from, to)| model.renamed(from, to))
}

/// Low-rank additions to the queries and values of every layer.
pub fn lora(size: &Size, rank: u64) -> Module {
    let pair = |name, outputs| {
        let pair = Module::new(Dtype::F32)
            .projection("lora_A", Format::Plain, size.hidden, rank)
            .projection("lora_B", Format::Plain, rank, outputs);
        Module::new(Dtype::F32).child(name, pair)
    };
    let layer = pair("self_attn.q_proj", size.hidden).and(pair("self_attn.v_proj", KEYS));
    Module::new(Dtype::F32).layers("base_model.model.model.layers", 0..size.layers, &layer)
}

pub fn config(size: &Size, quantization: &Value) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "model_type": "llama",
        "num_hidden_layers": size.layers,
        "num_key_value_heads": KEYS / 128,
        "quantization_config": quantization,
        "tie_word_embeddings": false,
        "vocab_size": size.vocabulary,
    })
}

pub fn bitsandbytes() -> Value {
    json!({
        "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": true,
        "llm_int8_skip_modules": null,
        "load_in_4bit": true,
        "load_in_8bit": false,
        "quant_method": "bitsandbytes",
    })
}

pub fn gptq() -> Value {
    json!({
        "bits": 4,
        "checkpoint_format": "gptq",
        "desc_act": true,
        "group_size": 128,
        "lm_head": false,
        "quant_method": "gptq",
        "sym": true,
    })
}

pub fn w4a16() -> Value {
    pack_quantized(128, true, &["lm_head"])
}
