//! Computes the number of parameters of Gemma 4, whose layers differ in the width of their heads.
//!
//! Source: `transformers/models/gemma4` 5.23, with which the tests compare.

use super::arithmetic::number;
use crate::base::json_object::JsonObject;

/// The `model_type` of the language model.
pub(super) const TEXT: &str = "gemma4_text";

/// Returns the parameters of the language model without its embeddings. Returns `None` if layers share keys and
/// values, because a checkpoint may contain unused ones.
pub(super) fn language_model(config: &JsonObject<'_>) -> Option<u128> {
    let types = config.get::<Vec<String>>("layer_types")?;
    let full = types.iter().filter(|kind| *kind == "full_attention").count();
    let sliding = u128::try_from(types.len() - full).ok()?;
    let layers = number(config, "num_hidden_layers")?;
    let is_shared = number(config, "num_kv_shared_layers").is_some_and(|layers| layers > 0);
    if layers != u128::try_from(types.len()).ok()? || is_shared {
        return None;
    }
    let hidden = number(config, "hidden_size")?;
    let has_values = config.get("attention_k_eq_v") != Some(true);
    let (width, groups) = wide_heads(config, full, has_values)?;
    let attention = sliding * attention(config, None, None, true)?
        + u128::try_from(full).ok()? * attention(config, Some(width), groups, has_values)?;
    let mlp = 3 * hidden * number(config, "intermediate_size")?;
    let experts = match config.get("enable_moe_block") {
        Some(true) => {
            let width = number(config, "moe_intermediate_size")?;
            // The router scales its inputs and its outputs.
            number(config, "num_experts")? * (3 * hidden * width + hidden + 1) + 4 * hidden
        }
        _ => 0,
    };
    config.raw("hidden_size_per_layer_input")?;
    let (per_layer, outside) = match number(config, "hidden_size_per_layer_input") {
        Some(width) if width > 0 => {
            let rows = number(config, "vocab_size_per_layer_input")? + hidden;
            (2 * hidden * width + hidden, rows * layers * width + width)
        }
        _ => (0, 0),
    };
    Some(attention + layers * (mlp + experts + per_layer + 4 * hidden) + outside + hidden)
}

/// Returns the width of the heads in layers with full attention, and the number of their keys if it differs.
fn wide_heads(
    config: &JsonObject<'_>,
    layers: usize,
    has_values: bool,
) -> Option<(u128, Option<u128>)> {
    let heads = |config: &JsonObject<'_>, [width, groups]: [&str; 2]| {
        Some((number(config, width)?, number(config, groups)))
    };
    let Some(overrides) = config.get::<JsonObject>("per_layer_config") else {
        let (width, groups) = heads(config, ["global_head_dim", "num_global_key_value_heads"])?;
        return Some((width, groups.filter(|_| !has_values)));
    };
    let found = overrides.entries().map(|(_, layer)| {
        heads(&crate::base::json_object::read(layer)?, ["head_dim", "num_key_value_heads"])
    });
    let found = found.collect::<Option<Vec<_>>>()?;
    let first = *found.first()?;
    (found.len() == layers && found.iter().all(|other| *other == first)).then_some(first)
}

/// Returns the parameters of the attention of a layer. Without values, they are the keys.
fn attention(
    config: &JsonObject<'_>,
    width: Option<u128>,
    groups: Option<u128>,
    has_values: bool,
) -> Option<u128> {
    let width = width.or_else(|| number(config, "head_dim"))?;
    let groups = groups.or_else(|| number(config, "num_key_value_heads"))?;
    let heads = 2 * number(config, "num_attention_heads")? + groups * (1 + u128::from(has_values));
    let is_biased = config.get("attention_bias") == Some(true);
    (!is_biased).then_some(heads * width * number(config, "hidden_size")? + 2 * width)
}

/// Returns the parameters of the vision tower and of the projection of its outputs; 0 if the model has none.
pub(super) fn vision(model: &JsonObject<'_>, outputs: u128) -> Option<u128> {
    if model.get::<JsonObject>("audio_config").is_some() {
        return None;
    }
    let Some(config) = model.get::<JsonObject>("vision_config") else { return Some(0) };
    let [hidden, intermediate, layers, patch, positions] = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "patch_size",
        "position_embedding_size",
    ]
    .map(|key| number(&config, key));
    let (hidden, patch) = (hidden?, patch?);
    let layer = attention(&config, None, None, true)? + (3 * intermediate? + 4) * hidden;
    Some((3 * patch * patch + 2 * positions? + outputs) * hidden + layers? * layer)
}

#[cfg(test)]
mod tests {
    use super::super::arithmetic::ExpectedParameters;

    /// `num_parameters()` of `Gemma4ForConditionalGeneration` on the meta device.
    #[test]
    fn sizes_are_those_of_transformers() {
        const VISION: &str = r#"{"hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,
            "num_attention_heads":3,"num_key_value_heads":3,"head_dim":8,"patch_size":4,
            "position_embedding_size":10,"standardize":true}"#;
        let cases = [
            (r#""hidden_size_per_layer_input":4,"global_head_dim":16"#, Some(57_924)),
            (
                r#""hidden_size_per_layer_input":4,"per_layer_config":{"05":{"head_dim":16}}"#,
                Some(57_924),
            ),
            (
                r#""hidden_size_per_layer_input":0,"attention_k_eq_v":true,"global_head_dim":16,
                "num_global_key_value_heads":1"#,
                Some(51_728),
            ),
            (
                r#""hidden_size_per_layer_input":0,"enable_moe_block":true,"num_experts":3,
                "moe_intermediate_size":20,"global_head_dim":16"#,
                Some(89_186),
            ),
            (
                r#""hidden_size_per_layer_input":0,"global_head_dim":16,"num_kv_shared_layers":2"#,
                None,
            ),
            (r#""hidden_size_per_layer_input":0"#, None),
        ];
        for (text, expected) in cases {
            let model = |vision: &str| {
                let sliding = r#""sliding_attention","#.repeat(5);
                let json = format!(
                    r#"{{"architectures":["Gemma4ForConditionalGeneration"],"model_type":"gemma4",
                    "vision_config":{vision},"audio_config":null,"tie_word_embeddings":true,
                    "text_config":{{"model_type":"gemma4_text","vocab_size":100,"hidden_size":32,
                    "intermediate_size":48,"num_hidden_layers":6,"num_attention_heads":4,
                    "num_key_value_heads":2,"head_dim":8,"vocab_size_per_layer_input":90,
                    "layer_types":[{sliding}"full_attention"],{text}}}}}"#
                );
                let config = serde_json::from_str(&json).unwrap();
                ExpectedParameters::from_config(&config).map(|found| found.total)
            };
            let with_vision = expected.map(|parameters: u64| parameters + 12_992);
            assert_eq!([model("null"), model(VISION)], [expected, with_vision], "{text}");
        }
    }
}
