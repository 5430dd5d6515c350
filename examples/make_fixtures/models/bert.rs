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
    let layer = Module::new(Dtype::F32)
        .linear("attention.self.query", HIDDEN, HIDDEN)
        .linear("attention.self.key", HIDDEN, HIDDEN)
        .linear("attention.self.value", HIDDEN, HIDDEN)
        .linear("attention.output.dense", HIDDEN, HIDDEN)
        .norm("attention.output.LayerNorm", HIDDEN)
        .linear("intermediate.dense", HIDDEN, 4 * HIDDEN)
        .linear("output.dense", 4 * HIDDEN, HIDDEN)
        .norm("output.LayerNorm", HIDDEN);
    Module::new(Dtype::F32)
        .child("embeddings", embeddings)
        .layers("encoder.layer", 0..LAYERS, &layer)
        .linear("pooler.dense", HIDDEN, HIDDEN)
}

/// A module that follows the encoder and its pooling.
pub fn dense() -> Module {
    Module::new(Dtype::F32).linear("linear", HIDDEN, HIDDEN)
}
