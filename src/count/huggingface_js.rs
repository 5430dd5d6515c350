//! The count of huggingface.js, which the Hub shows, for the kinds of quantized modules.
//!
//! It multiplies the elements of packed tensors by a factor, and skips auxiliary tensors by their names. Source:
//! `packages/hub/src/lib/parse-safetensors-metadata.ts` of version 2.17.5. Lists of unconverted modules are left out,
//! because a packed module is not in them.

use super::Packing;
use super::json_object::{JsonObject, read};
use super::part::PartId;
use crate::formats::Dtype;

/// The fields of a quantization section that huggingface.js reads.
#[derive(Clone, Debug, Default)]
pub(super) struct HuggingFaceJsRules {
    method: Method,
    bits: Option<u64>,
    is_4bit: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Method {
    /// No quantization section.
    #[default]
    None,
    /// A section without `quant_method`, with the fields of MLX.
    Mlx,
    Mxfp4,
    GptqOrAwq,
    /// The widths of all groups; `None` if they differ, or their format is not a packed one.
    CompressedTensors {
        bits: Option<u64>,
        is_mixed: bool,
    },
    /// The width of packed experts.
    Fp8 {
        expert_bits: Option<u64>,
    },
    Bitsandbytes,
    Other,
}

/// Names of tensors that are skipped in any quantized model.
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
    pub(super) fn from_config(model: &JsonObject<'_>) -> Self {
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
            None if section.raw("group_size").is_some() || section.raw("mode").is_some() => {
                Method::Mlx
            }
            Some("mxfp4") => Method::Mxfp4,
            Some("gptq" | "awq") => Method::GptqOrAwq,
            Some("compressed-tensors") => compressed_tensors(section),
            Some("fp8") => {
                let format = section.get::<String>("expert_dtype");
                let format = format.or_else(|| model.get("expert_dtype"));
                let format = format.or_else(|| section.get("store_dtype"));
                Method::Fp8 { expert_bits: format.and_then(|format| bits_of_format(&format)) }
            }
            Some("bitsandbytes") => Method::Bitsandbytes,
            _ => Method::Other,
        };
        let is_4bit = section.get("load_in_4bit") == Some(true);
        Self { method, bits: section.get("bits"), is_4bit }
    }

    /// Returns the parameters of modules with the same parts; `None` if the configuration does not show them.
    pub(super) fn module_parameters(
        &self,
        packing: &Packing,
        parts: &[(PartId, Dtype)],
        elements: &[u64],
    ) -> Option<u64> {
        let rules = match (self.method, packing.bits) {
            (Method::Mlx, Some(bits)) => &Self { bits: Some(bits.into()), ..self.clone() },
            _ => self,
        };
        let mut sum = 0_u64;
        for ((part, dtype), &elements) in parts.iter().zip(elements) {
            sum = sum.checked_add(rules.parameters(part.name(), dtype, elements)?)?;
        }
        Some(sum)
    }

    /// Returns the parameters that a part of some modules counts for; `None` if the configuration does not show it.
    fn parameters(&self, part: &str, dtype: &Dtype, elements: u64) -> Option<u64> {
        if self.is_skipped(part, dtype) {
            return Some(0);
        }
        let (weights, words) = self.factor(part, dtype)?;
        u64::try_from(u128::from(elements) * u128::from(weights) / u128::from(words)).ok()
    }

    fn is_skipped(&self, part: &str, dtype: &Dtype) -> bool {
        let name = part.rsplit('.').next().unwrap_or(part);
        if dtype.is_exponent() {
            return true;
        }
        self.method != Method::None && SKIPPED.contains(&name)
            || match self.method {
                Method::Mlx => matches!(name, "scales" | "biases"),
                Method::Mxfp4 => *dtype == Dtype::U8 && name.ends_with("_scales"),
                Method::Bitsandbytes => {
                    matches!(name, "absmax" | "quant_map" | "nested_absmax" | "nested_quant_map")
                        || name.starts_with("bitsandbytes__")
                }
                Method::GptqOrAwq => matches!(name, "qzeros" | "g_idx" | "scales"),
                _ => false,
            }
    }

    /// Returns the weights in a number of elements.
    fn factor(&self, part: &str, dtype: &Dtype) -> Option<(u64, u64)> {
        let is_u8 = *dtype == Dtype::U8;
        let has_4bit_bytes = is_u8 && (self.is_4bit || self.bits == Some(4));
        Some(match self.method {
            Method::Mlx if part == "weight" && *dtype == Dtype::U32 => packed(dtype, self.bits),
            Method::Mxfp4 if is_u8 && part.contains("_blocks") => (2, 1),
            Method::GptqOrAwq if part == "qweight" => {
                (32_u64.checked_div(self.bits.unwrap_or(4)).unwrap_or(8).max(1), 1)
            }
            Method::GptqOrAwq if is_u8 && matches!(self.bits, Some(2 | 4)) => {
                packed(dtype, self.bits)
            }
            Method::CompressedTensors { is_mixed: true, .. } => return None,
            Method::CompressedTensors { bits, .. } => packed(dtype, bits),
            Method::Fp8 { expert_bits } => packed(dtype, expert_bits),
            Method::Bitsandbytes if is_u8 && self.is_4bit => (2, 1),
            Method::Other if has_4bit_bytes => (2, 1),
            _ => (1, 1),
        })
    }
}

fn compressed_tensors(section: &JsonObject<'_>) -> Method {
    let groups = section.get::<JsonObject>("config_groups");
    let groups: Vec<_> = groups.iter().flat_map(JsonObject::entries).collect();
    let groups = groups.iter().filter_map(|(_, group)| read::<JsonObject>(group));
    let widths = groups.map(|group| {
        let format = group.get("format").or_else(|| section.get::<String>("format"));
        let format = format.filter(|format| format.ends_with("pack-quantized"))?;
        let listed = group.get::<JsonObject>("weights").and_then(|weights| weights.get("num_bits"));
        listed.or_else(|| bits_of_format(&format)).or(Some(4))
    });
    let widths: std::collections::BTreeSet<_> = widths.collect();
    Method::CompressedTensors {
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

/// Returns the weights of some bits in a number of integers.
fn packed(dtype: &Dtype, bits: Option<u64>) -> (u64, u64) {
    let container = super::module::container_bits(dtype).filter(|&container| container <= 32);
    match (container, bits) {
        (Some(container), Some(bits)) if (1..container).contains(&bits) => (container, bits),
        _ => (1, 1),
    }
}
