//! FP8: one value in a byte, except for routed experts, which may be packed into integers.

use std::sync::Arc;

use super::{
    MethodDefinition, Module, PartEvidence, PartName, QUANTIZATION_CONFIG, QuantizationMethod,
    QuantizationSection,
};
use crate::count::json_object::JsonObject;
use crate::count::module_part::ModulePart;
use crate::count::packing::bits_of_format;
use crate::count::patterns::UnconvertedModules;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    config_keys: &[QUANTIZATION_CONFIG],
    names: &["fp8"],
    name_is_optional: false,
    parts: PARTS,
    from_config: |section| {
        let expert_bits = ExpertFormat::find(section).and_then(|format| format.bits);
        Ok(Some(Arc::new(Fp8 { expert_bits, unconverted: section.unconverted()? })))
    },
};

const PARTS: &[PartName] =
    &[PartName::auxiliary("weight_scale_inv", AuxiliaryTensor::Scale, PartEvidence::AnyMethod)];

#[derive(Debug)]
struct Fp8 {
    /// The bits of a weight of a routed expert; `None` if experts are not packed.
    expert_bits: Option<u32>,
    unconverted: UnconvertedModules,
}

impl QuantizationMethod for Fp8 {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        let packing = Packing::dense(&part.tensor.dtype, self.expert_bits?)?;
        // Other integers of these models are tables, such as `gate.tid2eid` of DeepSeek-V4.
        let is_packed =
            part.position.expert.is_some() && !self.unconverted.contains(part.tensor_name);
        is_packed.then_some(CountedAs::Unpacked(packing))
    }
}

/// The format of the experts that a configuration names.
struct ExpertFormat {
    /// The bits of a weight; `None` for a format that is not packed.
    bits: Option<u32>,
}

impl ExpertFormat {
    /// Finds the format. DeepSeek-V4 calls it `expert_dtype`, inside the section or outside of it;
    /// MiMo-V2.6 calls it `store_dtype`.
    fn find(section: &QuantizationSection<'_>) -> Option<Self> {
        let outside =
            || section.models.iter().find_map(|model| Self::from_field(model, "expert_dtype"));
        Self::from_field(section.fields, "expert_dtype")
            .or_else(outside)
            .or_else(|| Self::from_field(section.fields, "store_dtype"))
    }

    /// Reads a field. A value that is not a string is a format too, but not a packed one.
    fn from_field(fields: &JsonObject<'_>, key: &str) -> Option<Self> {
        let name = fields.has(key).then(|| fields.get::<String>(key))?;
        Some(Self { bits: name.and_then(|name| bits_of_format(&name)) })
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    const EXPERT: &str = "h.0.ffn.experts.3.w1.weight";

    #[test]
    fn only_routed_experts_are_packed() {
        let config = r#"{"expert_dtype":"fp4","quantization_config":{"quant_method":"fp8"}}"#;
        check(
            config,
            &[
                (EXPERT, Dtype::I8, "unpacked ×2"),
                (EXPERT, Dtype::U8, "unpacked ×2"),
                (EXPERT, Dtype::I32, "unpacked ×8"),
                (EXPERT, Dtype::F8_E4M3, "as stored"),
                ("h.0.ffn.shared_experts.w1.weight", Dtype::I8, "as stored"),
                ("h.0.ffn.experts.shared_experts.w1", Dtype::I8, "as stored"),
                ("h.0.ffn.gate.tid2eid", Dtype::I32, "as stored"),
                ("h.0.attn.wkv.weight", Dtype::I8, "as stored"),
                ("h.0.attn.wkv.weight_scale_inv", Dtype::F32, "scale, not counted"),
                ("h.0.attn.wkv.scale", Dtype::F8_E8M0, "scale, not counted"),
                ("h.0.attn.wkv.scale", Dtype::F32, "as stored"),
            ],
        );
    }

    #[test]
    fn the_format_of_the_experts_is_found_in_each_place() {
        let fp8 = |inside: &str, outside: &str| {
            format!(r#"{{{outside}"quantization_config":{{"quant_method":"fp8"{inside}}}}}"#)
        };
        let cases = [
            ("", "", "as stored"),
            (r#","expert_dtype":"fp4""#, "", "unpacked ×2"),
            (r#","expert_dtype":"fp8""#, r#""expert_dtype":"fp4","#, "as stored"),
            (r#","expert_dtype":4"#, r#""expert_dtype":"fp4","#, "as stored"),
            (r#","expert_dtype":null"#, r#""expert_dtype":"fp4","#, "unpacked ×2"),
            ("", r#""text_config":{"expert_dtype":"fp4"},"#, "unpacked ×2"),
            (r#","store_dtype":"mxfp4""#, "", "unpacked ×2"),
            (r#","store_dtype":"mxfp4""#, r#""expert_dtype":"fp8","#, "as stored"),
            (r#","store_dtype":"fp6""#, "", "as stored"),
            (r#","store_dtype":{}"#, "", "as stored"),
        ];
        for (inside, outside, expected) in cases {
            check(&fp8(inside, outside), &[(EXPERT, Dtype::U8, expected)]);
        }
        let nested = r#"{"text_config":{"quantization_config":{"quant_method":"fp8",
            "expert_dtype":"fp4"}}}"#;
        check(nested, &[(EXPERT, Dtype::I8, "unpacked ×2")]);
    }
}
