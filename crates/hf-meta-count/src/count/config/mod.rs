//! The content of a model's configuration files that affects a count.

mod choice;
mod key;
mod pattern;
mod schemes;
mod sides;

use serde::Deserialize;

use super::experts::ExpertConfigs;
use crate::base::model_config::{ModelConfig, quantization_sections};
use hf_meta_format::base::json_object::{self, JsonObject, standard_json};
use hf_meta_format::formats::{DetectedFormat, ModelDescription, clip};

pub(crate) use self::choice::{ModuleSchemes, Schemes};
pub(crate) use self::key::Key;
pub(crate) use self::pattern::{ModuleEntries, Pattern};
pub use self::schemes::ConfigError;
pub(crate) use self::schemes::{QuantizationConfig, Scheme};
pub(crate) use self::sides::{Dimensions, KnownSides, MetadataShapes};

/// The quantization and the expert counts of a model, as described by its configuration files.
///
/// [`Configs::default()`] represents a model without configuration files.
///
/// ```
/// use hf_meta_count::count::Configs;
///
/// let json = br#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#;
/// let configs = Configs::from_config_json(json)?;
/// # Ok::<(), hf_meta_count::count::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Configs {
    pub(crate) quantization: QuantizationConfig,
    pub(crate) dimensions: Dimensions,
    /// The content of `config.json`, which implies the shapes of modules.
    pub(super) json: Option<Box<[u8]>>,
    pub(super) experts: ExpertConfigs,
    /// True if the output embedding is tied to the input embedding.
    pub(super) is_tied: bool,
    /// The content of `adapter_config.json`.
    adapter: Option<Box<[u8]>>,
    /// The content of `quantize_config.json` or `hf_quant_config.json`, if `config.json` does not describe the
    /// quantization.
    pub(crate) recipe: Option<Box<[u8]>>,
    /// The content of `params.json`, with which Mistral describes the weights in `consolidated.safetensors`.
    pub(crate) params: Option<Box<[u8]>>,
}

/// The file in which AutoGPTQ described the quantization before `config.json` did. Of all formats with such a file,
/// this is the only one whose shapes can be ambiguous.
pub(crate) const QUANTIZE_CONFIG: &str = "quantize_config.json";

/// The file in which modelopt describes the quantization if `config.json` does not. vLLM reads it, too.
pub(crate) const HF_QUANT_CONFIG: &str = "hf_quant_config.json";

/// The names of components in checkpoints of modelopt: those of FP8 and NVFP4.
pub(crate) const MODELOPT_PARTS: [&str; 3] = ["weight_scale", "weight_scale_2", "input_scale"];

/// The name of the file in which PEFT and MLX describe an adapter.
pub(crate) const ADAPTER_CONFIG: &str = "adapter_config.json";

impl Configs {
    /// The default maximum size of `config.json`, in bytes. huggingface.js uses the same limit.
    pub const DEFAULT_LIMIT: u64 = 10_000_000;

    /// The configuration file of Mistral's own format.
    pub(crate) const PARAMS: &str = "params.json";

    /// Parses the contents of `config.json`.
    ///
    /// Fields that do not affect the count are ignored, and so are values of an unexpected type. The configurations
    /// of nested models, such as `text_config`, are read as well.
    ///
    /// # Errors
    ///
    /// Returns an error if the contents are not a JSON object, or describe more modules or module patterns than any
    /// known model.
    pub fn from_config_json(json: &[u8]) -> Result<Self, ConfigError> {
        let json = standard_json(json);
        let config: ModelConfig<'_> = parse(&json)?;
        let model = config.outermost();
        let quantization = find_quantization(config.quantization_sections())?;
        let mut dimensions = Dimensions::default();
        config.models.iter().for_each(|model| dimensions.add_model(&model.object));
        // ChatGLM states the bits next to the dimensions. 0 means unquantized.
        let chatglm = || QuantizationConfig::chatglm(model.number("quantization_bit")?);
        Ok(Self {
            quantization: quantization.or_else(chatglm).unwrap_or_default(),
            dimensions,
            json: Some(json.as_ref().into()),
            experts: ExpertConfigs::from_config(&config),
            is_tied: config.is_tied() == Some(true),
            ..Self::default()
        })
    }

