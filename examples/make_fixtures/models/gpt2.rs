//! GPT-2, small.

use super::module::{Dtype, Module};

const HIDDEN: u64 = 768;
const POSITIONS: u64 = 1024;

/// Chosen by search so that the file is the one the format's documentation describes: `h.10.ln_1.weight` and
/// `h.2.attn.c_attn.weight` lie at the documented offsets, and the digits of all offsets make the documented length.
pub const SALT: u64 = 2_059_788_468;

pub fn model() -> Module {
    Module::new(Dtype::F32)
        .tensor("wte.weight", &[50_257, HIDDEN])
        .tensor("wpe.weight", &[POSITIONS, HIDDEN])
        .layers("h", 0..12, &layer())
        .norm("ln_f", HIDDEN)
}

fn layer() -> Module {
    Module::new(Dtype::F32)
        .norm("ln_1", HIDDEN)
        .tensor("attn.bias", &[1, 1, POSITIONS, POSITIONS])
        .conv1d("attn.c_attn", HIDDEN, 3 * HIDDEN)
        .conv1d("attn.c_proj", HIDDEN, HIDDEN)
        .norm("ln_2", HIDDEN)
        .conv1d("mlp.c_fc", HIDDEN, 4 * HIDDEN)
        .conv1d("mlp.c_proj", 4 * HIDDEN, HIDDEN)
}
