//! BLOOM in its sizes.

use serde_json::{Value, json};

use super::module::{Dtype, Module};

/// Chosen by search so that `h.10.input_layernorm.weight` of the largest model lies at its documented offset.
pub const SALT: u64 = 89;

pub fn model(dtype: Dtype, hidden: u64, layers: u64) -> Module {
    Module::new(dtype)
        .tensor("word_embeddings.weight", &[250_880, hidden])
        .norm("word_embeddings_layernorm", hidden)
        .layers("h", 0..layers, &layer(dtype, hidden))
        .norm("ln_f", hidden)
}

/// The configuration of the largest model, with the keys that engines and the memory depend on.
pub fn config() -> Value {
    json!({
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "n_embed": 14_336,
        "n_layer": 70,
        "num_attention_heads": 112,
        "vocab_size": 250_880,
    })
}

fn layer(dtype: Dtype, hidden: u64) -> Module {
    Module::new(dtype)
        .norm("input_layernorm", hidden)
        .linear("self_attention.query_key_value", hidden, 3 * hidden)
        .linear("self_attention.dense", hidden, hidden)
        .norm("post_attention_layernorm", hidden)
        .linear("mlp.dense_h_to_4h", hidden, 4 * hidden)
        .linear("mlp.dense_4h_to_h", 4 * hidden, hidden)
}

/// The content of a shard: a layer `h.k`, the tensors before the layers, or those after them.
pub fn part(name: &str) -> &str {
    name.strip_prefix("h.").and_then(|rest| rest.split('.').next()).unwrap_or("")
}
