//! The configuration files of a model, as far as they matter for a count.

use thiserror::Error;

use super::expert_configs::ExpertConfigs;
use super::huggingface_js::HuggingFaceJsRules;
use super::json_object::{JsonObject, read};
use super::schemes::QuantizationConfig;
use crate::formats::{ModelDescription, clip};

/// The quantization of a model and its numbers of experts, as its configuration files give them.
///
/// [`Configs::default()`] stands for a model without configuration files.
///
/// ```
/// use hf_meta::count::Configs;
///
/// let json = br#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#;
/// let configs = Configs::from_config_json(json)?;
/// # Ok::<(), hf_meta::count::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Configs {
    pub(super) quantization: QuantizationConfig,
    pub(super) experts: ExpertConfigs,
    pub(super) huggingface_js: HuggingFaceJsRules,
}

/// An error in a configuration that makes all of it unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not a JSON object.
    #[error("it is not a JSON object: {message}")]
    Json {
        /// The message of the JSON parser, cut to 200 characters.
        message: String,
    },
    /// The file lists more patterns of modules than any known model.
    #[error(
        "it lists more than {limit} patterns of modules, or patterns of more than {bytes} bytes"
    )]
    TooManyPatterns {
        /// The largest number of patterns that is accepted.
        limit: usize,
        /// The largest length in bytes of all patterns that is accepted.
        bytes: usize,
    },
    /// The file describes more ways of packing than any known model has.
    #[error("it describes more than {limit} schemes of quantization")]
    TooManySchemes {
        /// The largest number of different schemes that is accepted.
        limit: usize,
    },
    /// The file describes the packing of more modules than any known model has.
    #[error("it describes more than {limit} modules")]
    TooManyModules {
        /// The largest number of modules that is accepted.
        limit: usize,
    },
}

/// The keys under which a quantization is described, in the order of precedence.
const SECTIONS: [&str; 3] = ["quantization_config", "quantization", "compression_config"];

impl Configs {
    /// The default limit for the length of `config.json`, in bytes. huggingface.js has the same limit.
    pub const DEFAULT_LIMIT: u64 = 10_000_000;

    /// The name of the file that describes Mistral's models in its own format.
    pub(super) const PARAMS: &str = "params.json";

    /// Reads the content of `config.json`.
    ///
    /// Fields that do not matter for a count are ignored, and so is a value of an unexpected type. The
    /// configurations of inner models, such as `text_config`, are read too.
    ///
    /// # Errors
    ///
    /// When the content is not a JSON object, or describes more modules or patterns of modules than any known
    /// model.
    pub fn from_config_json(json: &[u8]) -> Result<Self, ConfigError> {
        let model = parse(json)?;
        let mut quantization = find_section(&model)?.unwrap_or_default();
        quantization.add_dimensions(&model);
        for inner in inner_models(&model) {
            quantization.add_dimensions(&inner);
            if quantization.is_empty()
                && let Some(found) = find_section(&inner)?
            {
                quantization = found.with_dimensions_of(quantization);
            }
        }
        let experts = ExpertConfigs::from_config(&model);
        Ok(Self { quantization, experts, huggingface_js: HuggingFaceJsRules::from_config(&model) })
    }

    /// Returns the configuration that the header of a file describes.
    pub(super) fn from_model(model: &ModelDescription) -> Self {
        let drafts = model.draft_layers.unwrap_or_default();
        let config = serde_json::json!({
            "num_experts": model.experts,
            "num_experts_per_tok": model.experts_per_token,
            "num_hidden_layers": model.layers.map(|layers| layers.saturating_sub(drafts)),
            "num_nextn_predict_layers": drafts,
        });
        Self::from_config_json(config.to_string().as_bytes()).unwrap_or_default()
    }

    /// Reads a file that describes the quantization outside of `config.json`, such as `quantize_config.json` of
    /// AutoGPTQ or `hf_quant_config.json` of modelopt. It has no effect if `config.json` describes one.
    ///
    /// # Errors
    ///
    /// As [`from_config_json`](Self::from_config_json).
    pub fn add_quantization_json(&mut self, json: &[u8]) -> Result<(), ConfigError> {
        let file = parse(json)?;
        if self.quantization.is_empty() {
            let found = match find_section(&file)? {
                Some(found) => found,
                None => QuantizationConfig::from_section(&file)?,
            };
            self.quantization = found.with_dimensions_of(std::mem::take(&mut self.quantization));
        }
        Ok(())
    }

    /// Reads the file that [`Counter::other_config_file`](super::Counter::other_config_file) names.
    ///
    /// # Errors
    ///
    /// As [`from_config_json`](Self::from_config_json).
    pub fn add_file(&mut self, name: &str, json: &[u8]) -> Result<(), ConfigError> {
        if name == Self::PARAMS {
            self.add_params_json(json)
        } else {
            self.add_quantization_json(json)
        }
    }

