//! GPTQ and AWQ: weights in `qweight`, packed into elements of 32 bits.

use std::sync::Arc;

use super::{
    MethodDefinition, Module, PartEvidence, PartName, PartRole, QUANTIZATION_CONFIG,
    QuantizationMethod, role,
};
use crate::count::module_part::ModulePart;
use crate::count::patterns::UnconvertedModules;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};
use crate::formats::Dtype;

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    config_keys: &[QUANTIZATION_CONFIG],
    names: &["gptq", "awq"],
    name_is_optional: false,
    parts: PARTS,
    from_config: |section| {
        let bits = section.fields.get("bits").filter(|&bits| bits > 0);
        Ok(Some(Arc::new(Gptq { bits, unconverted: section.unconverted()? })))
    },
};

const PARTS: &[PartName] = &[
    PartName::packed("qweight", PartEvidence::Name),
    PartName::auxiliary("scales", AuxiliaryTensor::Scale, PartEvidence::Name),
    PartName::auxiliary("qzeros", AuxiliaryTensor::ZeroPoint, PartEvidence::Name),
    PartName::auxiliary("g_idx", AuxiliaryTensor::ColumnOrder, PartEvidence::Name),
];

#[derive(Debug)]
struct Gptq {
    bits: Option<u32>,
    unconverted: UnconvertedModules,
}

impl QuantizationMethod for Gptq {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        let counted_as = match (role(PARTS, part.name), self.bits) {
            (Some(PartRole::Packed), bits) => {
                CountedAs::Unpacked(Packing::times(32 / bits.unwrap_or(4))?)
            }
            (Some(PartRole::Auxiliary(tensor)), _) => CountedAs::AuxiliaryTensor(tensor),
            (None, Some(bits @ (2 | 4))) if part.tensor.dtype == Dtype::U8 => {
                CountedAs::Unpacked(Packing::dense(&part.tensor.dtype, bits)?)
            }
            _ => return None,
        };
        (!self.unconverted.contains(part.tensor_name)).then_some(counted_as)
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn parts_of_a_module_are_recognized() {
        let config = r#"{"quantization_config":{"quant_method":"GPTQ","bits":4,
            "modules_to_not_convert":["lm_head"]}}"#;
        check(
            config,
            &[
                ("h.0.q_proj.qweight", Dtype::I32, "unpacked ×8"),
                ("h.0.q_proj.qzeros", Dtype::I32, "zero point, not counted"),
                ("h.0.q_proj.g_idx", Dtype::I32, "column order, not counted"),
                ("h.0.q_proj.scales", Dtype::F16, "scale, not counted"),
                ("h.0.q_proj.weight_scale", Dtype::F16, "scale, not counted"),
                ("h.0.q_proj.bias", Dtype::F16, "as stored"),
                ("h.0.q_proj.weight", Dtype::U8, "unpacked ×2"),
                ("h.0.q_proj.weight", Dtype::I32, "as stored"),
                ("lm_head.qweight", Dtype::I32, "as stored"),
                ("lm_head.scales", Dtype::F16, "as stored"),
                ("lm_head.weight_scale", Dtype::F16, "scale, not counted"),
            ],
        );
    }

    #[test]
    fn the_factor_follows_from_the_width() {
        let cases = [
            (r#""bits":4"#, "unpacked ×8", "unpacked ×2"),
            (r#""bits":2"#, "unpacked ×16", "unpacked ×4"),
            (r#""bits":3"#, "unpacked ×10", "as stored"),
            (r#""bits":8"#, "unpacked ×4", "as stored"),
            (r#""bits":32"#, "as stored", "as stored"),
            (r#""bits":64"#, "as stored", "as stored"),
            (r#""bits":0"#, "unpacked ×8", "as stored"),
            (r#""bits":-1"#, "unpacked ×8", "as stored"),
            (r#""bits":null"#, "unpacked ×8", "as stored"),
        ];
        for (bits, qweight, byte) in cases {
            let config = format!(r#"{{"quantization_config":{{"quant_method":"awq",{bits}}}}}"#);
            check(&config, &[("q.qweight", Dtype::I32, qweight), ("q.w", Dtype::U8, byte)]);
        }
    }
}
