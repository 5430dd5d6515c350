//! bitsandbytes, which stores two 4-bit values in a byte, and methods that have no rules of their own.

use super::Tensor;
use crate::count::json_object::Object;
use crate::count::patterns::Exclusions;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};
use crate::formats::Dtype;

#[derive(Clone, Debug)]
pub(in crate::count) struct Bitsandbytes {
    in_4bit: bool,
}

impl Bitsandbytes {
    pub(super) fn new(config: &Object<'_>) -> Self {
        Self { in_4bit: config.get("load_in_4bit").unwrap_or(false) }
    }

    pub(super) fn judge(&self, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
        let bookkeeping = match tensor.suffix {
            "absmax" | "nested_absmax" => AuxiliaryTensor::Scale,
            "quant_map" | "nested_quant_map" => AuxiliaryTensor::LookupTable,
            suffix if suffix.starts_with("bitsandbytes__") => AuxiliaryTensor::State,
            _ => return two_in_a_byte(self.in_4bit, tensor, exclusions),
        };
        Some(CountedAs::AuxiliaryTensor(bookkeeping))
    }
}

/// Any other method, named or not. That it stores 4 bits in bytes is all that is known.
#[derive(Clone, Debug)]
pub(in crate::count) struct Unnamed {
    in_4bit: bool,
}

impl Unnamed {
    pub(super) fn new(config: &Object<'_>) -> Self {
        let in_4bit = config.get("load_in_4bit").unwrap_or(false);
        Self { in_4bit: in_4bit || config.get::<u32>("bits") == Some(4) }
    }

    pub(super) fn judge(&self, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
        two_in_a_byte(self.in_4bit, tensor, exclusions)
    }
}

fn two_in_a_byte(in_4bit: bool, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
    let is_packed = in_4bit && *tensor.dtype == Dtype::U8 && !exclusions.contain(tensor.name);
    Packing::times(2).filter(|_| is_packed).map(CountedAs::Unpacked)
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn four_bits() {
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
    fn eight_bits_are_one_to_a_byte() {
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

    #[test]
    fn methods_without_rules() {
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
