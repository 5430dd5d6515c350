//! The formats of a dense layer's weight: plain, or packed with its auxiliary tensors.

use serde_json::{Value, json};

use super::module::{Dtype, Module};

#[derive(Clone, Copy)]
pub enum Format {
    /// `weight`, in the dtype of the module.
    Plain,
    /// 4-bit integers of `AutoGPTQ`, eight inputs to an element; its exports bring a bias even where the model has none.
    Gptq { group: u64 },
    /// 4-bit integers of compressed-tensors (`pack-quantized`), eight inputs to an element.
    PackQuantized {
        group: u64,
        /// The dtype of `weight_shape`.
        shape: Dtype,
        /// True if the inputs are ordered by activation, which needs an index of their groups.
        is_ordered: bool,
    },
    /// bitsandbytes `nf4`: two values to an element, scales for each 64, and scales of the scales.
    Nf4 {
        /// The digits of the `nested_offset` in the state, which is JSON.
        offset_digits: u64,
    },
    /// FP8 with a scale for each block of 128 × 128, under this name and dtype.
    Fp8 { scale: &'static str, dtype: Dtype },
    /// FP4, two values to an element, with a scale for each 32 inputs.
    Fp4,
}

impl Format {
    /// The tensors that stand for a weight of `[outputs, inputs]` in a module of this dtype.
    pub fn store(self, dtype: Dtype, inputs: u64, outputs: u64) -> Module {
        let module = Module::new(dtype);
        match self {
            Self::Plain => module.tensor("weight", &[outputs, inputs]),
            Self::Gptq { group } => module
                .buffer("qweight", Dtype::I32, &[inputs / 8, outputs])
                .buffer("qzeros", Dtype::I32, &[inputs / group, outputs / 8])
                .tensor("scales", &[inputs / group, outputs])
                .buffer("g_idx", Dtype::I32, &[inputs])
                .tensor("bias", &[outputs]),
            Self::PackQuantized { group, shape, is_ordered } => {
                let module = module
                    .buffer("weight_packed", Dtype::I32, &[outputs, inputs / 8])
                    .tensor("weight_scale", &[outputs, inputs / group])
                    .buffer("weight_shape", shape, &[2]);
                if is_ordered {
                    module.buffer("weight_g_idx", Dtype::I32, &[inputs])
                } else {
                    module
                }
            }
            Self::Nf4 { offset_digits } => nf4(module, inputs, outputs, offset_digits),
            Self::Fp8 { scale, dtype } => module
                .buffer("weight", Dtype::F8E4M3, &[outputs, inputs])
                .buffer(scale, dtype, &[outputs.div_ceil(128), inputs.div_ceil(128)]),
            Self::Fp4 => module.buffer("weight", Dtype::I8, &[outputs, inputs / 2]).buffer(
                "scale",
                Dtype::F8E8M0,
                &[outputs, inputs / 32],
            ),
        }
    }
}

fn nf4(module: Module, inputs: u64, outputs: u64, offset_digits: u64) -> Module {
    let scales = inputs * outputs / 64;
    let state = format!(
        r#"{{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [{outputs}, {inputs}], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": }}"#
    );
    module
        .buffer("weight", Dtype::U8, &[inputs * outputs / 2, 1])
        .buffer("weight.absmax", Dtype::U8, &[scales])
        .buffer("weight.nested_absmax", Dtype::F32, &[scales / 256])
        .buffer("weight.nested_quant_map", Dtype::F32, &[256])
        .buffer("weight.quant_map", Dtype::F32, &[16])
        .buffer(
            "weight.quant_state.bitsandbytes__nf4",
            Dtype::U8,
            &[state.len() as u64 + offset_digits],
        )
}

/// The `quantization_config` of weights in [`Format::PackQuantized`].
pub fn pack_quantized(group: u64, is_ordered: bool, ignore: &[&str]) -> Value {
    json!({
        "config_groups": {
            "group_0": {
                "input_activations": null,
                "output_activations": null,
                "targets": ["Linear"],
                "weights": {
                    "actorder": is_ordered.then_some("group"),
                    "dynamic": false,
                    "group_size": group,
                    "num_bits": 4,
                    "strategy": "group",
                    "symmetric": true,
                    "type": "int",
                },
            },
        },
        "format": "pack-quantized",
        "ignore": ignore,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    })
}
