//! BERT with what it was trained for, and as the first module of a sentence-transformers model.

use super::module::{Dtype, Module};

const HIDDEN: u64 = 768;
const POSITIONS: u64 = 512;
const LAYERS: u64 = 12;

/// With the heads for masked words and next sentences, and the names of the first release.
pub fn pretraining(vocabulary: u64) -> Module {
    let predictions = Module::new(Dtype::F32)
        .tensor("bias", &[vocabulary])
        .linear("transform.dense", HIDDEN, HIDDEN)
        .norm("transform.LayerNorm", HIDDEN);
    Module::new(Dtype::F32)
        .child("bert", encoder(vocabulary))
        .child("cls.predictions", predictions)
        .linear("cls.seq_relationship", HIDDEN, 2)
        .renamed("LayerNorm.weight", "LayerNorm.gamma")
        .renamed("LayerNorm.bias", "LayerNorm.beta")
}

pub fn with_position_ids(vocabulary: u64) -> Module {
    encoder(vocabulary).buffer("embeddings.position_ids", Dtype::I64, &[1, POSITIONS])
}

fn encoder(vocabulary: u64) -> Module {
    let embeddings = Module::new(Dtype::F32)
        .tensor("word_embeddings.weight", &[vocabulary, HIDDEN])
        .tensor("position_embeddings.weight", &[POSITIONS, HIDDEN])
        .tensor("token_type_embeddings.weight", &[2, HIDDEN])
        .norm("LayerNorm", HIDDEN);
    Module::new(Dtype::F32)
        .child("embeddings", embeddings)
        .layers("encoder.layer", 0..LAYERS, &layer(HIDDEN))
        .linear("pooler.dense", HIDDEN, HIDDEN)
}

/// A layer of BERT and of those that took it over.
pub fn layer(hidden: u64) -> Module {
    Module::new(Dtype::F32)
        .linear("attention.self.query", hidden, hidden)
        .linear("attention.self.key", hidden, hidden)
        .linear("attention.self.value", hidden, hidden)
        .linear("attention.output.dense", hidden, hidden)
        .norm("attention.output.LayerNorm", hidden)
        .linear("intermediate.dense", hidden, 4 * hidden)
        .linear("output.dense", 4 * hidden, hidden)
        .norm("output.LayerNorm", hidden)
}

/// A module that follows the encoder and its pooling.
pub fn dense() -> Module {
    Module::new(Dtype::F32).linear("linear", HIDDEN, HIDDEN)
}
