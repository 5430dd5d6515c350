//! Whether a configuration could change what is counted.

use super::packing::container_bits;
use super::{Bookkeeping, Buffer, experts, suffix};
use crate::safetensors::TensorInfo;

/// Whether a tensor calls for the configuration of its model: whether there is any with which it would
/// be counted in another way, or by which some of its parameters would not be active.
///
/// A request for `config.json` is counted as a download on the Hub, so a model none of whose tensors
/// calls for it is counted without. Buffers do not, whatever integers they are in: nobody packs a mask.
/// Nor do exponents (`F8_E8M0`), which are no parameters with any configuration.
///
/// ```
/// use hf_meta::{SafetensorsFileHeader, quantization::calls_for_config};
///
/// let json = br#"{"q.qweight":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},
///     "norm.weight":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// assert!(calls_for_config("q.qweight", &header.tensor("q.qweight").unwrap()));
/// assert!(!calls_for_config("norm.weight", &header.tensor("norm.weight").unwrap()));
/// # Ok::<(), hf_meta::safetensors::HeaderError>(())
/// ```
#[must_use]
pub fn calls_for_config(name: &str, info: &TensorInfo) -> bool {
    if info.is_scalar() {
        return false;
    }
    let could_be_packed = container_bits(&info.dtype).is_some() && Buffer::of(name, info).is_none();
    could_be_packed || experts::is_routed(name) || is_known(suffix(name))
}

/// Whether the end of a name is one that a quantizer gives, in whichever dtype.
fn is_known(suffix: &str) -> bool {
    let of_a_method = matches!(
        suffix,
        "qweight" | "qzeros" | "g_idx" | "scales" // GPTQ, AWQ, MLX
        | "absmax" | "nested_absmax" | "quant_map" | "nested_quant_map" // bitsandbytes
    );
    of_a_method || Bookkeeping::of_suffix(suffix).is_some() || suffix.starts_with("bitsandbytes__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::Dtype;

    #[test]
    fn who_calls() {
        let cases: [(&str, Dtype, &[u64], bool); 20] = [
            ("h.0.mlp.weight", Dtype::BF16, &[8, 8], false),
            ("h.0.mlp.weight", Dtype::F8_E4M3, &[8, 8], false),
            ("h.0.mlp.weight", Dtype::F4, &[8, 8], false),
            ("h.0.mlp.weight", Dtype::U8, &[8, 8], true),
            ("h.0.mlp.weight", Dtype::I8, &[8, 8], true),
            ("h.0.mlp.weight", Dtype::I16, &[8, 8], true),
            ("h.0.mlp.weight", Dtype::U32, &[8, 8], true),
            ("h.0.mlp.weight", Dtype::U8, &[], false),
            ("h.0.mlp.weight", Dtype::I64, &[8, 8], false),
            ("h.0.mlp.weight", Dtype::BOOL, &[8, 8], false),
            ("h.0.mlp.scale", Dtype::F8_E8M0, &[8, 8], false),
            ("h.0.mlp.weight_scale", Dtype::F32, &[8], true),
            ("h.0.mlp.weight.absmax", Dtype::F32, &[8], true),
            ("h.0.quant_state.bitsandbytes__nf4", Dtype::F32, &[8], true),
            ("h.0.mlp.qweight", Dtype::F16, &[8], true),
            ("h.0.mlp.bias", Dtype::F16, &[8], false),
            ("h.0.mlp.experts.0.w1.weight", Dtype::BF16, &[8, 8], true),
            ("h.0.mlp.shared_experts.w1.weight", Dtype::BF16, &[8, 8], false),
            ("h.0.attention.bias", Dtype::U8, &[1, 1, 8, 8], false),
            ("embeddings.position_ids", Dtype::I32, &[1, 514], false),
        ];
        for (name, dtype, shape, expected) in cases {
            let info = TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (0, 0) };
            assert_eq!(calls_for_config(name, &info), expected, "{name} {:?}", info.dtype);
        }
    }
}
