//! The configuration files of a model, as far as they matter for a count.

use thiserror::Error;

use super::experts::ExpertCounts;
use super::json_object::JsonObject;
use super::methods::{CONFIG_KEYS, Method, Module, QuantizationSection, auxiliary_in_any_method};
use super::module_part::ModulePart;
use super::{AuxiliaryTensor, CountedAs};
use crate::formats::clip;

/// The quantization of a model and its numbers of experts, as its configuration files give them.
///
/// [`Configs::default()`] stands for a model without configuration files: every element is a parameter.
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
    quantization: Option<Quantization>,
    pub(super) experts: Option<ExpertCounts>,
}

/// The quantization of a model.
#[derive(Clone, Debug)]
struct Quantization {
    /// The name of the method in results; `None` if the configuration has no name for it.
    name: Option<String>,
    method: Method,
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
    #[error("it lists more than {limit} patterns of modules")]
    TooManyPatterns {
        /// The largest number of patterns that is accepted.
        limit: usize,
    },
    /// The file lists longer names of modules than any known model.
    #[error("it lists more than {limit} bytes of names of modules")]
    TooManyNames {
        /// The largest length of all names together, in bytes.
        limit: usize,
    },
}

/// The configuration of every tensor that no configuration could change.
pub(super) static UNQUANTIZED: Configs = Configs { quantization: None, experts: None };

impl Configs {
    /// The default limit for the length of `config.json`, in bytes. huggingface.js has the same limit.
    pub const DEFAULT_LIMIT: u64 = 10_000_000;

    /// Reads the content of `config.json`.
    ///
    /// Fields that do not matter for a count are ignored, and so is a value of an unexpected type. The
    /// `text_config` of a larger model is read where the model itself has no such field.
    ///
    /// # Errors
    ///
    /// When the content is not a JSON object, or lists more patterns or names of modules than any known
    /// model.
    pub fn from_config_json(json: &[u8]) -> Result<Self, ConfigError> {
        let invalid =
            |error: serde_json::Error| ConfigError::Json { message: clip(&error.to_string()) };
        let model: JsonObject = serde_json::from_slice(json).map_err(invalid)?;
        let text_model = model.get::<JsonObject>("text_config");
        let experts = ExpertCounts::from_config(&model);
        let models: Vec<_> = [Some(model), text_model].into_iter().flatten().collect();
        Ok(Self { quantization: Quantization::from_configs(&models)?, experts })
    }

    /// Returns the name of the quantization method, in lower case, if the configuration gives one.
    pub(super) fn method(&self) -> Option<&str> {
        self.quantization.as_ref()?.name.as_deref()
    }

    /// Returns whether [`classify`](Self::classify) must be given all parts of a module.
    pub(crate) fn needs_whole_modules(&self) -> bool {
        self.quantization.as_ref().is_some_and(|found| found.method.needs_whole_modules())
    }

    /// Classifies a part of a module. The module is empty unless the method needs whole modules.
    pub(super) fn classify(&self, part: &ModulePart<'_>, module: &Module<'_>) -> CountedAs {
        if let Some(kind) = AuxiliaryTensor::from_dtype(&part.tensor.dtype) {
            return CountedAs::AuxiliaryTensor(kind);
        }
        match self.classify_quantized(part, module) {
            Some(CountedAs::Unpacked(_)) | None if part.tensor.is_scalar() => CountedAs::Scalar,
            // Nobody packs a mask or position ids, whatever the configuration says about integers.
            Some(CountedAs::Unpacked(_)) if part.buffer.is_some() => CountedAs::AsStored,
            class => class.unwrap_or(CountedAs::AsStored),
        }
    }

    fn classify_quantized(&self, part: &ModulePart<'_>, module: &Module<'_>) -> Option<CountedAs> {
        let method = &self.quantization.as_ref()?.method;
        match auxiliary_in_any_method(part.name) {
            Some(tensor) => Some(CountedAs::AuxiliaryTensor(tensor)),
            None => method.classify(part, module),
        }
    }
}

impl Quantization {
    /// Finds the quantization in the configuration of the model or of its text model.
    fn from_configs(models: &[JsonObject<'_>]) -> Result<Option<Self>, ConfigError> {
        for (model, key) in models.iter().flat_map(|model| CONFIG_KEYS.map(|key| (model, key))) {
            let Some(fields) = model.get::<JsonObject>(key) else { continue };
            let section = QuantizationSection::new(key, &fields, models);
            if let Some((name, method)) = section.method()? {
                return Ok(Some(Self { name, method }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(json: &str) -> Option<String> {
        Configs::from_config_json(json.as_bytes()).unwrap().quantization?.name
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
