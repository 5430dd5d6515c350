//! Reproduces the count of huggingface.js, which the Hub shows, for quantized modules.
//!
//! huggingface.js multiplies the elements of packed tensors by a factor, and skips auxiliary tensors by name. Source:
//! `packages/hub/src/lib/parse-safetensors-metadata.ts` of version 2.17.5. Its lists of unconverted modules are
//! ignored here, because packed modules are not in them.

use std::collections::BTreeSet;

use crate::base::json_object::{JsonObject, read};
use crate::count::Packing;
use crate::count::module::container_bits;
use crate::formats::Dtype;

/// The fields of a quantization section that huggingface.js reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct HuggingFaceJsRules {
    method: JsMethod,
    bits: Option<u64>,
    is_4bit: bool,
}

/// The quantization method of a section, as far as huggingface.js distinguishes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JsMethod {
    /// No quantization section.
    #[default]
    None,
    /// A section without `quant_method` but with MLX fields.
    Mlx,
    Mxfp4,
    GptqOrAwq,
    /// The common bit width of all groups; `None` if the widths differ or the format is not packed.
    CompressedTensors {
        bits: Option<u64>,
        is_mixed: bool,
    },
    /// The bit width of packed experts.
    Fp8 {
        expert_bits: Option<u64>,
    },
    Bitsandbytes,
    Other,
}

/// Fields that identify a section without `quant_method` as MLX.
const MLX_FIELDS: [&str; 3] = ["bits", "group_size", "mode"];

/// Tensors that are skipped in every quantized model.
const SKIPPED: [&str; 11] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "zero_point",
    "weight_shape",
    "weight_g_idx",
];

impl HuggingFaceJsRules {
    pub(crate) fn from_config(model: &JsonObject<'_>) -> Self {
        let section = |model: &JsonObject<'_>| {
            let mlx = model.get::<JsonObject>("quantization");
            let mlx = mlx.filter(|section| section.raw("quant_method").is_none());
            mlx.or_else(|| model.get("quantization_config"))
                .map(|found| Self::from_section(&found, model))
        };
        let inner = || section(&model.get::<JsonObject>("text_config")?);
        section(model).or_else(inner).unwrap_or_default()
    }

    fn from_section(section: &JsonObject<'_>, model: &JsonObject<'_>) -> Self {
        let method = section.get::<String>("quant_method").map(|name| name.to_lowercase());
        let method = match method.as_deref() {
            None if MLX_FIELDS.iter().any(|key| section.raw(key).is_some()) => JsMethod::Mlx,
            Some("mxfp4") => JsMethod::Mxfp4,
            Some("gptq" | "awq") => JsMethod::GptqOrAwq,
            Some("compressed-tensors") => compressed_tensors(section),
            Some("fp8") => {
                let format = section.get::<String>("expert_dtype");
                let format = format.or_else(|| model.get("expert_dtype"));
                let format = format.or_else(|| section.get("store_dtype"));
                JsMethod::Fp8 { expert_bits: format.and_then(|format| bits_of_format(&format)) }
            }
            Some("bitsandbytes") => JsMethod::Bitsandbytes,
            _ => JsMethod::Other,
        };
        let is_4bit = section.get("load_in_4bit") == Some(true);
        Self { method, bits: section.get("bits"), is_4bit }
    }

    /// Returns the count for modules with equal components; `None` if the configuration does not determine it.
    pub(crate) fn count(
        &self,
        packing: &Packing,
        components: &[(&str, Dtype)],
        elements: &[u64],
    ) -> Option<u64> {
        let rules = match (self.method, packing.bits) {
            // A width of 1 makes the whole section invalid.
            (JsMethod::Mlx, Some(1)) => &Self::default(),
            (JsMethod::Mlx, Some(bits)) => &Self { bits: Some(bits.into()), ..self.clone() },
            _ => self,
        };
        let mut counts = components
            .iter()
            .zip(elements)
            .map(|((name, dtype), &elements)| rules.component_count(name, dtype, elements));
        counts.try_fold(0_u64, |sum, count| sum.checked_add(count?))
    }

    /// Returns the count for one component; `None` if the configuration does not determine it.
    fn component_count(&self, component: &str, dtype: &Dtype, elements: u64) -> Option<u64> {
        if self.is_skipped(component, dtype) {
            return Some(0);
        }
        let (weights, words) = self.factor(component, dtype)?;
        u64::try_from(u128::from(elements) * u128::from(weights) / u128::from(words)).ok()
    }

    fn is_skipped(&self, component: &str, dtype: &Dtype) -> bool {
        let name = component.rsplit('.').next().unwrap_or(component);
        if dtype.is_exponent() {
            return true;
        }
        self.method != JsMethod::None && SKIPPED.contains(&name)
            || match self.method {
                JsMethod::Mlx => matches!(name, "scales" | "biases"),
                JsMethod::Mxfp4 => *dtype == Dtype::U8 && name.ends_with("_scales"),
                JsMethod::Bitsandbytes => {
                    matches!(name, "absmax" | "quant_map" | "nested_absmax" | "nested_quant_map")
                        || name.starts_with("bitsandbytes__")
                }
                JsMethod::GptqOrAwq => matches!(name, "qzeros" | "g_idx" | "scales"),
                _ => false,
            }
    }

    /// Returns a ratio: the number of weights, and the number of elements that store them.
    fn factor(&self, component: &str, dtype: &Dtype) -> Option<(u64, u64)> {
        let is_u8 = *dtype == Dtype::U8;
        let has_4bit_bytes = is_u8 && (self.is_4bit || self.bits == Some(4));
        Some(match self.method {
            JsMethod::Mlx if component == "weight" && *dtype == Dtype::U32 => {
                packed(dtype, self.bits)
            }
            JsMethod::Mxfp4 if is_u8 && component.contains("_blocks") => (2, 1),
            JsMethod::GptqOrAwq if component == "qweight" => {
                (32_u64.checked_div(self.bits.unwrap_or(4)).unwrap_or(8).max(1), 1)
            }
            JsMethod::GptqOrAwq if is_u8 && matches!(self.bits, Some(2 | 4)) => {
                packed(dtype, self.bits)
            }
            JsMethod::CompressedTensors { is_mixed: true, .. } => return None,
            JsMethod::CompressedTensors { bits, .. } => packed(dtype, bits),
            JsMethod::Fp8 { expert_bits } => packed(dtype, expert_bits),
            JsMethod::Bitsandbytes if is_u8 && self.is_4bit => (2, 1),
            JsMethod::Other if has_4bit_bytes => (2, 1),
            _ => (1, 1),
        })
    }
}

