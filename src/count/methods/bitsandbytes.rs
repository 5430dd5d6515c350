//! bitsandbytes: two 4-bit values in a byte.

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
    names: &["bitsandbytes"],
    name_is_optional: false,
    parts: PARTS,
    from_config: |section| {
        let is_4bit = section.fields.get("load_in_4bit").unwrap_or(false);
        let unconverted = section.unconverted()?;
        Ok(Some(Arc::new(Bitsandbytes(FourBitBytes { is_4bit, unconverted }))))
    },
};

const PARTS: &[PartName] = &[
    PartName::auxiliary("absmax", AuxiliaryTensor::Scale, PartEvidence::Name),
    PartName::auxiliary("nested_absmax", AuxiliaryTensor::Scale, PartEvidence::Name),
    PartName::auxiliary("quant_map", AuxiliaryTensor::LookupTable, PartEvidence::Name),
    PartName::auxiliary("nested_quant_map", AuxiliaryTensor::LookupTable, PartEvidence::Name),
    // `quant_state.bitsandbytes__nf4`, `…__fp4`.
    PartName::auxiliary("bitsandbytes__*", AuxiliaryTensor::State, PartEvidence::Name),
];

#[derive(Debug)]
struct Bitsandbytes(FourBitBytes);

impl QuantizationMethod for Bitsandbytes {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        match role(PARTS, part.name) {
            Some(PartRole::Auxiliary(tensor)) => Some(CountedAs::AuxiliaryTensor(tensor)),
            _ => self.0.classify(part),
        }
    }
}

/// The rule that bytes hold two values each, under any name.
#[derive(Debug)]
pub(super) struct FourBitBytes {
    /// True if the configuration says that the weights have 4 bits.
    pub(super) is_4bit: bool,
    /// The modules that are not packed.
    pub(super) unconverted: UnconvertedModules,
}

impl FourBitBytes {
    /// Classifies a tensor that is not known to be auxiliary.
    pub(super) fn classify(&self, part: &ModulePart<'_>) -> Option<CountedAs> {
        let is_packed = self.is_4bit
            && part.tensor.dtype == Dtype::U8
            && !self.unconverted.contains(part.tensor_name);
        Packing::times(2).filter(|_| is_packed).map(CountedAs::Unpacked)
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn four_bit_weights_are_two_in_a_byte() {
        let config = r#"{"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,
            "modules_to_not_convert":["lm_head"]}}"#;
        check(
            config,
            &[
                ("h.0.mlp.weight", Dtype::U8, "unpacked ×2"),
                ("h.0.mlp.weight.absmax", Dtype::U8, "scale, not counted"),
                ("h.0.mlp.weight.nested_absmax", Dtype::F32, "scale, not counted"),
                ("h.0.mlp.weight.quant_map", Dtype::F32, "lookup table, not counted"),
                ("h.0.mlp.weight.nested_quant_map", Dtype::F32, "lookup table, not counted"),
                (
                    "h.0.mlp.weight.quant_state.bitsandbytes__nf4",
                    Dtype::U8,
                    "quantization state, not counted",
                ),
                ("h.0.mlp.weight", Dtype::I8, "as stored"),
                ("h.0.norm.weight", Dtype::BF16, "as stored"),
                ("lm_head.weight", Dtype::U8, "as stored"),
            ],
        );
    }

    #[test]
    fn eight_bit_weights_are_stored_as_they_are() {
        let config =
            r#"{"quantization_config":{"quant_method":"bitsandbytes","load_in_8bit":true}}"#;
        check(
            config,
            &[
                ("h.0.mlp.weight", Dtype::I8, "as stored"),
                ("h.0.mlp.weight", Dtype::U8, "as stored"),
                ("h.0.mlp.SCB", Dtype::F32, "as stored"),
            ],
        );
    }
}
