//! Tests of the counter, from tensors to counts.

mod doubts;
mod flagged;
mod oracles;
mod packers;

use std::path::Path;

use super::methods::METHODS;
use super::names::COMPONENTS;
use super::*;
use hf_meta_format::formats::{
    Dtype, FileHeader, ModelDescription, TensorInfo, TensorTableBuilder,
};

type Tensor<'a> = (&'a str, Dtype, &'a [u64]);

/// Returns the text of a page, by its path in the project.
pub(super) fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Checks that each page contains a text with numbers of this test, and lists all that do not.
pub(crate) fn assert_stated(stated: &[(&str, String)]) {
    let missing = stated.iter().filter(|(path, text)| !page(path).contains(text));
    let missing: Vec<_> = missing.map(|(path, text)| format!("{path} must say: {text}")).collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn counting(config: &str, tensors: &[Tensor<'_>]) -> Option<(ParameterCount, CountBreakdown)> {
    let config = Configs::from_config_json(config.as_bytes()).unwrap();
    let mut counter = Counter::new();
    counter.set_configs(config);
    for (name, dtype, shape) in tensors {
        let (dtype, shape) = (dtype.clone(), shape.to_vec());
        counter.add(name, &TensorInfo::new(dtype, shape, (0, 0))).ok()?;
    }
    counter.finish().ok()
}

const GPTQ: &str = r#"{"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32},
    "num_experts":2,"num_experts_per_tok":1}"#;

/// Two experts with 64 × 16 weights of 4 bits each, in groups of 32.
const EXPERTS: [(&str, Dtype, &[u64]); 6] = [
    ("h.0.experts.0.q.qweight", Dtype::I32, &[8, 16]),
    ("h.0.experts.0.q.qzeros", Dtype::I32, &[2, 2]),
    ("h.0.experts.0.q.scales", Dtype::F16, &[2, 16]),
    ("h.0.experts.1.q.qweight", Dtype::I32, &[8, 16]),
    ("h.0.experts.1.q.qzeros", Dtype::I32, &[2, 2]),
    ("h.0.experts.1.q.scales", Dtype::F16, &[2, 16]),
];

/// The bias of a tied embedding is stored, and `SigLIP` has a vector in a module named `head`.
#[test]
fn vectors_are_not_tied_embeddings() {
    let embedding = ("model.embed_tokens.weight", Dtype::F32, &[32, 8][..]);
    for (name, shape, is_tied) in [
        ("vision_tower.head.probe", &[1, 1, 8][..], false),
        ("lm_head.bias", &[32], false),
        ("lm_head.weight", &[32, 8], true),
    ] {
        let tensors = [embedding.clone(), (name, Dtype::F32, shape)];
        let (_, found) = counting(r#"{"tie_word_embeddings":true}"#, &tensors).unwrap();
        assert_eq!(found.tied_output.is_some(), is_tied, "{name}");
    }
}

#[test]
fn tensors_are_grouped_by_class() {
    let rest: [(&str, Dtype, &[u64]); 4] = [
        ("norm.weight", Dtype::BF16, &[5]),
        ("attn.bias", Dtype::F32, &[1, 1, 4, 4]),
        ("attn.masked_bias", Dtype::F32, &[]),
        ("other.scales", Dtype::F16, &[3]),
    ];
    let tensors: Vec<_> = EXPERTS.into_iter().chain(rest).collect();
    let (count, counting) = counting(GPTQ, &tensors).unwrap();
    let groups: Vec<_> = counting
        .groups
        .iter()
        .map(|group| {
            let DtypeCount { tensors, elements, parameters, .. } = group.count;
            let buffer = group.buffer.map_or_else(String::new, |buffer| format!(" ({buffer})"));
            let what = format!("{} {}{buffer}", group.dtype, group.counted_as);
            format!("{what}: {tensors}, {elements}, {parameters}")
        })
        .collect();
    assert_eq!(
        groups,
        [
            "F16 as stored: 1, 3, 3",
            "F16 scale, not counted: 2, 64, 0",
            "BF16 as stored: 1, 5, 5",
            "I32 unpacked from gptq 4-bit: 2, 256, 2048",
            "I32 zero point, not counted: 2, 8, 0",
            "F32 as stored (attention mask): 1, 16, 16",
            "F32 scalar, not counted (attention mask): 1, 0, 0",
        ]
    );
    let counted: Vec<_> = count.iter().map(|(dtype, n)| (dtype.as_str(), n)).collect();
    assert_eq!(counted, [("F16", 3), ("BF16", 5), ("I32", 2048), ("F32", 16)]);
    assert_eq!((count.total(), counting.is_exact()), (2072, true));
    assert_eq!((counting.rules, counting.method.as_deref()), (RuleSet::CURRENT, Some("gptq")));
    assert_eq!((counting.unknown_method, counting.rules.to_string()), (None, "hf-meta 1".into()));
    assert_eq!(counting.moe.map(|moe| moe.active()), Some(1_048));
    let kinds: Vec<_> = counting.module_kinds.iter().map(|kind| kind.modules).collect();
    assert_eq!(kinds, [2]);
}

/// Modules are counted by their parts, regardless of the method's name.
#[test]
fn an_unknown_method_is_named() {
    let config = r#"{"quantization_config":{"quant_method":"New-GPTQ","bits":4,"group_size":32}}"#;
    let (count, breakdown) = counting(config, &EXPERTS).unwrap();
    assert_eq!((count.total(), breakdown.is_exact()), (2048, true));
    assert_eq!(breakdown.unknown_method.as_deref(), Some("new-gptq"));
    assert_eq!(breakdown.method, breakdown.unknown_method);
    let (_, breakdown) = counting("{}", &EXPERTS).unwrap();
    assert_eq!((breakdown.method.as_deref(), breakdown.unknown_method), (Some("gptq"), None));
    assert_eq!(counting("{}", &[]).unwrap().1.method, None);
}

/// Modules with equal shapes have equal sizes, unless the configuration distinguishes them.
#[test]
fn equal_modules_may_have_different_schemes() {
    let module = |weights, scales| -> [Tensor<'static>; 2] {
        [(weights, Dtype::I32, &[8, 16]), (scales, Dtype::F16, &[1, 16])]
    };
    let tensors = [
        module("h.0.q.qweight", "h.0.q.scales"),
        module("h.1.q.qweight", "h.1.q.scales"),
        module("h.2.q.qweight", "h.2.q.scales"),
    ];
    let total = |others: &str| {
        let config =
            format!(r#"{{"quantization_config":{{"quant_method":"gptq","bits":4{others}}}}}"#);
        counting(&config, tensors.as_flattened()).unwrap().0.total()
    };
    let (four, eight) = (64 * 16, 32 * 16);
    assert_eq!(total(""), 3 * four);
    assert_eq!(total(r#","h.1.q":{"bits":8}"#), 2 * four + eight);
    assert_eq!(total(r#","dynamic":{"+:.*[12].q$":{"bits":8}}"#), four + 2 * eight);
}

/// The reasons of all unresolved modules, and the number of parameters.
fn unresolved(config: &str, tensors: &[Tensor<'_>]) -> (Vec<UnresolvedReason>, u64) {
    let (count, breakdown) = counting(config, tensors).unwrap();
    assert_eq!(breakdown.is_exact(), breakdown.unresolved.is_empty());
    (breakdown.unresolved.iter().map(|found| found.reason).collect(), count.total())
}

#[test]
fn unresolved_modules_are_counted_as_stored() {
    let scales: (_, _, &[u64]) = ("q.scales", Dtype::F16, &[2, 16]);
    let cases: [(&str, &[Tensor<'_>], UnresolvedReason, u64); 6] = [
        (GPTQ, &[("q.qweight", Dtype::I32, &[8, 16])], UnresolvedReason::MissingComponents, 128),
        (
            GPTQ,
            &[("q.qweight", Dtype::I32, &[8, 15]), scales.clone()],
            UnresolvedReason::ConflictingComponents,
            120,
        ),
        (
            "{}",
            &[("q.qweight", Dtype::I32, &[8, 16]), scales],
            UnresolvedReason::AmbiguousScheme,
            128,
        ),
        ("{}", &[("q.weight", Dtype::U8, &[8, 16])], UnresolvedReason::SuspectedPacking, 128),
        (GPTQ, &[("q.weight", Dtype::U8, &[8, 16])], UnresolvedReason::UnknownComponents, 128),
        (GPTQ, &[("q.table", Dtype::I32, &[32, 32])], UnresolvedReason::UnknownComponents, 1_024),
    ];
    for (config, tensors, reason, total) in cases {
        assert_eq!(unresolved(config, tensors), (vec![reason], total), "{config} {tensors:?}");
    }
}

/// Parts with shapes that do not fit their method, and similar parts that do.
#[test]
fn a_method_checks_the_shapes_of_its_parts() {
    let config =
        |method: &str| format!(r#"{{"quantization_config":{{"quant_method":"{method}"}}}}"#);
    let codes: Tensor<'_> = ("q.codes", Dtype::I16, &[32, 4, 1]);
    let conflicts: [(&str, &[Tensor<'_>]); 7] = [
        (
            "aqlm",
            &[
                codes.clone(),
                ("q.codebooks", Dtype::F16, &[2, 256, 1, 8]),
                ("q.scales", Dtype::F16, &[32, 1, 1, 1]),
            ],
        ),
        (
            "aqlm",
            &[
                codes,
                ("q.codebooks", Dtype::F16, &[1, 256, 1, 8]),
                ("q.scales", Dtype::F16, &[31, 1, 1, 1]),
            ],
        ),
        ("quark", &[("q.weight", Dtype::I32, &[8, 16]), ("q.weight_scale", Dtype::F32, &[9])]),
        ("awq", &[("q.qweight", Dtype::I16, &[8, 16]), ("q.scales", Dtype::F16, &[2, 31])]),
        (
            "gptq",
            &[
                ("q.qweight", Dtype::I32, &[8, 16]),
                ("q.qzeros", Dtype::I32, &[2, 3]),
                ("q.scales", Dtype::F16, &[2, 16]),
            ],
        ),
        (
            "quanto",
            &[
                ("q.weight._data._data", Dtype::U8, &[8, 16]),
                ("q.weight._scale", Dtype::F32, &[4, 1]),
            ],
        ),
        (
            "torchao",
            &[("q._weight_qdata", Dtype::I16, &[8, 16]), ("q._weight_scale", Dtype::F32, &[8, 1])],
        ),
    ];
    for (method, tensors) in conflicts {
        let found = unresolved(&config(method), tensors);
        assert_eq!(found, (vec![UnresolvedReason::ConflictingComponents], 128), "{method}");
    }
    let bytes = ("q.weight", Dtype::I8, &[128, 16][..]);
    for scales in [[128, 1], [2, 2]] {
        let tensors = [bytes.clone(), ("q.weight_scale", Dtype::F32, &scales)];
        assert_eq!(unresolved("{}", &tensors), (vec![], 128 * 16), "{scales:?}");
    }
    // Two rows packed into one: a single column of scales could belong to another format.
    let halves: Tensor<'_> = ("q.weight", Dtype::U8, &[32, 64]);
    let scales = |columns| -> Tensor<'_> { ("q.weight_scale", Dtype::F32, columns) };
    assert_eq!(unresolved("{}", &[halves.clone(), scales(&[64, 2])]), (vec![], 64 * 64));
    assert_eq!(unresolved(&config("modelopt"), &[halves, scales(&[64, 1])]), (vec![], 64 * 64));
    let hqq: [Tensor<'_>; 2] = [("q.W_q", Dtype::U8, &[4, 64]), ("q.scale", Dtype::F16, &[8, 1])];
    let (count, breakdown) = counting("{}", &hqq).unwrap();
    assert_eq!((count.total(), breakdown.module_kinds[0].packing.bits), (512, Some(4)));
}

#[test]
fn non_weight_integers_are_exact() {
    let cases: [(&str, Dtype, &[u64]); 5] = [
        ("gate.tid2eid", Dtype::I32, &[8, 6]),
        ("embeddings.position_ids", Dtype::I32, &[1, 16]),
        ("q.weight", Dtype::U8, &[16]),
        ("q.weight", Dtype::I64, &[8, 16]),
        ("q.scales", Dtype::U8, &[8, 16]),
    ];
    for tensor in cases {
        let total = tensor.2.iter().product();
        assert_eq!(unresolved("{}", std::slice::from_ref(&tensor)), (vec![], total), "{tensor:?}");
    }
}

/// Scales also exist next to unpacked weights, for example for the key-value cache.
#[test]
fn scales_are_auxiliary_in_every_quantized_model() {
    let scale: (_, _, &[u64]) = ("attn.k_scale", Dtype::F32, &[1]);
    let eight_bits: (_, _, &[u64]) = ("q.weight", Dtype::F8_E4M3, &[8, 8]);
    let cases: [(&str, &[Tensor<'_>], u64); 3] = [
        ("{}", std::slice::from_ref(&scale), 0),
        (GPTQ, std::slice::from_ref(&scale), 0),
        ("{}", &[scale.clone(), eight_bits], 64),
    ];
    for (config, tensors, total) in cases {
        assert_eq!(unresolved(config, tensors), (vec![], total), "{config} {tensors:?}");
    }
}

#[test]
fn an_overflow_while_unpacking_is_an_error() {
    let module = |columns: u64| {
        let qweight = TensorInfo::new(Dtype::I32, vec![1 << 10, columns], (0, 0));
        let order = TensorInfo::new(Dtype::I32, vec![1 << 13], (0, 0));
        let scales = TensorInfo::new(Dtype::F16, vec![1, columns], (0, 0));
        let mut counter = Counter::new();
        for (part, tensor) in [("qweight", qweight), ("g_idx", order), ("scales", scales)] {
            counter.add(&format!("m.{part}"), &tensor).unwrap();
        }
        for rest in ["a", "b"] {
            counter.add(rest, &bf16(1 << 62)).unwrap();
        }
        counter.finish().map(|(count, _)| count.total())
    };
    assert_eq!(module((1 << 50) - 1), Ok(u64::MAX - (1 << 13) + 1));
    assert_eq!(module(1 << 50), Err(CountOverflow { tensor: "m.qweight".to_owned() }));
}

const DRAFTS: &str = r#"{"num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,
    "num_hidden_layers":1}"#;

/// A layer and a draft layer with two experts of 8 parameters each, and 8 other parameters.
const DRAFT_TENSORS: [&str; 6] = [
    "embed.weight",
    "layers.0.mlp.experts.0.weight",
    "layers.0.mlp.experts.1.weight",
    "layers.1.mlp.experts.0.weight",
    "layers.1.mlp.experts.1.weight",
    "mtp.norm.weight",
];

#[test]
fn draft_layers_are_recognized_whenever_the_configuration_arrives() {
    for config_before in 0..=DRAFT_TENSORS.len() {
        let mut counter = Counter::new();
        for (at, name) in DRAFT_TENSORS.iter().enumerate() {
            if at == config_before {
                counter.set_configs(Configs::from_config_json(DRAFTS.as_bytes()).unwrap());
            }
            counter.add(name, &bf16(8)).unwrap();
        }
        counter.set_configs(Configs::from_config_json(DRAFTS.as_bytes()).unwrap());
        let moe = counter.finish().unwrap().1.moe.unwrap();
        assert_eq!((moe.active(), moe.draft, moe.total()), (16, 24, 48), "{config_before}");
    }
}

fn bf16(length: u64) -> TensorInfo {
    TensorInfo::new(Dtype::BF16, vec![length], (0, length))
}

#[test]
fn only_the_first_configuration_has_an_effect() {
    let mut counter = Counter::new();
    counter.set_configs(Configs::default());
    counter.set_configs(Configs::from_config_json(GPTQ.as_bytes()).unwrap());
    counter.add("qweight", &bf16(10)).unwrap();
    assert_eq!(counter.finish().unwrap().0.total(), 10);
}

/// GGUF states the shapes of the weights and the numbers of experts, so it needs no configuration.
#[test]
fn self_describing_files_are_counted_by_elements() {
    let mut model = ModelDescription::default();
    (model.layers, model.draft_layers) = (Some(2), Some(1));
    (model.experts, model.experts_per_token) = (Some(4), Some(2));
    let tensors: [(_, _, &[u64]); 8] = [
        ("rope_freqs.weight", "F32", &[32]),
        ("rope_factors_long.weight", "F32", &[32]),
        ("blk.0.ffn_up.scale", "F32", &[1]),
        ("blk.0.ffn_up.input_scale", "F32", &[1]),
        ("blk.0.ffn_up_exps.weight", "Q8_0", &[4, 2, 32]),
        ("blk.1.ffn_up_exps.weight", "Q8_0", &[4, 2, 32]),
        ("blk.0.attn_q.qweight", "I32", &[8, 16]),
        ("blk.0.attn.bias", "F32", &[1, 1, 4, 4]),
    ];
    let mut builder = TensorTableBuilder::new();
    let mut end = 0;
    for (name, dtype, shape) in tensors {
        let (dtype, begin) = (Dtype::from(dtype), end);
        let block = dtype.block().unwrap();
        end += shape.iter().product::<u64>() / block.elements * block.bytes;
        builder.push(name, &TensorInfo::new(dtype, shape.to_vec(), (begin, end)));
    }
    let mut header = FileHeader::new(builder.finish().unwrap(), 0..0);
    let mut counter = Counter::new();
    (header.model, header.is_self_describing) = (Some(Box::new(model)), true);
    counter.add_file(&header).unwrap();
    assert!(!counter.needs_config());
    let (count, breakdown) = counter.finish().unwrap();
    assert!(breakdown.is_exact());
    assert_eq!(count.total(), 256 + 256 + 128 + 16);
    let moe = breakdown.moe.unwrap();
    assert_eq!((moe.experts, moe.routed_active, moe.draft), (4, 128, 256));
    let buffers: Vec<_> = breakdown.groups.iter().filter_map(|group| group.buffer).collect();
    assert_eq!(buffers, [Buffer::AttentionMask]);
}

/// The Hub counts a request for `config.json` as a download.
#[test]
fn only_tensors_that_may_be_packed_or_routed_need_a_configuration() {
    let cases: [(&str, Dtype, &[u64], bool); 23] = [
        ("q.weight", Dtype::BF16, &[64, 64], false),
        ("q.weight", Dtype::F8_E4M3, &[64, 64], false),
        ("q.weight", Dtype::I8, &[64, 64], true),
        // bitsandbytes packs into a column of any dtype.
        ("q.weight", Dtype::BF16, &[64, 1], true),
        ("q.weight", Dtype::BF16, &[1, 1], false),
        ("q.weight", Dtype::F8_E4M3, &[64, 1], false),
        ("q.qweight", Dtype::I32, &[8, 16], true),
        ("q.qweight", Dtype::I32, &[], false),
        ("q.absmax", Dtype::F32, &[2], true),
        // Learned scales have the same name.
        ("q.scale", Dtype::BF16, &[64], false),
        ("q.scale", Dtype::U8, &[64], true),
        // A name that no quantizer uses.
        ("q.bias", Dtype::I32, &[64], false),
        ("q.table", Dtype::I32, &[32, 32], true),
        ("q.table", Dtype::I64, &[32, 32], false),
        ("q.table", Dtype::F32, &[32, 32], false),
        ("q.table", Dtype::F8_E5M2, &[32, 32], false),
        ("embeddings.position_ids", Dtype::I32, &[1, 16], false),
        ("h.0.mlp.experts.0.up.bias", Dtype::BF16, &[4], true),
        ("h.0.mlp.experts.0.up.bias", Dtype::BF16, &[], false),
        ("h.0.mlp.experts.norm", Dtype::BF16, &[4], false),
        ("h.0.moe.gate.weight", Dtype::BF16, &[4, 64], true),
        ("h.0.mlp.gate.weight", Dtype::BF16, &[1_024, 4_096], false),
        ("h.0.mlp.shared_experts.0.weight", Dtype::BF16, &[4, 4], false),
    ];
    for (name, dtype, shape, expected) in cases {
        let length = dtype.byte_length(shape.iter().product()).unwrap();
        let tensor = TensorInfo::new(dtype, shape.to_vec(), (0, length));
        let mut builder = TensorTableBuilder::default();
        builder.push(name, &tensor);
        let header = FileHeader::new(builder.finish().unwrap(), 0..0);
        assert_eq!(needs_config(&header), expected, "{name} {tensor:?}");
        let mut counter = Counter::new();
        counter.add(name, &tensor).unwrap();
        counter.add("norm.weight", &bf16(4)).unwrap();
        assert_eq!(counter.needs_config(), expected, "{name} {tensor:?}");
    }
}

/// All ways to read headers must give the same count, although some have a configuration that others do not request.
#[test]
fn an_unneeded_config_changes_nothing() {
    let shapes: [&[u64]; 6] = [&[], &[1], &[64], &[64, 1], &[64, 64], &[2, 8, 64]];
    let dtypes = [Dtype::BOOL, Dtype::U8, Dtype::I32, Dtype::I64, Dtype::F8_E4M3, Dtype::BF16];
    let configs: Vec<_> = METHODS
        .iter()
        .filter_map(|method| method.names.first().copied())
        .map(|name| {
            let quantization = format!(r#"{{"quant_method":"{name}","bits":4,"group_size":32}}"#);
            let config = format!(r#"{{"quantization_config":{quantization}}}"#);
            Configs::from_config_json(config.as_bytes()).unwrap()
        })
        .collect();
    let mut unchanged = 0;
    let mut name = String::new();
    for component in COMPONENTS.iter() {
        component.write_tensor_name("model.layers.0.q", &mut name);
        for (dtype, shape) in dtypes.iter().flat_map(|dtype| shapes.map(|shape| (dtype, shape))) {
            let mut counter = Counter::new();
            let tensor = TensorInfo::new(dtype.clone(), shape.to_vec(), (0, 0));
            counter.add(&name, &tensor).unwrap();
            if counter.needs_config() {
                continue;
            }
            let count = |configs: Configs| {
                let mut counter = counter.clone();
                counter.set_configs(configs);
                let (parameters, breakdown) = counter.finish().unwrap();
                (parameters, CountBreakdown { method: None, ..breakdown })
            };
            let without = count(Configs::default());
            for configs in &configs {
                assert_eq!(count(configs.clone()), without, "{name} {tensor:?} {configs:?}");
                unchanged += 1;
            }
        }
    }
    assert!(unchanged > 10_000, "{unchanged} comparisons");
}

/// At most one of the two files that describe a model besides `config.json` is requested.
#[test]
fn another_config_is_needed_only_if_shapes_are_ambiguous() {
    let packed: Tensor<'_> = ("q.qweight", Dtype::I32, &[8, 16]);
    let scales: Tensor<'_> = ("q.scales", Dtype::F16, &[2, 16]);
    let zeros: Tensor<'_> = ("q.qzeros", Dtype::I32, &[2, 2]);
    let order: Tensor<'_> = ("q.g_idx", Dtype::I32, &[64]);
    let expert: Tensor<'_> = ("h.0.mlp.experts.0.w", Dtype::BF16, &[4]);
    let cases: [(&str, &[Tensor<'_>], Option<&str>); 7] = [
        ("{}", &[packed.clone(), scales.clone()], Some("quantize_config.json")),
        ("{}", &[packed.clone(), scales.clone(), expert.clone()], Some("quantize_config.json")),
        ("{}", &[packed.clone(), scales.clone(), zeros, order], None),
        (GPTQ, &[packed, scales], None),
        ("{}", std::slice::from_ref(&expert), Some("params.json")),
        (GPTQ, std::slice::from_ref(&expert), None),
        ("{}", &[("norm.weight", Dtype::BF16, &[4])], None),
    ];
    for (config, tensors, expected) in cases {
        let mut counter = Counter::new();
        for (name, dtype, shape) in tensors {
            let tensor = TensorInfo::new(dtype.clone(), shape.to_vec(), (0, 0));
            counter.add(name, &tensor).unwrap();
        }
        let configs = Configs::from_config_json(config.as_bytes()).unwrap();
        assert_eq!(counter.other_config_file(&configs), expected, "{config} {tensors:?}");
    }
}

/// More groups than the recent ones, in an order that leaves and revisits each.
#[test]
fn groups_of_many_dtypes_are_summed() {
    let tensors: Vec<Tensor<'_>> =
        Dtype::KNOWN.iter().map(|dtype| ("norm", dtype.clone(), &[3][..])).collect();
    let (count, breakdown) = counting("{}", &[&tensors[..], &tensors].concat()).unwrap();
    assert_eq!(breakdown.groups.len(), Dtype::KNOWN.len());
    assert!(breakdown.groups.iter().all(|group| group.count.tensors == 2), "{breakdown:?}");
    assert_eq!(count.rows().len(), Dtype::KNOWN.len());
    assert_eq!(count.totals().elements, 6 * Dtype::KNOWN.len() as u64);
}

/// A hostile file must not create millions of module kinds or examples.
#[test]
fn kinds_and_examples_are_limited() {
    let limits = |modules: usize, has_qweight: bool| {
        let mut counter = Counter::new();
        for at in 0..modules {
            let qweight = TensorInfo::new(Dtype::I32, vec![8, 16], (0, 0));
            let dtype = format!("NEW{at}").as_str().into();
            let scales = TensorInfo::new(dtype, vec![2, 16], (0, 0));
            if has_qweight {
                counter.add(&format!("m.{at}.qweight"), &qweight).unwrap();
            }
            counter.add(&format!("m.{at}.scales"), &scales).unwrap();
            counter.add(&format!("x.{at}.qweight"), &qweight).unwrap();
        }
        counter.set_configs(Configs::from_config_json(GPTQ.as_bytes()).unwrap());
        let (_, breakdown) = counter.finish().unwrap();
        let examples = breakdown.unresolved[0].examples.len();
        (breakdown.module_kinds.len(), examples)
    };
    assert_eq!(limits(2, true), (2, 2));
    assert_eq!(limits(199, true), (199, 10));
    assert_eq!(limits(201, true), (200, 10));
    assert_eq!(limits(2, false), (0, 2));
}

/// The table of the documentation has only names that a declaration contains. A test in `methods/names.rs` checks that it
/// has all of them.
#[test]
fn the_documentation_lists_only_parts_of_layouts() {
    let page = page("src/docs/quantization.md");
    let (_, table) = page.split_once("| method | parts").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.split('|').nth(2));
    let texts = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names: Vec<_> = texts
        .map(|text| text.trim_start_matches('…'))
        .filter(|text| matches!(Dtype::from(*text), Dtype::Other(_)))
        .collect();
    let known: Vec<_> = COMPONENTS.iter().map(|component| component.name).collect();
    let unknown: Vec<_> = names.iter().filter(|name| !known.contains(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new());
}

/// The entries of a training checkpoint that are not the model are not counted, and bits and memory leave them out.
#[test]
fn the_state_of_a_training_run_is_not_counted() {
    use hf_meta_format::formats::TrainingEntry;
    use hf_meta_format::formats::pytorch::PickleSummary;

    let mut table = TensorTableBuilder::new();
    let mut at = 0;
    for name in ["model.w", "copy.m.w", "adam.state.0.exp_avg", "adam.state.0.step", "config.shift"]
    {
        let shape = if name.ends_with("step") { vec![] } else { vec![8, 4] };
        let end = at + 4 * shape.iter().product::<u64>();
        table.push(name, &TensorInfo::new(Dtype::F32, shape, (at, end)));
        at = end;
    }
    let mut header = FileHeader::new(table.finish().unwrap(), 0..100);
    let entries = [
        ("copy", TrainingEntry::Copy),
        ("adam", TrainingEntry::OptimizerState),
        ("config", TrainingEntry::Value),
    ];
    let entries = entries.map(|(name, role)| (name.to_owned(), role)).into();
    let mut pickle = PickleSummary::default();
    pickle.entries = entries;
    header.pickle = Some(Box::new(pickle));
    let mut counter = Counter::new();
    counter.add_file(&header).unwrap();
    let (count, breakdown) = counter.finish().unwrap();
    assert_eq!((count.total(), count.totals().elements), (32, 4 * 32));
    assert_eq!((breakdown.model_bytes(), breakdown.weight_bytes()), (128, 128));
    let classes: Vec<_> = breakdown.groups.iter().map(|group| group.counted_as).collect();
    for class in [CountedAs::EmaCopy, CountedAs::OptimizerState, CountedAs::TrainingValue] {
        assert!(classes.contains(&class), "{classes:?}");
    }
}
