//! Layouts of packers that need a GPU or a calibrated model, from their sources.

use super::flagged::Case;
use super::flagged::Expected::{Exact, Inexact};

const CHATGLM: &str = r#"{"hidden_size":64,"quantization_bit":4}"#;
const TENSORRT_LLM: &str =
    r#"{"hidden_size":128,"quantization":{"quant_algo":"W4A16_AWQ","group_size":64}}"#;

pub(super) const CASES: &[Case] = &[
    // `gptqmodel/nn_modules/qlinear/gguf.py` fills the last block of 256.
    Case {
        name: "GGUF blocks of padded inputs",
        config: r#"{"hidden_size":896,"quantization_config":{"quant_method":"gguf","bits":"q4_k_m"}}"#,
        tensors: &[("a.qweight", "U8", &[64, 4 * 144])],
        expected: Inexact,
    },
    Case {
        name: "GGUF blocks of inputs that are a dimension of the model",
        config: r#"{"hidden_size":1024,"quantization_config":{"quant_method":"gguf","bits":"q4_k_m"}}"#,
        tensors: &[("a.qweight", "U8", &[64, 4 * 144])],
        expected: Exact(64 * 1024),
    },
    // The head of BigBird-Pegasus is not tied, whatever the key says.
    Case {
        name: "a head that its class never ties",
        config: r#"{"model_type":"bigbird_pegasus","d_model":8,"vocab_size":16,"tie_word_embeddings":true,
            "quantization_config":{"quant_method":"bitsandbytes","load_in_8bit":true}}"#,
        tensors: &[
            ("model.shared.weight", "F16", &[16, 8]),
            ("lm_head.weight", "I8", &[16, 8]),
            ("lm_head.SCB", "F32", &[16]),
        ],
        expected: Exact(2 * 16 * 8),
    },
    // `comfy_kitchen/tensor` 0.2.40.
    Case {
        name: "SVDQuant of ComfyUI",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[96, 64]),
            ("a.weight_scale", "BF16", &[2, 96]),
            ("a.weight_proj_down", "BF16", &[128, 16]),
            ("a.weight_proj_up", "BF16", &[96, 16]),
            ("a.weight_smooth_factor", "BF16", &[128]),
            ("a.comfy_quant", "U8", &[27]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "SVDQuant of ComfyUI with factors of other inputs",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[96, 64]),
            ("a.weight_scale", "BF16", &[2, 96]),
            ("a.weight_smooth_factor", "BF16", &[64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "AWQ of ComfyUI",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[96, 64]),
            ("a.weight_scale", "BF16", &[2, 96]),
            ("a.weight_zeros", "BF16", &[2, 96]),
            ("a.comfy_quant", "U8", &[27]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "ConvRot of ComfyUI, in a model whose dimension is twice the columns",
        config: r#"{"hidden_size":128}"#,
        tensors: &[
            ("a.weight", "I8", &[96, 64]),
            ("a.weight_scale", "F32", &[96]),
            ("a.comfy_quant", "U8", &[26]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "INT8 of ComfyUI, in a model whose dimension is the columns",
        config: r#"{"hidden_size":64}"#,
        tensors: &[
            ("a.weight", "I8", &[96, 64]),
            ("a.weight_scale", "F32", &[96]),
            ("a.comfy_quant", "U8", &[29]),
        ],
        expected: Exact(96 * 64),
    },
    Case {
        name: "4 bits in groups of 48, or 6 bits in groups of 32",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[64, 192]),
            ("a.weight_s_rel", "F8_E4M3", &[64, 8]),
            ("a.weight_s_channel", "F32", &[64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "NVFP4 of ComfyUI with padded tiles of scales",
        config: r#"{"hidden_size":200,"intermediate_size":320}"#,
        tensors: &[
            ("a.weight", "U8", &[208, 160]),
            ("a.weight_scale", "F8_E4M3", &[256, 20]),
            ("a.weight_scale_2", "F32", &[]),
        ],
        expected: Inexact,
    },
    Case {
        name: "NVFP4 of ComfyUI with padded tiles of scales, of known sides",
        config: r#"{"hidden_size":208}"#,
        tensors: &[
            ("a.weight", "U8", &[208, 160]),
            ("a.weight_scale", "F8_E4M3", &[256, 20]),
            ("a.weight_scale_2", "F32", &[]),
        ],
        expected: Exact(208 * 320),
    },
    Case {
        name: "NVFP4 of ComfyUI with padded tiles of scales, of sides with a bias and a norm",
        config: "{}",
        tensors: &[
            ("a.weight", "U8", &[208, 160]),
            ("a.weight_scale", "F8_E4M3", &[256, 20]),
            ("a.weight_scale_2", "F32", &[]),
            ("a.bias", "BF16", &[208]),
            ("norm.weight", "BF16", &[320]),
        ],
        expected: Exact(208 * 320 + 208 + 320),
    },
    Case {
        name: "NVFP4 of ComfyUI with 500 inputs, padded to 512",
        config: r#"{"hidden_size":500,"intermediate_size":576}"#,
        tensors: &[
            ("a.weight", "U8", &[576, 256]),
            ("a.weight_scale", "F8_E4M3", &[640, 32]),
            ("a.weight_scale_2", "F32", &[]),
        ],
        expected: Inexact,
    },
    Case {
        name: "NVFP4 of ComfyUI with 512 inputs",
        config: r#"{"hidden_size":500,"intermediate_size":576,"embed_dim":512}"#,
        tensors: &[
            ("a.weight", "U8", &[576, 256]),
            ("a.weight_scale", "F8_E4M3", &[640, 32]),
            ("a.weight_scale_2", "F32", &[]),
        ],
        expected: Exact(576 * 512),
    },
    Case {
        name: "MXFP8 of ComfyUI with known sides",
        config: r#"{"hidden_size":96,"intermediate_size":160}"#,
        tensors: &[
            ("a.weight", "F8_E4M3", &[160, 96]),
            ("a.weight_scale", "F8_E8M0", &[256, 4]),
            ("a.comfy_quant", "U8", &[19]),
        ],
        expected: Exact(160 * 96),
    },
    // `quantization.py` of ChatGLM, and `w4afp8.py` of SGLang 0.5.23.
    Case {
        name: "two weights per byte of ChatGLM",
        config: CHATGLM,
        tensors: &[("a.weight", "I8", &[96, 32]), ("a.weight_scale", "F16", &[96])],
        expected: Exact(96 * 64),
    },
    Case {
        name: "one weight per byte of ChatGLM",
        config: r#"{"quantization_bit":8}"#,
        tensors: &[("a.weight", "I8", &[96, 64]), ("a.weight_scale", "F16", &[96])],
        expected: Exact(96 * 64),
    },
    Case {
        name: "W4AFP8 with its bits",
        config: r#"{"quantization_config":{"quant_method":"w4afp8","bits":4}}"#,
        tensors: &[
            ("experts.w13_weight", "I8", &[4, 64, 128]),
            ("experts.w13_weight_scale_inv", "BF16", &[4, 64, 2]),
            ("experts.w13_activation_scale", "F32", &[4]),
            ("o.weight", "F8_E4M3", &[64, 64]),
            ("o.weight_scale_inv", "F32", &[1, 1]),
        ],
        expected: Exact(4 * 64 * 256 + 4096),
    },
    Case {
        name: "W4AFP8 with scales of other rows",
        config: r#"{"quantization_config":{"quant_method":"w4afp8"}}"#,
        tensors: &[("a.weight", "I8", &[64, 128]), ("a.weight_scale_inv", "BF16", &[2, 64])],
        expected: Inexact,
    },
    Case {
        name: "4 bits in signed bytes of an unknown method",
        config: r#"{"quantization_config":{"quant_method":"new","bits":4}}"#,
        tensors: &[("a.weight", "I8", &[64, 128]), ("a.weight_scale", "BF16", &[64])],
        expected: Inexact,
    },
    // The dtype F4 of safetensors 0.8.
    Case {
        name: "FP4 with its own dtype",
        config: "{}",
        tensors: &[("a.weight", "F4", &[64, 128]), ("a.weight_scale", "F8_E4M3", &[64, 8])],
        expected: Exact(64 * 128),
    },
    // `tensorrt_llm/quantization/layers.py` 0.20: weights are transposed, packed, and viewed as another dtype.
    Case {
        name: "AWQ of TensorRT-LLM viewed as floats",
        config: TENSORRT_LLM,
        tensors: &[
            ("a.weight", "F16", &[128, 24]),
            ("a.weights_scaling_factor", "F16", &[2, 96]),
            ("a.prequant_scaling_factor", "F16", &[1, 128]),
        ],
        expected: Inexact,
    },
    Case {
        name: "AWQ of TensorRT-LLM in bytes",
        config: TENSORRT_LLM,
        tensors: &[
            ("a.weight", "U8", &[48, 128]),
            ("a.weights_scaling_factor", "F16", &[96, 2]),
            ("a.prequant_scaling_factor", "F16", &[128]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "INT4 of TensorRT-LLM in a square matrix",
        config: r#"{"quantization":{"quant_algo":"W4A16"}}"#,
        tensors: &[("a.weight", "I8", &[128, 64]), ("a.per_channel_scale", "F16", &[128])],
        expected: Inexact,
    },
    Case {
        name: "FP8 of TensorRT-LLM",
        config: r#"{"quantization":{"quant_algo":"FP8"}}"#,
        tensors: &[
            ("a.weight", "F8_E4M3", &[96, 128]),
            ("a.weights_scaling_factor", "F32", &[1]),
            ("a.activation_scaling_factor", "F32", &[1]),
            ("attention.kv_cache_scaling_factor", "F32", &[1]),
        ],
        expected: Exact(96 * 128),
    },
    // `modelslim/schemes` of SGLang 0.5.23.
    Case {
        name: "W4A8 of ModelSlim, packed along the outputs",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[48, 128]),
            ("a.weight_scale", "F32", &[96, 1]),
            ("a.weight_offset", "F32", &[96, 1]),
            ("a.scale_bias", "F32", &[96, 1]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "W4A8 of ModelSlim, not packed",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[96, 128]),
            ("a.weight_scale", "F32", &[96, 1]),
            ("a.weight_offset", "F32", &[96, 1]),
            ("a.weight_scale_second", "F32", &[96, 2]),
            ("a.weight_offset_second", "F32", &[96, 2]),
        ],
        expected: Exact(96 * 128),
    },
    Case {
        name: "inputs of AutoRound that are a dimension are not padded",
        config: r#"{"intermediate_size":512,"hidden_size":416,
            "quantization_config":{"quant_method":"auto-round","bits":4,"group_size":128}}"#,
        tensors: &[
            ("a.qweight", "I32", &[64, 128]),
            ("a.qzeros", "I32", &[4, 16]),
            ("a.scales", "F16", &[4, 128]),
        ],
        expected: Exact(512 * 128),
    },
    // `hqq/core/quantize.py` 0.2.8, without groups.
    Case {
        name: "HQQ with one group of all outputs",
        config: r#"{"quantization_config":{"quant_method":"hqq","quant_config":{"weight_quant_params":{
            "nbits":4,"group_size":null,"axis":0}}}}"#,
        tensors: &[("a.W_q", "U8", &[48, 128]), ("a.scale", "F16", &[1, 128])],
        expected: Exact(96 * 128),
    },
    Case {
        name: "HQQ with one group of 3-bit outputs, padded to words",
        config: r#"{"quantization_config":{"quant_method":"hqq","quant_config":{"weight_quant_params":{
            "nbits":3,"group_size":null,"axis":0}}}}"#,
        tensors: &[("a.W_q", "I32", &[10, 128]), ("a.scale", "F16", &[1, 128])],
        expected: Inexact,
    },
    // Tensors next to weights that are not packed.
    Case {
        name: "the state of Transformer Engine",
        config: "{}",
        tensors: &[("a.weight", "BF16", &[64, 64]), ("a._extra_state", "U8", &[1500])],
        expected: Exact(4096),
    },
    Case {
        name: "FlatQuant of ModelSlim",
        config: r#"{"quantization_config":{"quant_method":"ascend"}}"#,
        tensors: &[
            ("a.weight", "I8", &[64, 64]),
            ("a.weight_scale", "F32", &[64, 1]),
            ("a.left_trans", "BF16", &[8, 8]),
            ("a.right_trans", "BF16", &[8, 8]),
            ("a.clip_ratio", "F32", &[1]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "scales of activations in AutoAWQ",
        config: r#"{"quantization_config":{"quant_method":"awq","bits":4}}"#,
        tensors: &[
            ("mlp.fc.qweight", "I32", &[64, 8]),
            ("mlp.fc.qzeros", "I32", &[1, 8]),
            ("mlp.fc.scales", "F16", &[1, 64]),
            ("mlp.act.scales", "F16", &[64]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "caches of Gemma",
        config: r#"{"quantization_config":{"quant_method":"gemma","num_bits":8}}"#,
        tensors: &[
            ("k.weight", "I8", &[64, 64]),
            ("k.weight_scale", "F32", &[64, 1]),
            ("attn.k_cache_scale", "F32", &[1]),
            ("attn.v_cache_scale", "F32", &[1]),
        ],
        expected: Exact(4096),
    },
    // `moshi/utils/quantize.py` at the commit that wrote `moshiko-pytorch-q8`.
    Case {
        name: "the stacked projections of Moshi in 8 bits",
        config: "{}",
        tensors: &[
            ("a.in_proj_weight", "I8", &[3 * 2 * 64, 64]),
            ("a.in_proj_weight_scb", "F32", &[3 * 2 * 64]),
            ("a.out_proj.weight", "I8", &[2 * 64, 64]),
            ("a.out_proj.weight_scb", "F32", &[2 * 64]),
            ("b.linear_in.weight", "BF16", &[64, 64]),
        ],
        expected: Exact((3 + 1) * 2 * 64 * 64 + 64 * 64),
    },
    Case {
        name: "int8 of an unknown method next to Moshi",
        config: "{}",
        tensors: &[
            ("a.weight", "I8", &[64, 64]),
            ("a.weight_scb", "F32", &[64]),
            ("b.weight", "I8", &[64, 64]),
        ],
        expected: Inexact,
    },
    // `lib/linear/quantized_linear.py` of QTIP.
    Case {
        name: "QTIP of 2 bits whose tiles belong to a different matrix",
        config: "{}",
        tensors: &[
            ("a.trellis", "I16", &[4 * 8, 32]),
            ("a.SU", "F16", &[64]),
            ("a.SV", "F32", &[64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "QTIP with a row that is not a whole number of bits per weight",
        config: "{}",
        tensors: &[
            ("a.trellis", "I16", &[4 * 8, 40]),
            ("a.SU", "F16", &[128]),
            ("a.SV", "F32", &[64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "QTIP without the signs of the inputs",
        config: "{}",
        tensors: &[("a.trellis", "I16", &[4 * 8, 32]), ("a.SV", "F32", &[64])],
        expected: Inexact,
    },
    Case {
        name: "QTIP and EXL3 in a model",
        config: "{}",
        tensors: &[
            ("a.trellis", "I16", &[4 * 8, 32]),
            ("a.SU", "F16", &[128]),
            ("a.SV", "F32", &[64]),
            ("b.trellis", "I16", &[8, 8, 64]),
            ("b.suh", "F16", &[128]),
            ("b.svh", "F16", &[128]),
            ("norm.weight", "F16", &[128]),
        ],
        expected: Exact(64 * 128 + 128 * 128 + 128),
    },
    // `gptq_marlin_24.py` of vLLM 0.4.3.
    Case {
        name: "Marlin-2:4 with metadata of a different matrix",
        config: "{}",
        tensors: &[
            ("a.B_24", "I32", &[4, 256]),
            ("a.B_meta", "I16", &[8, 256]),
            ("a.s", "F16", &[1, 128]),
        ],
        expected: Inexact,
    },
    Case {
        name: "Marlin-2:4 without metadata",
        config: "{}",
        tensors: &[("a.B_24", "I32", &[4, 256]), ("a.s", "F16", &[1, 128])],
        expected: Inexact,
    },
    Case {
        name: "Marlin and Marlin-2:4 in a model",
        config: "{}",
        tensors: &[
            ("a.B_24", "I32", &[4, 256]),
            ("a.B_meta", "I16", &[4, 256]),
            ("a.s", "F16", &[1, 128]),
            ("b.B", "I32", &[8, 256]),
            ("b.s", "F16", &[1, 128]),
        ],
        expected: Exact(128 * 128 + 128 * 128),
    },
    // `tools/convert/quant/quant.py` of LightX2V, whose scales are in tiles of 128 × 4.
    Case {
        name: "NVFP4 of LightX2V with scales of other groups",
        config: r#"{"dim":96}"#,
        tensors: &[
            ("a.weight", "U8", &[96, 48]),
            ("a.weight_scale", "F8_E4M3", &[128, 16]),
            ("a.weight_global_scale", "F32", &[]),
            ("a.input_absmax", "F32", &[1]),
        ],
        expected: Inexact,
    },
    Case {
        name: "NVFP4 of LightX2V with stored factors of the activations",
        config: r#"{"dim":96}"#,
        tensors: &[
            ("a.weight", "U8", &[96, 48]),
            ("a.weight_scale", "F8_E4M3", &[128, 8]),
            ("a.alpha", "F32", &[]),
            ("a.input_global_scale", "F32", &[]),
            ("a.bias", "BF16", &[96]),
        ],
        expected: Exact(96 * 96 + 96),
    },
    // `kt-kernel/scripts/merge_cpu_weights.py` of KTransformers, with two weights per byte.
    Case {
        name: "the flat experts of KTransformers in 4 bits",
        config: r#"{"hidden_size":128,"moe_intermediate_size":64}"#,
        tensors: &[
            ("blk.3.ffn_up_exps.0.numa.0.weight", "I8", &[64 * 128 / 2]),
            ("blk.3.ffn_up_exps.0.numa.0.scale", "F32", &[64]),
            ("blk.3.ffn_up_exps.0.numa.1.weight", "I8", &[64 * 128 / 2]),
            ("blk.3.ffn_up_exps.0.numa.1.scale", "F32", &[64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "a flat matrix next to a configuration that may describe the source",
        config: r#"{"quantization_config":{"quant_method":"int8","bits":8}}"#,
        tensors: &[("a.weight", "I8", &[64 * 128]), ("a.scale", "F32", &[64])],
        expected: Inexact,
    },
    // `vllm/model_executor/layers/quantization/compressed_tensors` 0.33, as its sharded state stores them.
    Case {
        name: "FP8 of the fused experts of vLLM",
        config: "{}",
        tensors: &[
            ("experts.w13_weight", "F8_E4M3", &[4, 128, 64]),
            ("experts.w13_weight_scale", "F32", &[4, 128, 1]),
            ("experts.w2_weight", "F8_E4M3", &[4, 64, 64]),
            ("experts.w2_weight_scale", "F32", &[4]),
        ],
        expected: Exact(4 * 128 * 64 + 4 * 64 * 64),
    },
    Case {
        name: "NVFP4 of the fused experts of vLLM",
        config: "{}",
        tensors: &[
            ("experts.w13_weight", "U8", &[4, 128, 32]),
            ("experts.w13_weight_scale", "F8_E4M3", &[4, 128, 4]),
            ("experts.w13_weight_scale_2", "F32", &[4, 2]),
        ],
        expected: Inexact,
    },
];
