//! Quantization methods.
//!
//! A method is one file: the names that the configuration may give it, the names of its parts, and the
//! arithmetic. To add one, write the file and add its definition to [`METHODS`].

mod bitsandbytes;
mod compressed_tensors;
mod fp8;
mod generic;
mod gptq;
mod mlx;
mod mxfp4;
mod parts;

use std::fmt::Debug;
use std::sync::Arc;

pub(super) use self::parts::{PartEvidence, auxiliary_in_any_method, evidence};
use self::parts::{PartName, PartRole, role};
use super::json_object::JsonObject;
use super::module_part::ModulePart;
use super::patterns::UnconvertedModules;
use super::{ConfigError, CountedAs, suffix};
use crate::formats::{TensorInfo, clip};

/// All methods. The first one that recognizes a configuration applies, and the last one recognizes any.
pub(super) const METHODS: &[MethodDefinition] = &[
    mlx::METHOD,
    bitsandbytes::METHOD,
    compressed_tensors::METHOD,
    fp8::METHOD,
    gptq::METHOD,
    mxfp4::METHOD,
    generic::METHOD,
];

/// The part of a quantization method that does not depend on the configuration.
pub(super) struct MethodDefinition {
    /// The keys of `config.json` whose object may describe the method.
    pub(super) config_keys: &'static [&'static str],
    /// The values of `quant_method`, in lower case; empty for any value.
    pub(super) names: &'static [&'static str],
    /// True if `quant_method` may be missing.
    pub(super) name_is_optional: bool,
    /// The parts of its modules.
    pub(super) parts: &'static [PartName],
    /// Reads the object of the configuration; `None` if it describes another method after all.
    pub(super) from_config: fn(&QuantizationSection<'_>) -> Result<Option<Method>, ConfigError>,
}

/// A method with the values of a configuration.
pub(super) type Method = Arc<dyn QuantizationMethod>;

/// The arithmetic of a quantization method, with the values of one configuration.
pub(super) trait QuantizationMethod: Debug + Send + Sync {
    /// Returns whether `classify` must be given all parts of a module, from all files.
    fn needs_whole_modules(&self) -> bool {
        false
    }

    /// Classifies a part of a module; `None` if it is stored as in a model that is not quantized. `module` is
    /// empty unless the method needs whole modules.
    fn classify(&self, part: &ModulePart<'_>, module: &Module<'_>) -> Option<CountedAs>;
}

/// The parts of a module from all files: tensors whose names differ in the last component only.
#[derive(Clone, Copy, Default)]
pub(super) struct Module<'a> {
    /// The tensors by their names, ordered by the last component.
    parts: &'a [(String, TensorInfo)],
}

impl<'a> Module<'a> {
    /// Creates a module from tensors that are ordered by the last component of their names.
    pub(super) fn from_sorted(parts: &'a [(String, TensorInfo)]) -> Self {
        Self { parts }
    }

    /// Returns the part of a name.
    pub(super) fn part(&self, name: &str) -> Option<&'a TensorInfo> {
        let first = self.parts.partition_point(|(tensor_name, _)| suffix(tensor_name) < name);
        let (tensor_name, tensor) = self.parts.get(first)?;
        (suffix(tensor_name) == name).then_some(tensor)
    }
}

/// The object of a configuration that describes the quantization.
pub(super) struct QuantizationSection<'a> {
    key: &'static str,
    /// `quant_method` in lower case.
    name: Option<String>,
    fields: &'a JsonObject<'a>,
    /// The configurations of the model and of its text model.
    models: &'a [JsonObject<'a>],
}

impl<'a> QuantizationSection<'a> {
    /// Creates the section under a key of a configuration.
    pub(super) fn new(
        key: &'static str,
        fields: &'a JsonObject<'a>,
        models: &'a [JsonObject<'a>],
    ) -> Self {
        let name = fields.get::<String>("quant_method").map(|name| clip(&name.to_lowercase()));
        Self { key, name, fields, models }
    }

    /// Returns the method, with the name that results report.
    pub(super) fn method(&self) -> Result<Option<(Option<String>, Method)>, ConfigError> {
        for definition in METHODS.iter().filter(|definition| self.may_be(definition)) {
            if let Some(method) = (definition.from_config)(self)? {
                let own_name = definition.names.first().map(|&name| name.to_owned());
                return Ok(Some((self.name.clone().or(own_name), method)));
            }
        }
        Ok(None)
    }

    fn may_be(&self, definition: &MethodDefinition) -> bool {
        let is_named = || match &self.name {
            Some(name) => definition.names.contains(&name.as_str()),
            None => definition.name_is_optional,
        };
        definition.config_keys.contains(&self.key) && (definition.names.is_empty() || is_named())
    }

    /// Reads the modules that were left as they were.
    fn unconverted(&self) -> Result<UnconvertedModules, ConfigError> {
        let [ignored, named] = ["ignore", "modules_to_not_convert"];
        UnconvertedModules::new(self.fields.strings(ignored), self.fields.strings(named))
    }
}

/// The key under which transformers and its relatives describe the quantization.
const QUANTIZATION_CONFIG: &str = "quantization_config";

/// All keys under which a method may be described, in the order of precedence.
pub(super) const CONFIG_KEYS: [&str; 2] = [mlx::QUANTIZATION, QUANTIZATION_CONFIG];

/// Helpers for tests of methods.
#[cfg(test)]
mod cases;
