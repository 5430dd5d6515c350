//! `RoBERTa` and `DistilBERT`: encoders of the BERT family, with the heads of the documented repos.
//!
//! The output projection of a masked-language head is the word embedding itself, so it is not stored a second time.

use super::bert;
use super::module::{Dtype, Module};

const POSITIONS: u64 = 514;

pub struct Size {
    vocabulary: u64,
    hidden: u64,
    layers: u64,
}

pub const BASE: Size = Size { vocabulary: 50_265, hidden: 768, layers: 12 };
pub const LARGE: Size = Size { vocabulary: 50_265, hidden: 1024, layers: 24 };
pub const CAMEMBERT: Size = Size { vocabulary: 32_005, ..BASE };

pub fn masked_lm(size: &Size) -> Module {
    let head = Module::new(Dtype::F32)
        .linear("dense", size.hidden, size.hidden)
        .norm("layer_norm", size.hidden)
        .tensor("bias", &[size.vocabulary]);
    encoder(size).child("lm_head", head)
}

/// Classifies tokens, as for named entities.
pub fn tagger(size: &Size, labels: u64) -> Module {
    encoder(size).linear("classifier", size.hidden, labels)
}

fn encoder(&Size { vocabulary, hidden, layers }: &Size) -> Module {
    let embeddings = Module::new(Dtype::F32)
        .buffer("position_ids", Dtype::I64, &[1, POSITIONS])
        .tensor("word_embeddings.weight", &[vocabulary, hidden])
        .tensor("position_embeddings.weight", &[POSITIONS, hidden])
        .tensor("token_type_embeddings.weight", &[1, hidden])
        .norm("LayerNorm", hidden);
    Module::new(Dtype::F32).child("roberta.embeddings", embeddings).layers(
        "roberta.encoder.layer",
        0..layers,
        &bert::layer(hidden),
    )
}

/// `DistilBERT` for masked language modelling: half the layers of BERT, no token types.
pub fn distilbert(vocabulary: u64) -> Module {
    const HIDDEN: u64 = 768;
    let embeddings = Module::new(Dtype::F32)
        .tensor("word_embeddings.weight", &[vocabulary, HIDDEN])
        .tensor("position_embeddings.weight", &[512, HIDDEN])
        .norm("LayerNorm", HIDDEN);
    Module::new(Dtype::F32)
        .child("distilbert.embeddings", embeddings)
        .layers("distilbert.transformer.layer", 0..6, &distilbert_layer(HIDDEN))
        .linear("vocab_transform", HIDDEN, HIDDEN)
        .norm("vocab_layer_norm", HIDDEN)
        .tensor("vocab_projector.bias", &[vocabulary])
}

fn distilbert_layer(hidden: u64) -> Module {
    Module::new(Dtype::F32)
        .linear("attention.q_lin", hidden, hidden)
        .linear("attention.k_lin", hidden, hidden)
        .linear("attention.v_lin", hidden, hidden)
        .linear("attention.out_lin", hidden, hidden)
        .norm("sa_layer_norm", hidden)
        .linear("ffn.lin1", hidden, 4 * hidden)
        .linear("ffn.lin2", 4 * hidden, hidden)
        .norm("output_layer_norm", hidden)
}
