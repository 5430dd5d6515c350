//! GPT-NeoX-20B, with the masks and constants its conversion left among the weights.

use super::module::{Dtype, Module};

const HIDDEN: u64 = 6144;
const VOCABULARY: u64 = 50_432;
const POSITIONS: u64 = 2048;

/// The limit that gives the repo its 46 shards.
pub const SHARD_BYTES: u64 = 1_000_000_000;

pub fn model() -> Module {
    Module::new(Dtype::F16)
        .tensor("gpt_neox.embed_in.weight", &[VOCABULARY, HIDDEN])
        .layers("gpt_neox.layers", 0..44, &layer())
        .norm("gpt_neox.final_layer_norm", HIDDEN)
        .tensor("embed_out.weight", &[VOCABULARY, HIDDEN])
}

fn layer() -> Module {
    Module::new(Dtype::F16)
        .norm("input_layernorm", HIDDEN)
        .norm("post_attention_layernorm", HIDDEN)
        .buffer("attention.bias", Dtype::U8, &[1, 1, POSITIONS, POSITIONS])
        .tensor("attention.masked_bias", &[])
        .tensor("attention.rotary_emb.inv_freq", &[12])
        .linear("attention.query_key_value", HIDDEN, 3 * HIDDEN)
        .linear("attention.dense", HIDDEN, HIDDEN)
        .linear("mlp.dense_h_to_4h", HIDDEN, 4 * HIDDEN)
        .linear("mlp.dense_4h_to_h", 4 * HIDDEN, HIDDEN)
}
