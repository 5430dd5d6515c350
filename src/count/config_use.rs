//! The use of a configuration for a tensor.

use super::AuxiliaryTensor;
use super::methods::{PartEvidence, evidence};
use super::module_part::ModulePart;
use super::packing::container_bits;

/// The answers to two questions about a tensor, before any configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfigUse {
    /// True if some configuration would change the class of the tensor.
    pub(super) depends: bool,
    /// True if the tensor is a reason to request `config.json`.
    pub(super) asks: bool,
}

impl ConfigUse {
    /// Looks at the name, the dtype and the shape of a tensor, without a configuration.
    ///
    /// The Hub counts a request for `config.json` as a download, so only a tensor asks for it that would
    /// be counted differently, or whose parameters would not be active. Buffers do not ask, whatever
    /// integers they are in: nobody packs a mask.
    pub(super) fn from_part(part: &ModulePart<'_>) -> Self {
        let tensor = part.tensor;
        let is_integer = container_bits(&tensor.dtype).is_some();
        let may_be_packed = is_integer && part.buffer.is_none();
        let evidence = evidence(part.name);
        let is_evident = matches!(evidence, Some(PartEvidence::AnyMethod | PartEvidence::Name));
        let asks =
            !tensor.is_scalar() && (may_be_packed || is_evident || part.position.expert.is_some());
        // Exponents (`F8_E8M0`) are auxiliary with any configuration.
        let is_fixed = AuxiliaryTensor::from_dtype(&tensor.dtype).is_some();
        Self { depends: !is_fixed && (may_be_packed || evidence.is_some()), asks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::methods::Module;
    use crate::count::{Configs, CountedAs};
    use crate::formats::{Dtype, TensorInfo};

    #[test]
    fn tensors_ask_for_the_configuration() {
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
            assert_eq!(
                ConfigUse::from_part(&ModulePart::new(name, &info)).asks,
                expected,
                "{name} {:?}",
                info.dtype
            );
        }
    }

    /// The class of a tensor without configuration, and with one, next to the other parts of its module.
    fn classes(config: &Configs, name: &str, tensor: &TensorInfo) -> [CountedAs; 2] {
        let module = ModulePart::new(name, tensor).module();
        let part = |part, dtype| {
            let tensor = TensorInfo { dtype, shape: vec![8], data_offsets: (0, 0) };
            (format!("{module}.{part}"), tensor)
        };
        let other =
            [part("biases", Dtype::BF16), part("scales", Dtype::BF16), part("weight", Dtype::U32)];
        let parts = Module::from_sorted(&other);
        [&Configs::default(), config]
            .map(|config| config.classify(&ModulePart::new(name, tensor), &parts))
    }

    #[test]
    fn a_tensor_that_does_not_depend_on_the_configuration_has_one_class() {
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
        let parts = "weight bias qweight qzeros g_idx scales biases weight_packed weight_scale \
            weight_scale_inv weight_scale_2 weight_global_scale weight_zero_point input_scale \
            input_global_scale input_zero_point zero_point weight_shape weight_g_idx absmax quant_map \
            nested_absmax nested_quant_map bitsandbytes__nf4 w_blocks w_scales scale position_ids";
        for method in methods {
            let config = format!(r#"{{"quantization_config":{{{method}}}}}"#);
            let config = Configs::from_config_json(config.as_bytes()).unwrap();
            for part in parts.split_whitespace() {
                for name in ["m", "m.experts.3", "m.experts"].map(|m| format!("{m}.{part}")) {
                    let shapes = Dtype::KNOWN.iter().flat_map(|d| [(d, vec![8]), (d, vec![])]);
                    for (dtype, shape) in shapes {
                        let info = TensorInfo { dtype: dtype.clone(), shape, data_offsets: (0, 0) };
                        let [without, with] = classes(&config, &name, &info);
                        let depends = ConfigUse::from_part(&ModulePart::new(&name, &info)).depends;
                        assert!(depends || with == without, "{method}: {name} {dtype} is {with}");
                    }
                }
            }
        }
    }
}
