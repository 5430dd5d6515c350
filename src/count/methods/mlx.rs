//! MLX: weights in `U32`. A module is packed if `scales` and, in the affine mode, `biases` are next to its weight.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::{
    MethodDefinition, Module, PartEvidence, PartName, PartRole, QUANTIZATION_CONFIG,
    QuantizationMethod, QuantizationSection, role,
};
use crate::count::json_object::{JsonObject, read};
use crate::count::module_part::ModulePart;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};
use crate::formats::Dtype;

/// The key of MLX; older versions used that of transformers, without a `quant_method`.
pub(super) const QUANTIZATION: &str = "quantization";

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    config_keys: &[QUANTIZATION, QUANTIZATION_CONFIG],
    names: &["mlx"],
    name_is_optional: true,
    parts: PARTS,
    from_config: |section| {
        // A `quant_method` that is not a string is not a missing one.
        let is_missing = section.fields.raw("quant_method").is_none();
        let mlx = Mlx::from_config(section).filter(|_| is_missing || section.name.is_some());
        Ok(mlx.map(|mlx| Arc::new(mlx) as _))
    },
};

const WEIGHT: &str = "weight";
const SCALES: &str = "scales";
const BIASES: &str = "biases";

const PARTS: &[PartName] = &[
    PartName::packed(WEIGHT, PartEvidence::Integers),
    PartName::auxiliary(SCALES, AuxiliaryTensor::Scale, PartEvidence::Name),
    PartName::auxiliary(BIASES, AuxiliaryTensor::ZeroPoint, PartEvidence::OtherParts),
];

#[derive(Debug)]
struct Mlx {
    /// The layout of modules that are not listed; `None` if they are not packed.
    default: Option<MlxLayout>,
    /// The layouts of listed modules; `None` if a module is not packed.
    modules: BTreeMap<Box<str>, Option<MlxLayout>>,
}

/// The layout of a packed module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MlxLayout {
    bits: u32,
    /// True if the module has zero points, which MLX calls `biases`. Only this mode has them.
    is_affine: bool,
}

impl Mlx {
    /// Recognizes a configuration by parameters that MLX accepts, for all modules or for one of them.
    fn from_config(section: &QuantizationSection<'_>) -> Option<Self> {
        let config = section.fields;
        let is_accepted = |config: &JsonObject<'_>| {
            let keys = ["bits", "group_size", "mode"];
            keys.iter().any(|key| config.raw(key).is_some())
                && MlxLayout::from_config(config, NullMode::Invalid).is_some()
        };
        let mut modules = config.entries().filter_map(|(_, module)| read::<JsonObject>(module));
        if !is_accepted(config) && !modules.any(|module| is_accepted(&module)) {
            return None;
        }
        let default = MlxLayout::from_config(config, NullMode::Affine);
        Some(Self { default, modules: config.entries().filter_map(listed_module).collect() })
    }

    /// Returns the layout of a module if the parts of a packed module are complete.
    fn layout(&self, name: &str, module: &Module<'_>) -> Option<MlxLayout> {
        let layout = self.modules.get(name).copied().unwrap_or(self.default)?;
        let is_complete = module.part(WEIGHT).is_some_and(|weight| weight.dtype == Dtype::U32)
            && module.part(SCALES).is_some()
            && (!layout.is_affine || module.part(BIASES).is_some());
        is_complete.then_some(layout)
    }
}

impl QuantizationMethod for Mlx {
    fn needs_whole_modules(&self) -> bool {
        true
    }

    fn classify(&self, part: &ModulePart<'_>, parts: &Module<'_>) -> Option<CountedAs> {
        let role = role(PARTS, part.name)?;
        let layout = self.layout(part.module(), parts)?;
        match role {
            PartRole::Packed if part.tensor.dtype == Dtype::U32 => {
                Packing::dense(&part.tensor.dtype, layout.bits).map(CountedAs::Unpacked)
            }
            PartRole::Auxiliary(tensor) if layout.is_affine || part.name != BIASES => {
                Some(CountedAs::AuxiliaryTensor(tensor))
            }
            _ => None,
        }
    }
}

impl MlxLayout {
    /// Reads the parameters of an object, if MLX accepts them.
    fn from_config(config: &JsonObject<'_>, null: NullMode) -> Option<Self> {
        let mode = match config.raw("mode") {
            Some(mode) if null == NullMode::Invalid || config.has("mode") => read::<String>(mode)?,
            _ => "affine".to_owned(),
        };
        let mode = mode.to_lowercase();
        let (bits, group_size) = match mode.as_str() {
            "affine" => (4, 64),
            "mxfp4" => (4, 32),
            "nvfp4" => (4, 16),
            "mxfp8" => (8, 32),
            _ => return None,
        };
        let is_affine = mode == "affine";
        let given =
            |key, default: u32| if config.has(key) { config.get(key) } else { Some(default) };
        let found = (given("bits", bits)?, given("group_size", group_size)?);
        let is_accepted = match found {
            (2..=6 | 8, 32 | 64 | 128) if is_affine => true,
            _ => !is_affine && found == (bits, group_size),
        };
        is_accepted.then_some(Self { bits: found.0, is_affine })
    }
}

/// The meaning of a `mode` that is `null`: none of MLX, until the configuration is recognized by something
/// else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NullMode {
    Invalid,
    Affine,
}

