//! MXFP4 as gpt-oss stores it: blocks of 4-bit floats in bytes, and a byte of exponent for each block.

use super::Tensor;
use crate::count::patterns::Exclusions;
use crate::count::{AuxiliaryTensor, CountedAs, Packing};
use crate::formats::Dtype;

/// Only bytes are looked at: a learned `…_scales` of another dtype is a parameter.
pub(super) fn judge(tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
    if *tensor.dtype != Dtype::U8 {
        return None;
    }
    if tensor.suffix.ends_with("_scales") {
        return Some(CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale));
    }
    let is_packed = tensor.name.contains("_blocks") && !exclusions.contain(tensor.name);
    Packing::times(2).filter(|_| is_packed).map(CountedAs::Unpacked)
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    #[test]
    fn blocks_and_scales() {
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
