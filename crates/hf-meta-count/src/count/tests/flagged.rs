//! Every count is either correct or flagged as inexact. Covers similar layouts, contradicting components and rare
//! names.

use self::Expected::{Exact, Inexact};
use super::oracles::header;
use crate::count::{Configs, Counter};

/// The expected count of a case. A flagged count treats packed tensors as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Exact(u64),
    Inexact,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    /// The content of `config.json`, usually with a quantization section.
    pub(super) config: &'static str,
    pub(super) tensors: &'static [(&'static str, &'static str, &'static [u64])],
    pub(super) expected: Expected,
}

fn count(case: &Case) -> Expected {
    let mut counter = Counter::new();
    counter.add_file(&header(case.tensors.iter().copied(), None)).unwrap();
    counter.set_configs(Configs::from_config_json(case.config.as_bytes()).unwrap());
    let (parameters, breakdown) = counter.finish().unwrap();
    if breakdown.is_exact() { Exact(parameters.total()) } else { Inexact }
}

#[test]
fn every_count_is_exact_or_flagged() {
    let cases = CASES.iter().chain(super::packers::CASES);
    let wrong: Vec<_> = cases
        .map(|case| (case.name, count(case), case.expected))
        .filter(|(_, found, expected)| found != expected)
        .collect();
    assert!(wrong.is_empty(), "name, found, expected: {wrong:#?}");
}

const COMPRESSED: &str = r#"{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",
    "config_groups":{"a":{"targets":["Linear"],"weights":{"num_bits":4,"group_size":128}}}}}"#;
const CHANNELS: &str = r#"{"hidden_size":100,"quantization_config":{"quant_method":"compressed-tensors","format":
    "pack-quantized","config_groups":{"a":{"targets":["Linear"],"weights":{"num_bits":4}}}}}"#;
const EMBEDDINGS: &str = r#"{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{
    "a":{"targets":["Linear"],"weights":{"num_bits":4,"group_size":32}},
    "b":{"targets":["Embedding"],"weights":{"num_bits":8}}}}}"#;
const GPTQ: &str = r#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#;
const MXFP4: &str = r#"{"quantization_config":{"quant_method":"mxfp4"}}"#;
const FP8: &str = r#"{"quantization_config":{"quant_method":"fp8"}}"#;
const INT8: &str = r#"{"quantization_config":{"quant_method":"int8","bits":8}}"#;
const EXL: &str = r#"{"hidden_size":1000,"intermediate_size":10944,"kv_lora_rank":512,"qk_rope_head_dim":64,
    "quantization_config":{"quant_method":"exl3"}}"#;
const SDNQ: &str = r#"{"quantization_config":{"quant_method":"sdnq","weights_dtype":"uint4",
    "modules_dtype_dict":{"int6":["proj_out"],"uint8":["lm_head"]}}}"#;
const HQQ: &str = r#"{"quantization_config":{"quant_method":"hqq","quant_config":{"weight_quant_params":{
    "nbits":16,"group_size":64}}}}"#;

