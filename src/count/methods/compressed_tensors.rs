//! compressed-tensors: any integer may hold packed weights, in groups of modules with different widths.

use std::sync::Arc;

use super::{
    MethodDefinition, Module, PartEvidence, PartName, QUANTIZATION_CONFIG, QuantizationMethod,
    QuantizationSection,
};
use crate::count::json_object::{JsonObject, read};
use crate::count::module_part::ModulePart;
use crate::count::packing::{bits_of_format, container_bits};
use crate::count::patterns::{MOST_WILDCARDS, ModulePatterns, UnconvertedModules, weight_module};
use crate::count::{AuxiliaryTensor, ConfigError, CountedAs, Packing};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    config_keys: &[QUANTIZATION_CONFIG],
    names: &["compressed-tensors"],
    name_is_optional: false,
    parts: PARTS,
    from_config: |section| Ok(Some(Arc::new(CompressedTensors::from_config(section)?))),
};

const PARTS: &[PartName] = &[
    PartName::auxiliary("weight_scale", AuxiliaryTensor::Scale, PartEvidence::AnyMethod),
    PartName::auxiliary("weight_global_scale", AuxiliaryTensor::Scale, PartEvidence::AnyMethod),
    PartName::auxiliary("weight_zero_point", AuxiliaryTensor::ZeroPoint, PartEvidence::AnyMethod),
    PartName::auxiliary("weight_shape", AuxiliaryTensor::Shape, PartEvidence::AnyMethod),
    PartName::auxiliary("weight_g_idx", AuxiliaryTensor::ColumnOrder, PartEvidence::AnyMethod),
    PartName::auxiliary("input_scale", AuxiliaryTensor::Scale, PartEvidence::AnyMethod),
    PartName::auxiliary("input_global_scale", AuxiliaryTensor::Scale, PartEvidence::AnyMethod),
    PartName::auxiliary("input_zero_point", AuxiliaryTensor::ZeroPoint, PartEvidence::AnyMethod),
];

#[derive(Debug)]
struct CompressedTensors {
    groups: Vec<ModuleGroup>,
    /// The bits of a weight in modules of no group; `None` if they are not packed.
    other_bits: Option<u32>,
    unconverted: UnconvertedModules,
}

/// A group of modules.
#[derive(Debug)]
struct ModuleGroup {
    targets: ModulePatterns,
    /// The bits of a weight; `None` if the modules are not packed.
    bits: Option<u32>,
}

impl CompressedTensors {
    fn from_config(section: &QuantizationSection<'_>) -> Result<Self, ConfigError> {
        let config = section.fields;
        let groups = config.get::<JsonObject>("config_groups");
        let groups: Vec<_> = groups
            .iter()
            .flat_map(JsonObject::entries)
            .filter_map(|(_, group)| read::<JsonObject>(group))
            .map(|group| (declared_bits(&group), group))
            .collect();
        let first_bits = groups.iter().find_map(|(bits, _)| bits.filter(|&bits| bits > 0));
        let packed_bits = |declared: Option<u32>, format: Option<String>| {
            let format = format.or_else(|| config.get("format"))?;
            let is_packed = format.to_lowercase().ends_with("pack-quantized");
            let bits = declared.or(first_bits).or_else(|| bits_of_format(&format));
            is_packed.then(|| bits.unwrap_or(4))
        };
        // Every packed tensor is compared with every group, so a group costs as much as a pattern.
        let mut wildcards = groups.len();
        let group = |(declared, group): &(Option<u32>, JsonObject<'_>)| {
            let targets = ModulePatterns::new(group.strings("targets"))?;
            wildcards += targets.wildcards();
            Ok(ModuleGroup { targets, bits: packed_bits(*declared, group.get("format")) })
        };
        let groups = groups.iter().map(group).collect::<Result<_, _>>()?;
        if wildcards > MOST_WILDCARDS {
            return Err(ConfigError::TooManyPatterns { limit: MOST_WILDCARDS });
        }
        let other_bits = packed_bits(None, None);
        Ok(Self { groups, other_bits, unconverted: section.unconverted()? })
    }
}

impl QuantizationMethod for CompressedTensors {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        container_bits(&part.tensor.dtype)?;
        let module = weight_module(part.tensor_name);
        let group = self.groups.iter().find(|group| group.targets.match_module(module));
        let bits = group.map_or(self.other_bits, |group| group.bits)?;
        let packing = Packing::dense(&part.tensor.dtype, bits)?;
        (!self.unconverted.contains(part.tensor_name)).then_some(CountedAs::Unpacked(packing))
    }
}