    /// Returns the configuration described in a file's header.
    pub(super) fn from_model(model: &ModelDescription) -> Self {
        let numbers = [model.experts, model.experts_per_token, model.layers, model.draft_layers];
        // A number that is 0 counts as missing.
        let [experts, top_k, layers, drafts] = numbers.map(Option::unwrap_or_default);
        let layers = layers.saturating_sub(drafts);
        let config = format!(
            r#"{{"num_experts":{experts},"num_experts_per_tok":{top_k},"num_hidden_layers":{layers},
                "num_nextn_predict_layers":{drafts}}}"#
        );
        Self::from_config_json(config.as_bytes()).unwrap_or_default()
    }

    /// Parses the file named by [`Counter::other_config_file`](super::Counter::other_config_file), or
    /// `adapter_config.json`. Values in `config.json` take precedence.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_config_json`](Self::from_config_json).
    pub fn add_file(&mut self, name: &str, json: &[u8]) -> Result<(), ConfigError> {
        if name == ADAPTER_CONFIG {
            parse::<JsonObject<'_>>(&standard_json(json))?;
            self.adapter = Some(json.into());
            return Ok(());
        }
        let found = if name == Self::PARAMS {
            self.params = Some(json.into());
            Self::from_config_json(json)?
        } else {
            let file: JsonObject<'_> = parse(json)?;
            let section = find_quantization(quantization_sections(&file))?;
            let quantization =
                section.map_or_else(|| QuantizationConfig::from_section(&file), Ok)?;
            Self { quantization, ..Self::default() }
        };
        if self.quantization.is_empty() {
            self.quantization = found.quantization;
            self.recipe = (name == QUANTIZE_CONFIG || name == HF_QUANT_CONFIG).then(|| json.into());
            if name == HF_QUANT_CONFIG {
                self.quantization.method.get_or_insert_with(|| "modelopt".to_owned());
            }
        }
        if self.experts.is_empty() {
            self.experts = found.experts;
        }
        Ok(())
    }

    /// Returns the content of `adapter_config.json`, if it was added.
    pub fn adapter(&self) -> Option<&[u8]> {
        self.adapter.as_deref()
    }

    /// Returns the quantization method, in lowercase, or `None` if the configuration specifies none.
    pub fn method(&self) -> Option<&str> {
        self.quantization.method.as_deref()
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, ConfigError> {
    json_object::parse(json).map_err(|error| match DetectedFormat::recognize(json) {
        Some(found) => ConfigError::OtherContent { found },
        None => ConfigError::Json { message: clip(&error.to_string()) },
    })
}

/// Returns the first section that describes a quantization.
fn find_quantization<'a>(
    sections: impl Iterator<Item = JsonObject<'a>>,
) -> Result<Option<QuantizationConfig>, ConfigError> {
    let mut found = sections.map(|section| QuantizationConfig::from_section(&section));
    found.find(|found| !found.as_ref().is_ok_and(QuantizationConfig::is_empty)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(json: &str) -> Option<String> {
        let configs = Configs::from_config_json(json.as_bytes()).unwrap();
        configs.method().map(str::to_owned)
    }

    #[test]
    fn the_quantization_is_found_in_every_section() {
        let cases = [
            ("{}", None),
            (r#"{"quantization_config":null}"#, None),
            (r#"{"quantization_config":"gptq"}"#, None),
            (r#"{"quantization_config":{"quant_method":"AWQ"}}"#, Some("awq")),
            (r#"{"text_config":{"quantization_config":{"quant_method":"x"}}}"#, Some("x")),
            (
                r#"{"thinker_config":{"text_config":{"compression_config":{"quant_method":"x"}}}}"#,
                Some("x"),
            ),
            (
                r#"{"quantization_config":{"quant_method":"a"},
                    "text_config":{"quantization_config":{"quant_method":"b"}}}"#,
                Some("a"),
            ),
            (r#"{"quantization":{"quant_method":"a"},"quantization_config":{}}"#, Some("a")),
            (r#"{"limit":[0, Infinity],"quantization":{"quant_method":"a"}}"#, Some("a")),
        ];
        for (json, expected) in cases {
            assert_eq!(method(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_separate_file_can_describe_the_quantization() {
        let cases = [
            (r#"{"bits":4,"quant_method":"gptq"}"#, Some("gptq")),
            (r#"{"quantization":{"quant_method":"modelopt"}}"#, Some("modelopt")),
            (r#"{"bits":4}"#, None),
        ];
        for (json, expected) in cases {
            let mut configs = Configs::from_config_json(br#"{"hidden_size":64}"#).unwrap();
            configs.add_file("quantize_config.json", json.as_bytes()).unwrap();
            assert_eq!((configs.method(), configs.quantization.is_empty()), (expected, false));
            configs.add_file("quantize_config.json", br#"{"quant_method":"other"}"#).unwrap();
            assert_eq!(configs.method(), expected, "{json}");
        }
    }

    /// Dimensions of weight matrices, from which the size of a padded weight follows.
    #[test]
    fn dimensions_are_collected_from_all_models() {
        let outer = r#"{"vocab_size":512,"hidden_size":64,"text_config":{"vocab_size":7,"moe_intermediate_size":96,
            "quantization_config":{"quant_method":"gptq"}}}"#;
        let configs = Configs::from_config_json(outer.as_bytes()).unwrap();
        assert_eq!(configs.method(), Some("gptq"));
        assert_eq!(configs.dimensions.vocabulary, Some(512));
        assert_eq!(Vec::from_iter(&configs.dimensions.lengths), [&7, &64, &96, &512]);
        let cases: [(&str, &[u64]); 7] = [
            // The outputs of the query projection, and of the key and value projections.
            (r#"{"hidden_size":96,"num_attention_heads":8,"num_key_value_heads":2}"#, &[24, 96]),
            (
                r#"{"hidden_size":96,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":16}"#,
                &[32, 96, 128],
            ),
            (r#"{"hidden_size":96,"num_attention_heads":0}"#, &[96]),
            // Multi-head latent attention (MLA) of DeepSeek.
            (r#"{"q_lora_rank":48,"kv_lora_rank":32,"qk_rope_head_dim":8}"#, &[32, 40, 48]),
            (r#"{"q_lora_rank":48,"qk_rope_head_dim":8}"#, &[48]),
            (r#"{"hidden_dropout":1,"num_hidden_layers":2}"#, &[]),
            // An object that is not a model.
            (r#"{"rope_scaling":{"hidden_size":96}}"#, &[]),
        ];
        for (json, expected) in cases {
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            let found: Vec<_> = configs.dimensions.lengths.iter().copied().collect();
            assert_eq!(found, expected, "{json}");
        }
    }

    /// Mistral's own file only fills in what `config.json` does not specify.
    #[test]
    fn a_second_file_fills_gaps() {
        let params = br#"{"quantization":{"quant_method":"fp8"},"moe":{"num_experts_per_tok":2},"hidden_dim":96}"#;
        let cases = [
            (r#"{"vocab_size":7}"#, Some("fp8"), Some(2)),
            (
                r#"{"vocab_size":7,"quantization_config":{"quant_method":"gptq"}}"#,
                Some("gptq"),
                Some(2),
            ),
            (r#"{"vocab_size":7,"num_experts_per_tok":4}"#, Some("fp8"), Some(4)),
        ];
        for (json, method, top_k) in cases {
            let mut configs = Configs::from_config_json(json.as_bytes()).unwrap();
            configs.add_file("params.json", params).unwrap();
            let found = configs.experts.find("layers.0").ok().and_then(|config| config.top_k(None));
            assert_eq!((configs.method(), found), (method, top_k), "{json}");
            assert_eq!(configs.dimensions.vocabulary, Some(7));
        }
    }

    #[test]
    fn embeddings_are_tied_if_no_configuration_contradicts() {
        let cases = [
            ("{}", false),
            (r#"{"tie_word_embeddings":true}"#, true),
            (r#"{"text_config":{"tie_word_embeddings":true}}"#, true),
            (r#"{"tie_word_embeddings":false,"text_config":{"tie_word_embeddings":true}}"#, false),
            (r#"{"tie_word_embeddings":"true"}"#, false),
        ];
        for (json, expected) in cases {
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            assert_eq!(configs.is_tied, expected, "{json}");
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        let pointer =
            Configs::from_config_json(b"version https://git-lfs.github.com/spec/v1").unwrap_err();
        assert!(pointer.to_string().contains("`git lfs pull`"), "{pointer}");
        for json in ["", "[]", "null", "{", r#"{"a":nan}"#, "\u{feff}{}"] {
            let error = Configs::from_config_json(json.as_bytes()).unwrap_err();
            assert!(matches!(error, ConfigError::Json { .. }), "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(Configs::from_config_json(deep.as_bytes()).is_err());
        let nested =
            format!(r#"{{"quantization_config":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        assert!(Configs::from_config_json(nested.as_bytes()).is_ok());
    }
}
