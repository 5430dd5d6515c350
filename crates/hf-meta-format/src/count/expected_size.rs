//! Computes the number of parameters of common language models from `config.json` alone.
//!
//! This uses no tensors, so it is an independent check of a count. A configuration that is incomplete, or whose
//! architecture has no formulas, has no expected number.

use super::module::divide;
use crate::base::json_object::JsonObject;
use crate::base::model_config::ModelConfig;
use crate::tables::architecture::{Definitions, ModelNames};
use crate::tables::formula::FormulaInputs;

/// The parameter counts that fit a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedParameters {
    pub(crate) total: u64,
    /// The total if a tied output embedding is stored anyway, or if the default of an omitted setting is different.
    alternative: u64,
    hidden: u64,
    vocabulary: u64,
}

impl ExpectedParameters {
    /// Computes the parameters of a model; `None` if the architecture is unknown or a value is missing or absurd.
    pub(crate) fn from_config(config: &ModelConfig<'_>) -> Option<Self> {
        let outer = names(config.outermost())?;
        let inner = match outer.defined("$vision") {
            Some(vision) => {
                let text = config.text_models().nth(1).filter(|model| model.key == "text_config");
                Some((names(&text?.object)?, vision.ok()?))
            }
            None => None,
        };
        let (model, vision, class) = match &inner {
            Some((text, vision)) => (text, *vision, "ForConditionalGeneration"),
            None => (&outer, 0, "ForCausalLM"),
        };
        let architectures = config.outermost().get::<Vec<String>>("architectures")?;
        if !architectures.iter().any(|name| name.ends_with(class)) {
            return None;
        }
        let [hidden, vocabulary] = ["hidden_size", "vocab_size"].map(|key| model.number(key).ok());
        let (hidden, vocabulary) = (hidden?, vocabulary?);
        let one = model.defined("$size")?.ok()?.checked_add(vision)?;
        let two = one.checked_add(vocabulary.checked_mul(hidden)?)?;
        let is_tied_by_default = || model.definitions.get("tie_word_embeddings") == Some("1");
        let (total, alternative) = match config.is_tied() {
            Some(false) => (two, two),
            Some(true) => (one, two),
            None if is_tied_by_default() => (one, two),
            None => (two, one),
        };
        Some(Self { total, alternative, hidden, vocabulary })
    }

    /// Returns whether the size of a model is between two numbers of parameters.
    pub(crate) fn is_between(self, least: u64, most: u64) -> bool {
        let sizes = [self.total, self.alternative];
        sizes.iter().any(|total| (least..=most).contains(total)) || self.is_padded(most)
    }

    /// Returns whether a size is that of a model whose vocabulary was padded, as `resize_token_embeddings` does.
    fn is_padded(self, size: u64) -> bool {
        /// The smallest common multiple of padded vocabularies.
        const MULTIPLE: u64 = 64;
        /// The largest common one.
        const MAX_ROWS: u64 = 1024;

        let sizes = [self.total, self.alternative];
        let with_output = self.total.max(self.alternative);
        let mut rows = sizes.iter().filter_map(|total| {
            let copies = if *total == with_output { 2 } else { 1 };
            divide(size.checked_sub(*total)?, self.hidden.checked_mul(copies)?)
        });
        rows.any(|rows| {
            let is_multiple = |rows: u64| rows.is_multiple_of(MULTIPLE);
            rows < MAX_ROWS && self.vocabulary.checked_add(rows).is_some_and(is_multiple)
        })
    }
}

