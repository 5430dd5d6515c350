//! Whether a configuration could change what is counted.

use super::packing::container_bits;
use super::{AuxiliaryTensor, Buffer, experts, suffix};
use crate::formats::TensorInfo;

/// Whether a tensor calls for the configuration of its model: whether there is any with which it would
/// be counted in another way, or by which some of its parameters would not be active.
///
/// A request for `config.json` is counted as a download on the Hub, so a model none of whose tensors
/// calls for it is counted without. Buffers do not, whatever integers they are in: nobody packs a mask.
/// Nor do exponents (`F8_E8M0`), which are no parameters with any configuration.
///
/// ```
/// use hf_meta::{SafetensorsFileHeader, quantization::needs_config};
///
/// let json = br#"{"q.qweight":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},
///     "norm.weight":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// assert!(needs_config("q.qweight", &header.tensor("q.qweight").unwrap()));
/// assert!(!needs_config("norm.weight", &header.tensor("norm.weight").unwrap()));
/// # Ok::<(), hf_meta::formats::safetensors::HeaderError>(())
/// ```
#[must_use]
pub fn needs_config(name: &str, info: &TensorInfo) -> bool {
    if info.is_scalar() {
        return false;
    }
    let could_be_packed =
        container_bits(&info.dtype).is_some() && Buffer::from_tensor(name, info).is_none();
    could_be_packed || experts::is_routed(name) || is_known(suffix(name))
}

/// Returns whether the configuration could change how a tensor is counted, alone or together with others
/// that ask for it.
pub(super) fn depends_on_config(name: &str, tensor: &TensorInfo) -> bool {
    if AuxiliaryTensor::of_dtype(&tensor.dtype).is_some() {
        return false;
    }
    let is_container = container_bits(&tensor.dtype).is_some();
    let is_packed = is_container && Buffer::from_tensor(name, tensor).is_none();
    is_packed || is_known(suffix(name)) || suffix(name) == "biases"
}

/// Whether the end of a name is one that a quantizer gives, in whichever dtype.
fn is_known(suffix: &str) -> bool {
    let of_a_method = matches!(
        suffix,
        "qweight" | "qzeros" | "g_idx" | "scales" // GPTQ, AWQ, MLX
        | "absmax" | "nested_absmax" | "quant_map" | "nested_quant_map" // bitsandbytes
    );
    of_a_method
        || AuxiliaryTensor::of_suffix(suffix).is_some()
        || suffix.starts_with("bitsandbytes__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::{Classifier, Configs};
    use crate::formats::Dtype;

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
            assert_eq!(needs_config(name, &info), expected, "{name} {:?}", info.dtype);
        }
    }

    /// Each alone, since what does not call is not counted by what others call for.
    #[test]
    fn who_does_not_call_counts_the_same_with_any_configuration() {
        let methods = [
            r#""quant_method":"gptq","bits":4"#,
            r#""quant_method":"awq","bits":2"#,
            r#""quant_method":"bitsandbytes","load_in_4bit":true"#,
            r#""quant_method":"compressed-tensors","format":"pack-quantized""#,
            r#""quant_method":"fp8","expert_dtype":"fp4""#,
            r#""quant_method":"mxfp4""#,
            r#""quant_method":"hqq","bits":4"#,
            r#""mode":"mxfp4""#,
            r#""bits":4,"group_size":64"#,
        ];
        let suffixes = "weight bias qweight qzeros g_idx scales biases weight_packed weight_scale \
            weight_scale_inv weight_scale_2 weight_global_scale weight_zero_point input_scale \
            input_global_scale input_zero_point zero_point weight_shape weight_g_idx absmax quant_map \
            nested_absmax nested_quant_map bitsandbytes__nf4 w_blocks w_scales scale";
        for method in methods {
            let config = format!(r#"{{"quantization_config":{{{method}}}}}"#);
            let config = Configs::from_config_json(config.as_bytes()).unwrap();
            for suffix in suffixes.split_whitespace() {
                for name in ["m", "m.experts.3", "m.experts"].map(|m| format!("{m}.{suffix}")) {
                    for (dtype, shape) in
                        Dtype::KNOWN.iter().flat_map(|d| [(d, vec![8]), (d, vec![])])
                    {
                        let info = TensorInfo { dtype: dtype.clone(), shape, data_offsets: (0, 0) };
                        let rules =
                            |config| Classifier::new(config, std::iter::once((&*name, &info)));
                        let [with, without] =
                            [Some(&config), None].map(|config| rules(config).judge(&name, &info));
                        let is_same = with.parameters(8) == without.parameters(8);
                        let calls = needs_config(&name, &info) || info.is_scalar();
                        assert!(is_same || calls, "{method}: {name} {dtype} is {with}");
                    }
                }
            }
        }
    }
}
