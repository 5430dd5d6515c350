//! GPTQ and AWQ: weights in `qweight`, laid into 32 bits.

use super::Tensor;
use crate::count::json_object::Object;
use crate::count::patterns::Exclusions;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};
use crate::formats::Dtype;

#[derive(Clone, Debug)]
pub(in crate::count) struct Gptq {
    bits: Option<u32>,
}

impl Gptq {
    pub(super) fn new(config: &Object<'_>) -> Self {
        Self { bits: config.get("bits").filter(|&bits| bits > 0) }
    }

    pub(super) fn judge(&self, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
        let reason = match tensor.suffix {
            "qweight" => CountedAs::Unpacked(Packing::times(32 / self.bits.unwrap_or(4))?),
            "scales" => CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale),
            "qzeros" => CountedAs::AuxiliaryTensor(AuxiliaryTensor::ZeroPoint),
            "g_idx" => CountedAs::AuxiliaryTensor(AuxiliaryTensor::ColumnOrder),
            _ if *tensor.dtype == Dtype::U8 => match self.bits {
                Some(bits @ (2 | 4)) => CountedAs::Unpacked(Packing::dense(tensor.dtype, bits)?),
                _ => return None,
            },
            _ => return None,
        };
        (!exclusions.contain(tensor.name)).then_some(reason)
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn weights_and_what_is_beside_them() {
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
    fn widths() {
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
