//! Kimi K2.5: a language model of the DeepSeek-V3 kind whose experts are 4-bit integers, and eyes.

use serde_json::{Value, json};

use super::deepseek_v3::{self, HIDDEN, Size};
use super::format::{Format, pack_quantized};
use super::module::{Dtype, Module};

const SIZE: Size = Size {
    vocabulary: 163_840,
    heads: 64,
    experts: 384,
    dense_layers: 1,
    expert: Format::PackQuantized { group: 32, shape: Dtype::I32, is_ordered: false },
    other: Format::Plain,
};

const VISION: u64 = 1152;
const VISION_INTERMEDIATE: u64 = 4304;
/// Four neighbouring patches are merged into one token.
const MERGED: u64 = 4 * VISION;

/// In the order of its shards: the layers come first.
pub fn model() -> Module {
    let projector = Module::new(Dtype::BF16)
        .norm("pre_norm", VISION)
        .linear("proj.0", MERGED, MERGED)
        .linear("proj.2", MERGED, HIDDEN);
    let language =
        deepseek_v3::layers(&SIZE).and(deepseek_v3::embedding(&SIZE)).and(deepseek_v3::head(&SIZE));
    Module::new(Dtype::BF16)
        .child("language_model", language)
        .child("mm_projector", projector)
        .child("vision_tower", vision())
}

fn vision() -> Module {
    let block = Module::new(Dtype::BF16)
        .norm("norm0", VISION)
        .norm("norm1", VISION)
        .linear("wqkv", VISION, 3 * VISION)
        .linear("wo", VISION, VISION)
        .linear("mlp.fc0", VISION, VISION_INTERMEDIATE)
        .linear("mlp.fc1", VISION_INTERMEDIATE, VISION);
    Module::new(Dtype::BF16)
        .conv2d("patch_embed.proj", 3, VISION, 14)
        .tensor("patch_embed.pos_emb.weight", &[64, 64, VISION])
        .layers("encoder.blocks", 0..27, &block)
        .norm("encoder.final_layernorm", VISION)
}

/// The content of a shard: a layer of the language model, the rest of it, or one of the other parts.
pub fn part(name: &str) -> &str {
    const LAYERS: &str = "language_model.model.layers.";
    match name.strip_prefix(LAYERS).and_then(|rest| rest.split('.').next()) {
        Some(layer) => layer,
        None => name.split('.').next().unwrap_or_default(),
    }
}

/// Only the language model is quantized; its configuration is inside `text_config`.
pub fn config() -> Value {
    let mut text = deepseek_v3::fields(&SIZE);
    text.insert(
        "quantization_config".to_owned(),
        pack_quantized(
            32,
            false,
            &[
                "lm_head",
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            ],
        ),
    );
    json!({
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text,
        "tie_word_embeddings": false,
    })
}