const CASES: &[Case] = &[
    // Integers under unknown names. A few, or small ones, are tables and masks.
    Case {
        name: "unknown integers that are most of the model",
        config: "{}",
        tensors: &[
            ("h.0.q.bits", "U8", &[64, 8]),
            ("h.0.k.bits", "U8", &[64, 8]),
            ("h.1.q.bits", "U8", &[64, 8]),
            ("h.1.k.bits", "U8", &[64, 8]),
            ("embed.weight", "BF16", &[64, 64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "unknown integers that are few",
        config: "{}",
        tensors: &[
            ("h.0.q.bits", "U8", &[64, 8]),
            ("h.0.k.bits", "U8", &[64, 8]),
            ("h.1.q.bits", "U8", &[64, 8]),
            ("embed.weight", "BF16", &[8, 64]),
        ],
        expected: Exact(4 * 64 * 8),
    },
    Case {
        name: "unknown integers that are small",
        config: "{}",
        tensors: &[
            ("h.0.q.bits", "U8", &[64, 8]),
            ("h.0.k.bits", "U8", &[64, 8]),
            ("h.1.q.bits", "U8", &[64, 8]),
            ("h.1.k.bits", "U8", &[64, 8]),
            ("embed.weight", "BF16", &[1024, 64]),
        ],
        expected: Exact(4 * 64 * 8 + 1024 * 64),
    },
    // Names that are not enough to prove a method.
    Case {
        name: "a method that no version knows",
        config: r#"{"quantization_config":{"quant_method":"novel"}}"#,
        tensors: &[("a.bits", "U8", &[64, 8]), ("embed.weight", "BF16", &[64, 64])],
        expected: Inexact,
    },
    Case {
        name: "an unknown method with known components",
        config: r#"{"quantization_config":{"quant_method":"novel"}}"#,
        tensors: &[("a.weight", "F8_E4M3", &[64, 64]), ("a.weight_scale", "F32", &[1])],
        expected: Exact(4096),
    },
    Case {
        name: "scales of float weights",
        config: SDNQ,
        tensors: &[("a.weight", "F16", &[64, 64]), ("a.scale", "F32", &[64, 1])],
        expected: Inexact,
    },
    Case {
        name: "floats under the name of packed weights",
        config: r#"{"hidden_size":64}"#,
        tensors: &[("a.trellis", "F32", &[4, 4, 16]), ("b.trellis", "I16", &[4, 4, 16])],
        expected: Inexact,
    },
    Case {
        name: "parameters of attention with the name of packed weights",
        config: "{}",
        tensors: &[("attn.W_q", "F32", &[64, 64]), ("attn.W_k", "F32", &[64, 64])],
        expected: Exact(8192),
    },
    Case {
        name: "bytes whose double is a dimension of the model",
        config: r#"{"hidden_size":64}"#,
        tensors: &[("a.weight", "I8", &[96, 32]), ("a.weight_scale", "F32", &[96])],
        expected: Inexact,
    },
    Case {
        name: "bytes whose columns are a dimension of the model",
        config: r#"{"hidden_size":64,"intermediate_size":32}"#,
        tensors: &[("a.weight", "I8", &[96, 32]), ("a.weight_scale", "F32", &[96])],
        expected: Exact(96 * 32),
    },
    // Quark 0.13.
    Case {
        name: "unsigned bytes of 8 bits",
        config: r#"{"quantization_config":{"quant_method":"quark","global_quant_config":{"weight":{"dtype":"uint8"}}}}"#,
        tensors: &[
            ("a.weight", "U8", &[64, 64]),
            ("a.weight_scale", "BF16", &[64]),
            ("a.weight_zero_point", "U8", &[64]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "words of 4 bits with one scale",
        config: r#"{"quantization_config":{"quant_method":"quark","global_quant_config":{"weight":{"dtype":"int4"}}}}"#,
        tensors: &[
            ("a.weight", "I32", &[64, 16]),
            ("a.weight_scale", "F32", &[]),
            ("a.weight_zero_point", "I32", &[]),
        ],
        expected: Exact(64 * 128),
    },
    // `transformers/integrations/bitnet.py` 5.23: the norm of the inputs is learned.
    Case {
        name: "BitNet with norms",
        config: r#"{"quantization_config":{"quant_method":"bitnet"}}"#,
        tensors: &[
            ("a.weight", "U8", &[16, 64]),
            ("a.weight_scale", "BF16", &[1]),
            ("a.rms_norm.weight", "BF16", &[64]),
        ],
        expected: Exact(4096 + 64),
    },
    Case {
        name: "words of one byte, which may hold one, two or four weights",
        config: "{}",
        tensors: &[("a.qweight", "I8", &[64, 32]), ("a.scales", "F32", &[64, 2])],
        expected: Inexact,
    },
    Case {
        name: "words with a space for more inputs, of which the model has two numbers",
        config: r#"{"hidden_size":152,"intermediate_size":160,"quantization_config":{"bits":2}}"#,
        tensors: &[("a.qweight", "I32", &[64, 10]), ("a.scales", "F32", &[64, 5])],
        expected: Inexact,
    },
    // A tied embedding, of which one copy is quantized.
    Case {
        name: "a quantized copy of a tied embedding in parts",
        config: r#"{"model_type":"gpt2","tie_word_embeddings":true,
            "quantization_config":{"quant_method":"quanto"}}"#,
        tensors: &[
            ("transformer.wte.weight", "BF16", &[64, 64]),
            ("lm_head.weight._data", "I8", &[64, 64]),
            ("lm_head.weight._scale", "BF16", &[64, 1]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "a copy of a tied embedding with one scale",
        config: r#"{"model_type":"whisper","tie_word_embeddings":true,
            "quantization_config":{"quant_method":"quark"}}"#,
        tensors: &[
            ("model.decoder.embed_tokens.weight", "BF16", &[64, 64]),
            ("proj_out.weight", "F8_E4M3", &[64, 64]),
            ("proj_out.weight_scale", "F32", &[]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "a head of an unknown model, which may store its own although the key ties it",
        config: r#"{"model_type":"new","tie_word_embeddings":true,
            "quantization_config":{"quant_method":"bitsandbytes","load_in_8bit":true}}"#,
        tensors: &[
            ("model.shared.weight", "F16", &[16, 8]),
            ("lm_head.weight", "I8", &[16, 8]),
            ("lm_head.SCB", "F32", &[16]),
        ],
        expected: Inexact,
    },
    // Packed components that no method can solve.
    Case {
        name: "bytes with the scales of no format",
        config: COMPRESSED,
        tensors: &[("a.weight_packed", "U8", &[64, 64]), ("a.weight_scale", "BF16", &[64, 8])],
        expected: Inexact,
    },
    Case {
        name: "bytes without scales",
        config: COMPRESSED,
        tensors: &[("a.weight_packed", "U8", &[64, 64])],
        expected: Inexact,
    },
    Case {
        name: "sparse weights without their mask",
        config: COMPRESSED,
        tensors: &[("a.compressed", "BF16", &[64, 64])],
        expected: Inexact,
    },
    Case {
        name: "codes without codebooks",
        config: r#"{"quantization_config":{"quant_method":"aqlm"}}"#,
        tensors: &[("a.codes", "I16", &[64, 8, 1])],
        expected: Inexact,
    },
    Case {
        name: "NVFP4 in a stack of experts",
        config: COMPRESSED,
        tensors: &[
            ("experts.gate_up_proj_packed", "U8", &[4, 64, 64]),
            ("experts.gate_up_proj_scale", "F8_E4M3", &[4, 64, 8]),
            ("experts.gate_up_proj_global_scale", "F32", &[4, 1]),
        ],
        expected: Exact(32_768),
    },
    Case {
        name: "NVFP4 under the names of vLLM",
        config: COMPRESSED,
        tensors: &[
            ("experts.w13_weight_packed", "U8", &[4, 64, 64]),
            ("experts.w13_weight_scale", "F8_E4M3", &[4, 64, 8]),
            ("experts.w13_input_scale", "F32", &[4]),
        ],
        expected: Exact(32_768),
    },
    Case {
        name: "an unquantized model may name tensors alike",
        config: "{}",
        tensors: &[
            ("mixer.B", "F32", &[64, 64]),
            ("attn.W_q", "F32", &[64, 64]),
            ("vq.codes", "F32", &[64, 64]),
        ],
        expected: Exact(3 * 4096),
    },
    // Integers with other names.
    Case {
        name: "gpt-oss in the format of OpenAI",
        config: "{}",
        tensors: &[
            ("block.0.mlp.mlp1_weight.blocks", "U8", &[4, 64, 64, 16]),
            ("block.0.mlp.mlp1_weight.scales", "U8", &[4, 64, 64]),
        ],
        expected: Exact(524_288),
    },
    Case {
        name: "GPTQ in fused experts",
        config: GPTQ,
        tensors: &[
            ("experts.w13_qweight", "I32", &[4, 16, 64]),
            ("experts.w13_scales", "F16", &[4, 1, 64]),
        ],
        expected: Inexact,
    },
    Case {
        name: "a stack of integers without a configuration",
        config: "{}",
        tensors: &[("experts.down_proj", "I32", &[8, 64, 128])],
        expected: Inexact,
    },
    Case {
        name: "masks and tables are no stacks",
        config: "{}",
        tensors: &[
            ("causal_mask", "U8", &[1, 1, 64, 64]),
            ("tid2eid", "I32", &[1000, 6]),
            ("relative_position_index", "I64", &[64, 64]),
        ],
        expected: Exact(4096 + 6000 + 4096),
    },
    // Names of scales.
    Case {
        name: "scales of Mistral, AutoFP8 and ComfyUI",
        config: FP8,
        tensors: &[
            ("wq.weight", "F8_E4M3", &[64, 64]),
            ("wq.qscale_weight", "F32", &[64, 1]),
            ("wq.qscale_act", "F32", &[1]),
            ("wk.act_scale", "F32", &[1]),
            ("attn.kv_scale", "F32", &[1]),
            ("wv.scale_input", "F32", &[1]),
            ("scaled_fp8", "F8_E4M3", &[2]),
        ],
        expected: Exact(4096),
    },
    Case {
        name: "zero points without their weights",
        config: GPTQ,
        tensors: &[
            ("a.qweight", "I32", &[8, 16]),
            ("a.scales", "F16", &[1, 16]),
            ("b.qzeros", "I32", &[1, 2]),
        ],
        expected: Inexact,
    },
    // Sizes that the configuration does not determine.
    Case {
        name: "a group size that does not fit is no scale per row",
        config: COMPRESSED,
        tensors: &[("a.weight_packed", "I32", &[64, 32]), ("a.weight_scale", "BF16", &[64, 1])],
        expected: Inexact,
    },
    Case {
        name: "embeddings with another width",
        config: EMBEDDINGS,
        tensors: &[
            ("embed.weight_packed", "I32", &[64, 32]),
            ("embed.weight_scale", "BF16", &[64, 1]),
        ],
        expected: Exact(64 * 128),
    },
    Case {
        name: "embeddings with another width, which both widths fit",
        config: r#"{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{
            "a":{"targets":["Linear"],"weights":{"num_bits":4}},
            "b":{"targets":["Embedding"],"weights":{"num_bits":8}}}}}"#,
        tensors: &[
            ("model.embed_tokens.weight_packed", "I32", &[64, 32]),
            ("model.embed_tokens.weight_scale", "BF16", &[64, 1]),
            ("lm_head.weight_packed", "I32", &[64, 16]),
            ("lm_head.weight_scale", "BF16", &[64, 1]),
        ],
        expected: Exact(2 * 64 * 128),
    },
    Case {
        name: "a row that may end inside a word",
        config: COMPRESSED_CHANNELS,
        tensors: &[("a.weight_packed", "I32", &[64, 13]), ("a.weight_scale", "BF16", &[64, 1])],
        expected: Inexact,
    },
    Case {
        name: "a row that ends inside a word, by a dimension of the model",
        config: CHANNELS,
        tensors: &[("a.weight_packed", "I32", &[64, 13]), ("a.weight_scale", "BF16", &[64, 1])],
        expected: Exact(6400),
    },
    Case {
        name: "EXL3 pads inputs, too",
        config: EXL,
        tensors: &[
            ("a.trellis", "I16", &[688, 8, 64]),
            ("a.suh", "F16", &[11_008]),
            ("a.svh", "F16", &[128]),
        ],
        expected: Inexact,
    },
    Case {
        name: "the latent attention of DeepSeek in EXL3",
        config: EXL,
        tensors: &[
            ("a.trellis", "I16", &[32, 40, 64]),
            ("a.suh", "F16", &[512]),
            ("a.svh", "F16", &[640]),
        ],
        expected: Inexact,
    },
    Case {
        name: "signs that contradict the tiles",
        config: EXL,
        tensors: &[("a.trellis", "I16", &[40, 40, 64]), ("a.suh", "F16", &[100])],
        expected: Inexact,
    },
    Case {
        name: "SDNQ with a width of a module",
        config: SDNQ,
        tensors: &[
            ("q.weight", "U8", &[2048]),
            ("q.scale", "F32", &[64, 1]),
            ("lm_head.weight", "U8", &[64, 64]),
            ("lm_head.scale", "F32", &[64, 1]),
        ],
        expected: Exact(4096 + 4096),
    },
    Case {
        name: "SDNQ without a configuration",
        config: "{}",
        tensors: &[("q.weight", "U8", &[2048]), ("q.scale", "F32", &[64, 1])],
        expected: Inexact,
    },
    Case {
        name: "two weights in a signed byte",
        config: r#"{"quantization_config":{"quant_method":"w4afp8"}}"#,
        tensors: &[("a.weight", "I8", &[64, 128]), ("a.weight_scale_inv", "BF16", &[64, 2])],
        expected: Exact(64 * 256),
    },
    Case {
        name: "scales for twice the rows",
        config: "{}",
        tensors: &[("a.weight", "I8", &[64, 64]), ("a.weight_scale", "F32", &[128, 1])],
        expected: Inexact,
    },
    Case {
        name: "scales for twice the rows of bytes",
        config: "{}",
        tensors: &[("a.weight", "U8", &[64, 64]), ("a.weight_scale", "F32", &[128, 1])],
        expected: Inexact,
    },
    Case {
        name: "a width that fits no group size of MLX",
        config: r#"{"quantization":{"bits":3}}"#,
        tensors: &[
            ("a.weight", "U32", &[64, 16]),
            ("a.scales", "BF16", &[64, 2]),
            ("a.biases", "BF16", &[64, 2]),
        ],
        expected: Inexact,
    },
    Case {
        name: "scales for twice the columns",
        config: INT8,
        tensors: &[("a.weight", "I8", &[64, 64]), ("a.weight_scale", "F32", &[64, 128])],
        expected: Inexact,
    },
    Case {
        name: "a scale for each weight",
        config: INT8,
        tensors: &[("a.weight", "I8", &[64, 64]), ("a.weight_scale", "F32", &[64, 64])],
        expected: Exact(64 * 64),
    },
    Case {
        name: "a configuration that names the model around the weights",
        config: r#"{"quantization":{"bits":4,"group_size":64,
            "language_model.model.embed":{"bits":8,"group_size":32}}}"#,
        tensors: &[
            ("model.embed.weight", "U32", &[64, 16]),
            ("model.embed.scales", "BF16", &[64, 2]),
            ("model.embed.biases", "BF16", &[64, 2]),
        ],
        expected: Exact(64 * 64),
    },
    // Contradictions.
    Case {
        name: "more groups than rows can hold",
        config: r#"{"quantization_config":{"quant_method":"hqq"}}"#,
        tensors: &[("a.W_q", "U8", &[10, 64]), ("a.scale", "F16", &[300, 1])],
        expected: Inexact,
    },
    Case {
        name: "more groups than rows can hold, SINQ",
        config: r#"{"quantization_config":{"quant_method":"sinq"}}"#,
        tensors: &[("a.W_q", "U8", &[10, 64]), ("a.meta.zero", "F16", &[300, 1])],
        expected: Inexact,
    },
    Case {
        name: "less than two bits for an input of EXL2",
        config: EXL,
        tensors: &[("a.q_weight", "I32", &[128, 1024]), ("a.q_invperm", "I32", &[16_000])],
        expected: Inexact,
    },
    Case {
        name: "a mask of other rows",
        config: COMPRESSED,
        tensors: &[("a.compressed", "BF16", &[64, 32]), ("a.bitmask", "U8", &[192, 8])],
        expected: Inexact,
    },
    Case {
        name: "a stack that shares the order of its columns",
        config: GPTQ,
        tensors: &[
            ("a.qweight", "I32", &[4, 8, 16]),
            ("a.scales", "F16", &[4, 1, 16]),
            ("a.g_idx", "I32", &[64]),
        ],
        expected: Exact(4 * 64 * 16),
    },
    Case {
        name: "an empty order of columns",
        config: GPTQ,
        tensors: &[
            ("a.qweight", "I32", &[8, 16]),
            ("a.qzeros", "I32", &[1, 2]),
            ("a.scales", "F16", &[1, 16]),
            ("a.g_idx", "I32", &[0]),
        ],
        expected: Exact(1024),
    },
    Case {
        name: "scales that do not fit blocks",
        config: MXFP4,
        tensors: &[("a.up_blocks", "U8", &[4, 2, 16]), ("a.up_scales", "U8", &[4, 3])],
        expected: Inexact,
    },
    // Values that would cause a division by zero.
    Case {
        name: "more bits than a byte of HQQ has",
        config: HQQ,
        tensors: &[("a.W_q", "U8", &[32, 64]), ("a.scale", "F16", &[1, 64])],
        expected: Inexact,
    },
    Case {
        name: "vectors of length 0",
        config: r#"{"quantization_config":{"quant_method":"vptq","config_for_layers":{"a":{"vector_lens":[0,0],
            "in_features":64,"out_features":64}}}}"#,
        tensors: &[("a.indices", "I32", &[1, 8, 64]), ("a.centroids.weight", "BF16", &[1, 4096])],
        expected: Inexact,
    },
    Case {
        name: "the list of SDNQ has the names of parameters",
        config: r#"{"quantization_config":{"quant_method":"sdnq","weights_dtype":"int4",
            "modules_dtype_dict":{"int5":["q.weight"]}}}"#,
        tensors: &[("q.weight", "U8", &[2560]), ("q.scale", "F32", &[64, 1])],
        expected: Exact(4_096),
    },
    Case {
        name: "the list of SDNQ says nothing about other modules",
        config: r#"{"quantization_config":{"quant_method":"sdnq","weights_dtype":"int4",
            "modules_dtype_dict":{"int5":["h.0.q.weight"]}}}"#,
        tensors: &[
            ("h.0.q.weight", "U8", &[2560]),
            ("h.0.q.scale", "F32", &[64, 1]),
            ("h.0.k.weight", "U8", &[2560]),
            ("h.0.k.scale", "F32", &[64, 1]),
        ],
        expected: Exact(4_096 + 5_120),
    },
    Case {
        name: "the list of SDNQ has components of names",
        config: r#"{"quantization_config":{"quant_method":"sdnq","weights_dtype":"int4",
            "modules_dtype_dict":{"minimum_6bit":["img_mod"]}}}"#,
        tensors: &[("h.img_mod.1.weight", "U8", &[3072]), ("h.img_mod.1.scale", "F32", &[64, 1])],
        expected: Exact(4_096),
    },
    Case {
        name: "the branch of SDNQ next to bytes",
        config: r#"{"quantization_config":{"quant_method":"sdnq","weights_dtype":"int8"}}"#,
        tensors: &[
            ("q.weight", "I8", &[128, 384]),
            ("q.scale", "F32", &[128, 1]),
            ("q.svd_up", "BF16", &[128, 32]),
            ("q.svd_down", "BF16", &[32, 384]),
        ],
        expected: Exact(49_152),
    },
    Case {
        name: "offsets and biases of ModelSlim",
        config: "{}",
        tensors: &[
            ("o.weight", "I8", &[64, 64]),
            ("o.weight_scale", "F32", &[64, 1]),
            ("o.weight_offset", "BF16", &[64, 1]),
            ("o.quant_bias", "I32", &[64]),
            ("o.deq_scale", "F32", &[64]),
            ("o.input_scale", "BF16", &[1]),
            ("o.input_offset", "I8", &[1]),
        ],
        expected: Exact(4_096),
    },
    Case {
        name: "a pattern that looks around could have chosen",
        config: r#"{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{
            "a":{"targets":["Linear"],"weights":{"num_bits":4}},
            "b":{"targets":["re:.*(?<!up_)proj$"],"weights":{"num_bits":8}}}}}"#,
        tensors: &[
            ("h.o_proj.weight_packed", "I32", &[16, 8]),
            ("h.o_proj.weight_scale", "BF16", &[16, 1]),
        ],
        expected: Inexact,
    },
    Case {
        name: "an order of columns for each expert",
        config: r#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#,
        tensors: &[
            ("a.qweight", "I32", &[4, 8, 16]),
            ("a.scales", "F16", &[4, 1, 16]),
            ("a.g_idx", "I32", &[4, 64]),
        ],
        expected: Exact(4_096),
    },
    // Experts that are stacked in one tensor.
    Case {
        name: "a stack of BitBLAS",
        config: r#"{"quantization_config":{"quant_method":"bitblas","bits":4}}"#,
        tensors: &[
            ("a.qweight", "I8", &[2, 64, 32]),
            ("a.scales", "F16", &[2, 64, 2]),
            ("a.qzeros", "I8", &[2, 2, 32]),
        ],
        expected: Exact(8_192),
    },
    Case {
        name: "a stack of HIGGS",
        config: r#"{"hidden_size":1024,"quantization_config":{"quant_method":"higgs"}}"#,
        tensors: &[
            ("a.weight", "I16", &[4, 8, 1024]),
            ("a.scales", "F16", &[4, 64, 4]),
            ("a.tables", "F16", &[16, 2]),
        ],
        expected: Exact(262_144),
    },
    Case {
        name: "a stack of HQQ",
        config: r#"{"quantization_config":{"quant_method":"hqq"}}"#,
        tensors: &[("a.W_q", "U8", &[4, 32, 64]), ("a.scale", "F16", &[4, 64, 1])],
        expected: Inexact,
    },
    Case {
        name: "a stack of Quark",
        config: r#"{"quantization_config":{"quant_method":"quark","bits":3,"group_size":64}}"#,
        tensors: &[("a.weight", "U8", &[4, 64, 24]), ("a.weight_scale", "F16", &[4, 1, 64])],
        expected: Exact(16_384),
    },
];

const COMPRESSED_CHANNELS: &str = r#"{"quantization_config":{"quant_method":"compressed-tensors","format":
    "pack-quantized","config_groups":{"a":{"targets":["Linear"],"weights":{"num_bits":4}}}}}"#;

/// A component that is stored twice must not be counted twice without a flag.
#[test]
fn duplicate_components_are_flagged() {
    let tensors: [(_, _, &[u64]); 2] =
        [("a.qweight", "I32", &[8, 16]), ("a.scales", "F16", &[1, 16])];
    let file = header(tensors, None);
    let mut counter = Counter::new();
    counter.add_file(&file).unwrap();
    counter.add_file(&file).unwrap();
    counter.set_configs(Configs::from_config_json(GPTQ.as_bytes()).unwrap());
    assert!(!counter.finish().unwrap().1.is_exact());
}
