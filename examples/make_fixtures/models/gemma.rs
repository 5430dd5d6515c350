//! Gemma 7B. Its head is the embedding itself, so it is not stored a second time.

use super::format::Format::Plain;
use super::module::{Dtype, Module};

const HIDDEN: u64 = 3072;
const HEADS: u64 = 16 * 256;
const INTERMEDIATE: u64 = 24_576;

pub fn model() -> Module {
    let layer = Module::new(Dtype::BF16)
        .projection("self_attn.q_proj", Plain, HIDDEN, HEADS)
        .projection("self_attn.k_proj", Plain, HIDDEN, HEADS)
        .projection("self_attn.v_proj", Plain, HIDDEN, HEADS)
        .projection("self_attn.o_proj", Plain, HEADS, HIDDEN)
        .projection("mlp.gate_proj", Plain, HIDDEN, INTERMEDIATE)
        .projection("mlp.up_proj", Plain, HIDDEN, INTERMEDIATE)
        .projection("mlp.down_proj", Plain, INTERMEDIATE, HIDDEN)
        .rms_norm("input_layernorm", HIDDEN)
        .rms_norm("post_attention_layernorm", HIDDEN);
    Module::new(Dtype::BF16)
        .tensor("model.embed_tokens.weight", &[256_000, HIDDEN])
        .layers("model.layers", 0..28, &layer)
        .rms_norm("model.norm", HIDDEN)
}
