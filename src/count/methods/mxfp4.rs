//! MXFP4 as gpt-oss stores it: blocks of 4-bit floats in bytes, and a byte of exponent for each block.

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
    names: &["mxfp4"],
    name_is_optional: false,
    parts: PARTS,
    from_config: |section| Ok(Some(Arc::new(Mxfp4(section.unconverted()?)))),
};

// Only bytes: a learned `…_scales` of another dtype is a parameter.
const PARTS: &[PartName] =
    &[PartName::auxiliary("*_scales", AuxiliaryTensor::Scale, PartEvidence::Integers)];

/// Text in the names of packed tensors.
const BLOCKS: &str = "_blocks";

#[derive(Debug)]
struct Mxfp4(UnconvertedModules);

impl QuantizationMethod for Mxfp4 {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        if part.tensor.dtype != Dtype::U8 {
            return None;
        }
        if let Some(PartRole::Auxiliary(tensor)) = role(PARTS, part.name) {
            return Some(CountedAs::AuxiliaryTensor(tensor));
        }
        let is_packed = part.tensor_name.contains(BLOCKS) && !self.0.contains(part.tensor_name);
        Packing::times(2).filter(|_| is_packed).map(CountedAs::Unpacked)
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn blocks_are_packed_and_scales_are_auxiliary() {
        let config = r#"{"quantization_config":{"quant_method":"mxfp4",
            "modules_to_not_convert":["self_attn"]}}"#;
        check(
            config,
            &[
                ("h.0.mlp.experts.gate_up_proj_blocks", Dtype::U8, "unpacked ×2"),
                ("h.0.mlp.experts.gate_up_proj_scales", Dtype::U8, "scale, not counted"),
                ("h.0.mlp.experts.gate_up_proj_bias", Dtype::BF16, "as stored"),
                ("h.0.learned_scales", Dtype::BF16, "as stored"),
                ("h.0.mlp.experts.gate_up_proj_blocks.x", Dtype::I8, "as stored"),
                ("h.0.mlp.scales", Dtype::U8, "as stored"),
                ("h.0.self_attn.q_proj_blocks", Dtype::U8, "as stored"),
                ("h.0.self_attn.q_proj_scales", Dtype::U8, "scale, not counted"),
            ],
        );
    }
}