/// Reads an entry of the configuration as a module: `false`, or parameters of its own.
fn listed_module((module, value): (&str, &RawValue)) -> Option<(Box<str>, Option<MlxLayout>)> {
    if value.get() == "false" {
        return Some((module.into(), None));
    }
    let layout = MlxLayout::from_config(&read(value)?, NullMode::Invalid);
    Some((module.into(), layout))
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::{Case, check};
    use crate::formats::Dtype;

    /// A packed module with every other part.
    fn module(weight: &'static str, biases: &'static str) -> [Case<'static>; 4] {
        [
            ("m.weight", Dtype::U32, weight),
            ("m.scales", Dtype::BF16, "scale, not counted"),
            ("m.biases", Dtype::BF16, biases),
            ("m.bias", Dtype::BF16, "as stored"),
        ]
    }

    const ZERO: &str = "zero point, not counted";

    #[test]
    fn the_factor_follows_from_mode_and_width() {
        let cases = [
            (r#"{"bits":4,"group_size":64}"#, "unpacked ×8", ZERO),
            (r#"{"bits":2,"group_size":32}"#, "unpacked ×16", ZERO),
            (r#"{"bits":3}"#, "unpacked ×32/3", ZERO),
            (r#"{"bits":6}"#, "unpacked ×16/3", ZERO),
            (r#"{"bits":8,"mode":"Affine"}"#, "unpacked ×4", ZERO),
            (r#"{"mode":"mxfp4"}"#, "unpacked ×8", "as stored"),
            (r#"{"mode":"nvfp4","group_size":16}"#, "unpacked ×8", "as stored"),
            (r#"{"mode":"mxfp8","bits":8}"#, "unpacked ×4", "as stored"),
        ];
        for (parameters, weight, biases) in cases {
            for key in ["quantization", "quantization_config"] {
                check(&format!(r#"{{"{key}":{parameters}}}"#), &module(weight, biases));
                let nested = format!(r#"{{"text_config":{{"{key}":{parameters}}}}}"#);
                check(&nested, &module(weight, biases));
            }
        }
    }

    #[test]
    fn parameters_that_mlx_rejects_are_ignored() {
        for parameters in [
            r#"{"bits":1}"#,
            r#"{"bits":7}"#,
            r#"{"bits":4,"group_size":16}"#,
            r#"{"bits":4,"mode":1}"#,
            r#"{"bits":4,"mode":"none"}"#,
            r#"{"bits":8,"mode":"mxfp4"}"#,
            r#"{"bits":"4"}"#,
            r#"{"bits":4,"mode":null}"#,
            r#"{"m":{}}"#,
            "{}",
        ] {
            check(
                &format!(r#"{{"quantization":{parameters}}}"#),
                &[
                    ("m.weight", Dtype::U32, "as stored"),
                    ("m.scales", Dtype::BF16, "as stored"),
                    ("m.biases", Dtype::BF16, "as stored"),
                ],
            );
        }
    }

    #[test]
    fn only_complete_modules_are_packed() {
        let affine = r#"{"quantization":{"bits":4,"group_size":64}}"#;
        check(
            affine,
            &[
                ("a.weight", Dtype::U32, "as stored"),
                ("a.scales", Dtype::BF16, "as stored"),
                ("b.weight", Dtype::I32, "as stored"),
                ("b.scales", Dtype::BF16, "as stored"),
                ("b.biases", Dtype::BF16, "as stored"),
                ("c.weight", Dtype::U32, "unpacked ×8"),
                ("c.scales", Dtype::BF16, "scale, not counted"),
                ("c.biases", Dtype::BF16, "zero point, not counted"),
                ("c.lora.weight", Dtype::U32, "as stored"),
                ("weight", Dtype::U32, "as stored"),
            ],
        );
    }

    #[test]
    fn modules_have_parameters_of_their_own() {
        let config = r#"{"quantization":{"bits":4,"group_size":16,"mode":"affine","dense":false,
            "wide":{"bits":8,"group_size":64},"other":{"mode":"nvfp4"},"wrong":{"bits":9},"odd":true,"empty":{}}}"#;
        let mut cases = Vec::new();
        let modules = [
            ("dense", "as stored", "as stored", "as stored"),
            ("wide", "unpacked ×4", "scale, not counted", ZERO),
            ("other", "unpacked ×8", "scale, not counted", "as stored"),
            ("wrong", "as stored", "as stored", "as stored"),
            ("odd", "as stored", "as stored", "as stored"),
            ("empty", "unpacked ×8", "scale, not counted", ZERO),
            ("unlisted", "as stored", "as stored", "as stored"),
        ];
        let names = modules.map(|(module, ..)| {
            ["weight", "scales", "biases"].map(|suffix| format!("{module}.{suffix}"))
        });
        for (names, (_, weight, scales, biases)) in names.iter().zip(modules) {
            let [weights, scale, bias] = names;
            cases.push((weights.as_str(), Dtype::U32, weight));
            cases.push((scale.as_str(), Dtype::BF16, scales));
            cases.push((bias.as_str(), Dtype::BF16, biases));
        }
        check(config, &cases);
    }

    #[test]
    fn another_method_is_not_mistaken_for_mlx() {
        let config = r#"{"quantization":{"quant_method":"gptq","bits":2,"group_size":64},
            "quantization_config":{"quant_method":"gptq","bits":4}}"#;
        check(
            config,
            &[("m.qweight", Dtype::I32, "unpacked ×8"), ("m.weight", Dtype::U32, "as stored")],
        );
    }
}