    /// Reads `params.json`, which Mistral publishes next to weights in its own format. It has no effect on what
    /// `config.json` describes.
    fn add_params_json(&mut self, json: &[u8]) -> Result<(), ConfigError> {
        let Self { quantization, experts, .. } = Self::from_config_json(json)?;
        if self.experts.is_empty() {
            self.experts = experts;
        }
        if self.quantization.is_empty() {
            self.quantization =
                quantization.with_dimensions_of(std::mem::take(&mut self.quantization));
        }
        Ok(())
    }

    /// Returns the name of the quantization method, in lower case, if the configuration gives one.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.quantization.method()
    }
}

fn parse(json: &[u8]) -> Result<JsonObject<'_>, ConfigError> {
    serde_json::from_slice(json)
        .map_err(|error| ConfigError::Json { message: clip(&error.to_string()) })
}

/// Returns the first section that describes a quantization.
fn find_section(model: &JsonObject<'_>) -> Result<Option<QuantizationConfig>, ConfigError> {
    for section in SECTIONS.iter().filter_map(|key| model.get::<JsonObject>(key)) {
        let found = QuantizationConfig::from_section(&section)?;
        if !found.is_empty() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the configurations inside that of a model: `text_config`, `thinker_config.text_config` and their like.
fn inner_models<'a>(model: &JsonObject<'a>) -> Vec<JsonObject<'a>> {
    const MOST_MODELS: usize = 20;

    let inner = |model: &JsonObject<'a>| -> Vec<JsonObject<'a>> {
        let configs =
            model.entries().filter(|(key, _)| key.ends_with("_config") && !SECTIONS.contains(key));
        configs.take(MOST_MODELS).filter_map(|(_, value)| read(value)).collect()
    };
    let outer = inner(model);
    let nested: Vec<_> = outer.iter().flat_map(inner).take(MOST_MODELS).collect();
    outer.into_iter().chain(nested).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(json: &str) -> Option<String> {
        let configs = Configs::from_config_json(json.as_bytes()).unwrap();
        configs.method().map(str::to_owned)
    }

    #[test]
    fn the_quantization_is_found_in_each_place() {
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
        ];
        for (json, expected) in cases {
            assert_eq!(method(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_file_of_its_own_describes_the_quantization() {
        let cases = [
            (r#"{"bits":4,"quant_method":"gptq"}"#, Some("gptq")),
            (r#"{"quantization":{"quant_method":"modelopt"}}"#, Some("modelopt")),
            (r#"{"bits":4}"#, None),
        ];
        for (json, expected) in cases {
            let mut configs = Configs::from_config_json(br#"{"hidden_size":64}"#).unwrap();
            configs.add_quantization_json(json.as_bytes()).unwrap();
            assert_eq!((configs.method(), configs.quantization.is_empty()), (expected, false));
            configs.add_quantization_json(br#"{"quant_method":"other"}"#).unwrap();
            assert_eq!(configs.method(), expected, "{json}");
        }
    }

    /// The sides of weight matrices, which show the size of a padded weight.
    #[test]
    fn dimensions_are_collected_from_all_models() {
        let outer = r#"{"vocab_size":512,"hidden_size":64,"text_config":{"vocab_size":7,"moe_intermediate_size":96,
            "quantization_config":{"quant_method":"gptq"}}}"#;
        let configs = Configs::from_config_json(outer.as_bytes()).unwrap();
        assert_eq!(configs.method(), Some("gptq"));
        assert_eq!(configs.quantization.vocabulary(), Some(512));
        assert_eq!(Vec::from_iter(configs.quantization.dimensions()), [&7, &64, &96, &512]);
        let cases: [(&str, &[u64]); 7] = [
            // The outputs of the query, and of key and value.
            (r#"{"hidden_size":96,"num_attention_heads":8,"num_key_value_heads":2}"#, &[24, 96]),
            (
                r#"{"hidden_size":96,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":16}"#,
                &[32, 96, 128],
            ),
            (r#"{"hidden_size":96,"num_attention_heads":0}"#, &[96]),
            // The latent attention of DeepSeek.
            (r#"{"q_lora_rank":48,"kv_lora_rank":32,"qk_rope_head_dim":8}"#, &[32, 40, 48]),
            (r#"{"q_lora_rank":48,"qk_rope_head_dim":8}"#, &[48]),
            (r#"{"hidden_dropout":1,"num_hidden_layers":2}"#, &[]),
            // An object that is no model.
            (r#"{"rope_scaling":{"hidden_size":96}}"#, &[]),
        ];
        for (json, expected) in cases {
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            let found: Vec<_> = configs.quantization.dimensions().iter().copied().collect();
            assert_eq!(found, expected, "{json}");
        }
    }

    /// Mistral's own file describes only what `config.json` leaves open.
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
            assert_eq!(configs.quantization.vocabulary(), Some(7));
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        for json in ["", "[]", "null", "{", r#"{"a":NaN}"#, "<html>", "\u{feff}{}"] {
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