/// Returns the names in the size of a model.
fn names<'a>(model: &'a JsonObject<'_>) -> Option<ModelNames<'a>> {
    let definitions = Definitions::find("size", &model.get::<String>("model_type")?)?;
    let names = ModelNames::of_config(definitions, model);
    names.unsupported().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(json: &str) -> Option<ExpectedParameters> {
        ExpectedParameters::from_config(&serde_json::from_str(json).unwrap())
    }

    /// Totals published by the authors.
    #[test]
    fn published_sizes_follow_from_configurations() {
        const HEAD_128: &str = r#","head_dim":128"#;
        const HEAD_256: &str = r#","head_dim":256"#;

        let config = |model_type: &str, numbers: [u64; 6], rest: &str| {
            let [vocabulary, hidden, intermediate, layers, heads, groups] = numbers;
            format!(
                r#"{{"architectures":["XForCausalLM"],"model_type":"{model_type}","vocab_size":{vocabulary},
                "hidden_size":{hidden},"intermediate_size":{intermediate},"num_hidden_layers":{layers},
                "num_attention_heads":{heads},"num_key_value_heads":{groups}{rest}}}"#
            )
        };
        let moe = r#","num_experts":128,"moe_intermediate_size":768,"head_dim":128,"mlp_only_layers":[],
            "decoder_sparse_step":1"#;
        let cases = [
            ("Llama-3.1-8B", "llama", [128_256, 4096, 14_336, 32, 32, 8], "", 8_030_261_248),
            ("Llama-3.3-70B", "llama", [128_256, 8192, 28_672, 80, 64, 8], "", 70_553_706_496),
            ("Mistral-7B", "mistral", [32_000, 4096, 14_336, 32, 32, 8], "", 7_241_732_096),
            (
                "Mixtral-8x7B",
                "mixtral",
                [32_000, 4096, 14_336, 32, 32, 8],
                r#","num_local_experts":8"#,
                46_702_792_704,
            ),
            ("Qwen2.5-7B", "qwen2", [152_064, 3584, 18_944, 28, 28, 4], "", 7_615_616_512),
            ("Qwen3-8B", "qwen3", [151_936, 4096, 12_288, 36, 32, 8], HEAD_128, 8_190_735_360),
            ("Qwen3-30B-A3B", "qwen3_moe", [151_936, 2048, 6144, 48, 32, 4], moe, 30_532_122_624),
            ("gemma-2b", "gemma", [256_000, 2048, 16_384, 18, 8, 1], HEAD_256, 2_506_172_416),
            ("gemma-2-9b", "gemma2", [256_000, 3584, 14_336, 42, 16, 8], HEAD_256, 9_241_705_984),
        ];
        for (name, model_type, numbers, rest, expected) in cases {
            let found = parameters(&config(model_type, numbers, rest));
            assert_eq!(found.map(|found| found.total), Some(expected), "{name}");
        }
    }

    /// The model classes of transformers build the same modules with and without these settings.
    #[test]
    fn settings_that_a_family_ignores_do_not_change_the_size() {
        const WIDTH: &str = r#","head_dim":2"#;
        const EXPERTS: &str = r#","num_local_experts":4"#;

        let size = |model_type: &str, rest: &str| {
            let json = format!(
                r#"{{"architectures":["XForCausalLM"],"model_type":"{model_type}","vocab_size":8,"hidden_size":4,
                "intermediate_size":8,"num_hidden_layers":2,"num_attention_heads":2{rest}}}"#
            );
            parameters(&json)
        };
        for (model_type, needed, setting) in [
            ("llama", "", r#","use_qk_norm":true"#),
            ("mistral", "", r#","attention_bias":true,"mlp_bias":true"#),
            ("gemma2", WIDTH, r#","mlp_bias":true"#),
            ("exaone4", WIDTH, r#","attention_bias":true"#),
            ("mixtral", EXPERTS, r#","mlp_layer_types":["dense","sparse"]"#),
            ("mixtral", EXPERTS, r#","shared_expert_intermediate_size":16"#),
        ] {
            let expected = size(model_type, needed);
            assert!(expected.is_some(), "{model_type}");
            assert_eq!(size(model_type, &format!("{needed}{setting}")), expected, "{setting}");
        }
        assert!(size("olmoe", EXPERTS).is_some());
        assert_eq!(size("olmoe", &[EXPERTS, WIDTH].concat()), None);
        for setting in [r#","attention_bias":true"#, r#","mlp_bias":true"#] {
            assert_ne!(size("llama", setting), size("llama", ""), "{setting}");
        }
    }

    #[test]
    fn unsupported_configurations_return_none() {
        let llama = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":8,"hidden_size":4,
            "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"tie_word_embeddings":true}"#;
        // The layer has 4 · 4·4 + 3 · 4·8 + 2·4 parameters, the last norm 4, and the embeddings 8·4.
        let tied = parameters(llama).unwrap();
        assert_eq!(tied.total, 168 + 4 + 32);
        for same in ["4.0", "\"4\""] {
            let config = llama.replace("\"hidden_size\":4", &format!("\"hidden_size\":{same}"));
            assert_eq!(parameters(&config), Some(tied), "{same}");
        }
        let allows = |size: u64| tied.is_between(size, size);
        assert_eq!([204, 236, 0, 220].map(allows), [true, true, false, false]);
        // 56 more rows of each embedding make 64. 57 do not.
        let padded = [204 + 56 * 4, 236 + 2 * 56 * 4, 204 + 57 * 4, 204 + (56 + 1024) * 4];
        assert_eq!(padded.map(allows), [true, true, false, false]);
        for (from, to) in [
            ("\"llama\"", "\"bloom\""),
            ("\"hidden_size\":4", "\"hidden_size\":4.5"),
            ("ForCausalLM", "Model"),
            ("_heads\":2", "_heads\":0"),
            ("\"hidden_size\":4", "\"hidden_size\":18446744073709551615"),
            ("\"hidden_size\":4,", ""),
            ("\"hidden_size\":4", "\"hidden_size\":-4"),
        ] {
            assert_eq!(parameters(&llama.replace(from, to)), None, "{to}");
        }
    }

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
                parameters(&json).map(|found| found.total)
            };
            let with_vision = expected.map(|parameters: u64| parameters + 12_992);
            assert_eq!([model("null"), model(VISION)], [expected, with_vision], "{text}");
        }
    }
}