/// Reads `num_bits` of a group. A negative number means 0, which is not packed.
fn declared_bits(group: &JsonObject<'_>) -> Option<u32> {
    let bits: i64 = group.get::<JsonObject>("weights")?.get("num_bits")?;
    Some(bits.clamp(0, i64::from(u32::MAX)).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::count::Configs;
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    fn config(rest: &str) -> String {
        format!(r#"{{"quantization_config":{{"quant_method":"compressed-tensors",{rest}}}}}"#)
    }

    #[test]
    fn the_factor_follows_from_width_and_dtype() {
        let packed = "m.weight_packed";
        let cases = [
            (4, Dtype::I32, "unpacked ×8"),
            (4, Dtype::U8, "unpacked ×2"),
            (2, Dtype::I32, "unpacked ×16"),
            (3, Dtype::I32, "unpacked ×32/3"),
            (8, Dtype::I32, "unpacked ×4"),
            (8, Dtype::I8, "as stored"),
            (0, Dtype::I32, "as stored"),
            (-4, Dtype::I32, "as stored"),
            (4, Dtype::BF16, "as stored"),
            (4, Dtype::I64, "as stored"),
        ];
        for (bits, dtype, expected) in cases {
            let groups = format!(r#""g":{{"targets":["m"],"weights":{{"num_bits":{bits}}}}}"#);
            let config =
                config(&format!(r#""format":"pack-quantized","config_groups":{{{groups}}}"#));
            check(&config, &[(packed, dtype, expected)]);
        }
    }

    #[test]
    fn the_format_decides_whether_weights_are_packed() {
        let cases = [
            (r#""format":"mxfp4-pack-quantized""#, "unpacked ×2"),
            (r#""format":"NVFP4-Pack-Quantized""#, "unpacked ×2"),
            (r#""format":"pack-quantized""#, "unpacked ×2"),
            (r#""format":"int-quantized""#, "as stored"),
            (r#""format":"int2-pack-quantized""#, "unpacked ×4"),
            (r#""format":7"#, "as stored"),
            (r#""format":null"#, "as stored"),
            (r#""config_groups":{"g":{"targets":["m"],"format":"pack-quantized"}}"#, "unpacked ×2"),
            (r#""config_groups":{"g":{"targets":["n"],"format":"pack-quantized"}}"#, "as stored"),
        ];
        for (rest, expected) in cases {
            check(&config(rest), &[("m.weight_packed", Dtype::U8, expected)]);
        }
    }

    #[test]
    fn too_many_groups_are_an_error() {
        for (targets, most) in [("", 256), (r#""re:a","re:b""#, 85)] {
            for (groups, is_ok) in [(most, true), (most + 1, false)] {
                let group = |n| format!(r#""g{n}":{{"targets":[{targets}]}}"#);
                let groups = (0..groups).map(group).collect::<Vec<_>>().join(",");
                let config = config(&format!(r#""config_groups":{{{groups}}}"#));
                assert_eq!(Configs::from_config_json(config.as_bytes()).is_ok(), is_ok);
            }
        }
    }

    #[test]
    fn the_first_group_that_names_a_module_applies() {
        let config = config(
            r#""format":"pack-quantized","ignore":["re:.*router.*","lm_head"],"config_groups":{
                "z":{"targets":["re:.*mlp.*"],"weights":{"num_bits":4}},
                "a":{"targets":["re:.*attn.*","re:.*mlp.*"],"weights":{"num_bits":8}},
                "b":{"targets":["q"],"weights":null},
                "c":{"targets":["d"],"format":"dense","weights":{"num_bits":2}}}"#,
        );
        check(
            &config,
            &[
                ("h.mlp.weight_packed", Dtype::I32, "unpacked ×8"),
                ("h.attn.weight_packed", Dtype::I32, "unpacked ×4"),
                ("q.weight_packed", Dtype::I32, "unpacked ×8"),
                ("d.weight_packed", Dtype::I32, "as stored"),
                ("other.weight_packed", Dtype::I32, "unpacked ×8"),
                ("h.router.weight_packed", Dtype::I32, "as stored"),
                ("lm_head.weight_packed", Dtype::I32, "as stored"),
                ("lm_head.weight_scale", Dtype::BF16, "scale, not counted"),
                ("h.mlp.weight_shape", Dtype::I64, "shape of a packed weight, not counted"),
                ("h.mlp.weight_g_idx", Dtype::I32, "column order, not counted"),
                ("h.mlp.weight_zero_point", Dtype::I32, "zero point, not counted"),
                ("h.mlp.input_global_scale", Dtype::F32, "scale, not counted"),
            ],
        );
    }
}
