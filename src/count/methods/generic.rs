//! Any other method, named or not: all that is known is that 4-bit values may be stored in bytes.

use std::sync::Arc;

use super::bitsandbytes::FourBitBytes;
use super::{
    MethodDefinition, Module, PartEvidence, PartName, QUANTIZATION_CONFIG, QuantizationMethod,
};
use crate::count::module_part::ModulePart;
use crate::count::{AuxiliaryTensor, CountedAs};

pub(super) const METHOD: MethodDefinition = MethodDefinition {
    config_keys: &[QUANTIZATION_CONFIG],
    names: &[],
    name_is_optional: true,
    parts: PARTS,
    from_config: |section| {
        let fields = section.fields;
        let is_4bit =
            fields.get("load_in_4bit").unwrap_or(false) || fields.get::<u32>("bits") == Some(4);
        let unconverted = section.unconverted()?;
        Ok(Some(Arc::new(Generic(FourBitBytes { is_4bit, unconverted }))))
    },
};

/// Parts of methods that have no file of their own, such as `ModelOpt`.
const PARTS: &[PartName] = &[
    PartName::auxiliary("weight_scale_2", AuxiliaryTensor::Scale, PartEvidence::AnyMethod),
    PartName::auxiliary("zero_point", AuxiliaryTensor::ZeroPoint, PartEvidence::AnyMethod),
];

#[derive(Debug)]
struct Generic(FourBitBytes);

impl QuantizationMethod for Generic {
    fn classify(&self, part: &ModulePart<'_>, _: &Module<'_>) -> Option<CountedAs> {
        self.0.classify(part)
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn four_bit_weights_of_any_method_are_two_in_a_byte() {
        let packed: [_; 3] = [
            r#"{"quant_method":"hqq","bits":4}"#,
            r#"{"load_in_4bit":true}"#,
            r#"{"quant_method":null,"bits":4}"#,
        ];
        for config in packed {
            let config = format!(r#"{{"quantization_config":{config}}}"#);
            check(
                &config,
                &[
                    ("h.0.mlp.weight", Dtype::U8, "unpacked ×2"),
                    ("h.0.mlp.weight", Dtype::I32, "as stored"),
                    ("h.0.mlp.scales", Dtype::F16, "as stored"),
                    ("h.0.mlp.weight_scale", Dtype::F16, "scale, not counted"),
                ],
            );
        }
        let config = r#"{"quantization_config":{"quant_method":"modelopt"}}"#;
        check(config, &[("h.0.mlp.weight", Dtype::U8, "as stored")]);
    }
}