fn compressed_tensors(section: &JsonObject<'_>) -> JsMethod {
    let groups = section.get::<JsonObject>("config_groups");
    let groups: Vec<_> = groups.iter().flat_map(JsonObject::entries).collect();
    let groups = groups.iter().filter_map(|(_, group)| read::<JsonObject>(group));
    let widths = groups.map(|group| {
        let format = group.get("format").or_else(|| section.get::<String>("format"));
        let format = format.filter(|format| format.ends_with("pack-quantized"))?;
        let listed = group.get::<JsonObject>("weights").and_then(|weights| weights.get("num_bits"));
        listed.or_else(|| bits_of_format(&format)).or(Some(4))
    });
    let widths: BTreeSet<_> = widths.collect();
    JsMethod::CompressedTensors {
        bits: widths.first().copied().flatten(),
        is_mixed: widths.len() > 1,
    }
}

fn bits_of_format(format: &str) -> Option<u64> {
    let format = format.to_lowercase();
    match () {
        () if ["fp4", "int4", "nf4"].iter().any(|name| format.contains(name)) => Some(4),
        () if format.contains("int2") => Some(2),
        () => None,
    }
}

/// Returns a ratio: the number of weights of `bits` bits, and the number of integers that store them.
fn packed(dtype: &Dtype, bits: Option<u64>) -> (u64, u64) {
    let container = container_bits(dtype).filter(|&container| container <= 32);
    match (container, bits) {
        (Some(container), Some(bits)) if (1..container).contains(&bits) => (container, bits),
        _ => (1, 1),
    }
}

/// The results of `parseSafetensorsMetadata` in `@huggingface/hub` 2.17.5 for single modules.
#[cfg(test)]
mod tests {
    use super::*;
    use Dtype::{BF16, F8_E4M3, F8_E8M0, F16, F32, I8, I32, I64, U8, U32};

