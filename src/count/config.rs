//! What `config.json` says that a count goes by.

use thiserror::Error;

use super::experts::ExpertCounts;
use super::json_object::Object;
use super::methods::Method;
use super::methods::fp8::Format;
use super::methods::mlx::Mlx;
use super::patterns::Exclusions;
use crate::formats::clip;

/// The part of a model's `config.json` that a count goes by: how it is quantized, and how many of its
/// experts work on a token.
///
/// Whatever else is in the file is passed over, and so is a value that is of another type than it should
/// be. What is about the text model of a larger one stands in its `text_config`, where the model itself
/// says nothing.
#[derive(Clone, Debug, Default)]
pub struct Configs {
    pub(super) quantization: Option<Quantization>,
    pub(super) experts: Option<ExpertCounts>,
}

/// How a model is quantized.
#[derive(Clone, Debug)]
pub(super) struct Quantization {
    /// The name that the configuration gives; MLX gives none.
    pub(super) name: Option<String>,
    pub(super) method: Method,
    pub(super) exclusions: Exclusions,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ConfigError {
    /// The text is that of the JSON parser, cut to 200 characters.
    #[error("it is not a JSON object: {message}")]
    Json { message: String },
    #[error("it lists more than {limit} patterns of modules")]
    TooManyPatterns { limit: usize },
    #[error("it lists more than {limit} bytes of names of modules")]
    TooManyNames { limit: usize },
}

impl Configs {
    /// The longest `config.json` that is read by default, in bytes; the limit of huggingface.js.
    pub const DEFAULT_LIMIT: u64 = 10_000_000;

    /// Reads what a count goes by.
    ///
    /// # Errors
    ///
    /// When the bytes are no JSON object, and when they list more patterns or names of modules than any
    /// known model.
    pub fn from_config_json(json: &[u8]) -> Result<Self, ConfigError> {
        let invalid =
            |error: serde_json::Error| ConfigError::Json { message: clip(&error.to_string()) };
        let model: Object = serde_json::from_slice(json).map_err(invalid)?;
        let text = model.get::<Object>("text_config");
        let experts = Format::get(&model, "expert_dtype")
            .or_else(|| Format::get(text.as_ref()?, "expert_dtype"));
        let quantization = match (Quantization::read(&model, experts)?, &text) {
            (None, Some(text)) => Quantization::read(text, experts)?,
            (found, _) => found,
        };
        Ok(Self { quantization, experts: ExpertCounts::read(&model) })
    }

    /// Whether what a tensor is follows from others of the same set of weights.
    pub(crate) fn takes_all_tensors(&self) -> bool {
        matches!(&self.quantization, Some(Quantization { method: Method::Mlx(_), .. }))
    }
}

impl Quantization {
    /// What a model says of its quantization; `experts` is the format of its experts, where that stands
    /// outside. MLX writes it under a key of its own, and in older versions under that of transformers,
    /// where it is told by having no `quant_method`.
    fn read(model: &Object<'_>, experts: Option<Format>) -> Result<Option<Self>, ConfigError> {
        if let Some(mlx) = model.get::<Object>("quantization").as_ref().and_then(Self::mlx) {
            return Ok(Some(mlx));
        }
        let Some(config) = model.get::<Object>("quantization_config") else { return Ok(None) };
        if let Some(mlx) = Self::mlx(&config) {
            return Ok(Some(mlx));
        }
        let name = method_name(&config);
        let method = Method::new(name.as_deref(), &config, experts)?;
        let (ignored, skipped) =
            (config.strings("ignore"), config.strings("modules_to_not_convert"));
        Ok(Some(Self { name, method, exclusions: Exclusions::new(ignored, skipped)? }))
    }

    fn mlx(config: &Object<'_>) -> Option<Self> {
        let name = method_name(config);
        if config.raw("quant_method").is_some() && name.as_deref() != Some("mlx") {
            return None;
        }
        let method = Method::Mlx(Mlx::recognize(config)?);
        Some(Self { name: Some("mlx".to_owned()), method, exclusions: Exclusions::default() })
    }
}

/// `quant_method` as it is compared and shown.
fn method_name(config: &Object<'_>) -> Option<String> {
    config.get::<String>("quant_method").map(|name| clip(&name.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(json: &str) -> Option<String> {
        Configs::from_config_json(json.as_bytes()).unwrap().quantization?.name
    }

    #[test]
    fn where_the_quantization_stands() {
        let cases = [
            ("{}", None),
            (r#"{"quantization_config":null}"#, None),
            (r#"{"quantization_config":"gptq"}"#, None),
            (r#"{"quantization_config":{"quant_method":"AWQ"}}"#, Some("awq")),
            (r#"{"text_config":{"quantization_config":{"quant_method":"x"}}}"#, Some("x")),
            (
                r#"{"quantization_config":{"quant_method":"a"},
                    "text_config":{"quantization_config":{"quant_method":"b"}}}"#,
                Some("a"),
            ),
            (r#"{"quantization":{"bits":4}}"#, Some("mlx")),
            (r#"{"quantization_config":{"bits":4,"group_size":64}}"#, Some("mlx")),
            (r#"{"quantization_config":{"bits":4,"quant_method":null}}"#, None),
            (
                r#"{"quantization":{"bits":1},"quantization_config":{"quant_method":"b"}}"#,
                Some("b"),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(method(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn what_is_no_configuration() {
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
