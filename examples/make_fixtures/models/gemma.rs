//! Gemma 7B, of layers as Llama has them. Its head is the embedding itself, so it is not stored a second time.

use super::format::Format::Plain;
use super::llama::{self, Widths};
use super::module::{Dtype, Module};

const HIDDEN: u64 = 3072;
const HEADS: u64 = 16 * 256;
const INTERMEDIATE: u64 = 24_576;

pub fn model() -> Module {
    let widths = Widths { hidden: HIDDEN, queries: HEADS, keys: HEADS, intermediate: INTERMEDIATE };
    Module::new(Dtype::BF16)
        .tensor("model.embed_tokens.weight", &[256_000, HIDDEN])
        .layers("model.layers", 0..28, &llama::layer(Dtype::BF16, &widths, Plain))
        .rms_norm("model.norm", HIDDEN)
}