    /// A component with its dtype and number of elements.
    type Component<'a> = (&'a str, Dtype, u64);
    /// The `quantization_config` section, the components of a module, and the expected count.
    type Case<'a> = (&'a str, &'a [Component<'a>], Option<u64>);

    const QWEIGHT: &[Component<'_>] =
        &[("qweight", I32, 128), ("qzeros", I32, 2), ("scales", F16, 16), ("g_idx", I32, 64)];
    const WORDS: &[Component<'_>] = &[
        ("weight_packed", I32, 96),
        ("weight_scale", BF16, 16),
        ("weight_shape", I64, 2),
        ("weight_zero_point", I32, 2),
    ];
    const BYTES: &[Component<'_>] = &[("weight", U8, 64)];
    const SIGNED: &[Component<'_>] = &[("weight", I8, 64)];

    fn count(config: &str, packing: Packing, components: &[Component<'_>]) -> Option<u64> {
        let rules = HuggingFaceJsRules::from_config(&serde_json::from_str(config).unwrap());
        let elements: Vec<_> = components.iter().map(|(.., elements)| *elements).collect();
        let names: Vec<_> =
            components.iter().map(|(name, dtype, _)| (*name, dtype.clone())).collect();
        rules.count(&packing, &names, &elements)
    }

    fn check(cases: &[Case<'_>]) {
        for (section, components, expected) in cases {
            let config = format!(r#"{{"quantization_config":{section}}}"#);
            let found = count(&config, Packing::without_bits("any", "any"), components);
            assert_eq!(found, *expected, "{section} {components:?}");
        }
    }

    #[test]
    fn without_quantization_only_exponents_are_skipped() {
        check(&[
            ("null", QWEIGHT, Some(128 + 2 + 16 + 64)),
            ("null", &[("weight", F8_E4M3, 8), ("weight_scale", F32, 4)], Some(12)),
            ("null", &[("weight", U8, 8), ("weight_scale", F8_E8M0, 4)], Some(8)),
            ("null", &[("weight", U8, u64::MAX), ("scales", F16, 1)], None),
        ]);
    }

    /// A word holds as many whole weights as fit.
    #[test]
    fn a_word_of_gptq_has_whole_weights() {
        check(&[
            (r#"{"quant_method":"GPTQ","bits":4}"#, QWEIGHT, Some(1024)),
            (r#"{"quant_method":"awq","bits":4}"#, QWEIGHT, Some(1024)),
            (r#"{"quant_method":"gptq","bits":3}"#, QWEIGHT, Some(1280)),
            (r#"{"quant_method":"gptq","bits":64}"#, QWEIGHT, Some(128)),
            (r#"{"quant_method":"gptq","bits":0}"#, QWEIGHT, Some(1024)),
            (r#"{"quant_method":"gptq"}"#, QWEIGHT, Some(1024)),
            (r#"{"quant_method":"gptq","bits":4}"#, BYTES, Some(128)),
            (r#"{"quant_method":"gptq","bits":2}"#, BYTES, Some(256)),
            (r#"{"quant_method":"gptq","bits":8}"#, BYTES, Some(64)),
            (r#"{"quant_method":"gptq","bits":4}"#, SIGNED, Some(64)),
        ]);
    }

    #[test]
    fn weights_cross_the_words_of_compressed_tensors() {
        let section = |groups: &str| {
            let method = r#""quant_method":"compressed-tensors","format":"pack-quantized""#;
            format!(r#"{{{method},"config_groups":{{{groups}}}}}"#)
        };
        let bits = |bits: u64| section(&format!(r#""a":{{"weights":{{"num_bits":{bits}}}}}"#));
        let format = |format: &str| section(&format!(r#""a":{{"format":"{format}"}}"#));
        check(&[
            (&bits(4), WORDS, Some(768)),
            (&bits(3), WORDS, Some(1024)),
            (&bits(32), WORDS, Some(96)),
            (&bits(4), &[("weight_packed", I64, 8)], Some(8)),
            (&section(r#""a":{}"#), WORDS, Some(768)),
            (&format("mxfp4-pack-quantized"), BYTES, Some(128)),
            (&format("int2-pack-quantized"), BYTES, Some(256)),
            (&format("float-quantized"), BYTES, Some(64)),
            // Names choose between the widths, but the count covers all names.
            (
                &section(r#""a":{"weights":{"num_bits":4}},"b":{"weights":{"num_bits":8}}"#),
                WORDS,
                None,
            ),
        ]);
    }

    #[test]
    fn four_bit_formats_store_two_weights_per_byte() {
        let fp8: &[Component<'_>] = &[("weight", F8_E4M3, 64), ("weight_scale_inv", F32, 4)];
        let blocks: &[Component<'_>] = &[("_blocks", U8, 256), ("_scales", U8, 16)];
        let learned: &[Component<'_>] = &[("_blocks", I8, 256), ("_scales", BF16, 16)];
        check(&[
            (r#"{"quant_method":"fp8","expert_dtype":"fp4"}"#, SIGNED, Some(128)),
            (r#"{"quant_method":"fp8","store_dtype":"mxfp4"}"#, SIGNED, Some(128)),
            (r#"{"quant_method":"fp8"}"#, SIGNED, Some(64)),
            (r#"{"quant_method":"fp8","expert_dtype":"fp4"}"#, fp8, Some(64)),
            (r#"{"quant_method":"mxfp4"}"#, blocks, Some(512)),
            (r#"{"quant_method":"mxfp4"}"#, learned, Some(272)),
            (r#"{"quant_method":"hqq","bits":4}"#, BYTES, Some(128)),
            (r#"{"quant_method":"hqq","load_in_4bit":true}"#, BYTES, Some(128)),
            (r#"{"quant_method":"hqq","bits":8}"#, BYTES, Some(64)),
            (r#"{"quant_method":"hqq","bits":4}"#, SIGNED, Some(64)),
            (r#"{"quant_method":"hqq","bits":4}"#, &[("weight", U8, 1 << 63)], None),
        ]);
    }

    #[test]
    fn bitsandbytes_state_is_skipped() {
        let components: &[Component<'_>] = &[
            ("weight", U8, 64),
            ("weight.absmax", F32, 2),
            ("weight.quant_map", F32, 16),
            ("weight.nested_absmax", F32, 1),
            ("weight.nested_quant_map", F32, 256),
            ("weight.quant_state.bitsandbytes__nf4", U8, 70),
        ];
        let four_bits = r#"{"quant_method":"bitsandbytes","load_in_4bit":true}"#;
        check(&[
            (four_bits, components, Some(128)),
            (four_bits, &[("weight", BF16, 64)], Some(64)),
            (r#"{"quant_method":"bitsandbytes","load_in_8bit":true}"#, components, Some(64)),
        ]);
    }

    /// The MLX configuration does not name its method, and each module may have its own width.
    #[test]
    fn mlx_modules_are_counted_by_their_bit_width() {
        let components = [("weight", U32, 64), ("scales", BF16, 8), ("biases", BF16, 8)];
        for field in [r#""bits":4"#, r#""group_size":64"#, r#""mode":"affine""#] {
            let config = format!(r#"{{"quantization":{{{field}}}}}"#);
            for (bits, expected) in [(4, 512), (8, 256)] {
                let packing = Packing::new("mlx", bits, "any");
                assert_eq!(count(&config, packing, &components), Some(expected), "{config}");
            }
        }
    }

    #[test]
    fn the_section_is_found_in_each_place() {
        let section = r#"{"quant_method":"hqq","bits":4}"#;
        let cases = [
            (format!(r#"{{"text_config":{{"quantization_config":{section}}}}}"#), BYTES, 128),
            (
                format!(
                    r#"{{"quantization":{{"quant_method":"x"}},"quantization_config":{section}}}"#
                ),
                BYTES,
                128,
            ),
            (
                r#"{"quantization_config":{"quant_method":"fp8"},"expert_dtype":"fp4"}"#.to_owned(),
                SIGNED,
                128,
            ),
            (r#"{"quantization_config":{"bits":4}}"#.to_owned(), &[("weight", U32, 8)][..], 64),
        ];
        for (config, components, expected) in cases {
            let packing = Packing::new("any", 4, "any");
            assert_eq!(count(&config, packing, components), Some(expected), "{config}");
        }
    }
}
