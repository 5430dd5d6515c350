//! The count of a set of weights does not depend on the way to it: the order of the tensors, the split into
//! files, and the moment at which the configuration arrives.

use std::collections::BTreeMap;

use hf_meta::{ParameterCount, SafetensorsFileHeader};
use hf_meta_count::count::{Configs, CountBreakdown, Counter};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::config;
use crate::support::header;

const MODULES: [&str; 14] = [
    "embeddings",
    "lm_head",
    "model.layers.0.attn",
    "model.layers.0.mlp.experts.0.w1",
    "model.layers.0.mlp.experts.1.w1",
    "model.layers.1.mlp.experts.0.w1",
    "model.layers.1.mlp.experts.1.w1",
    "model.layers.1.mlp.experts",
    "model.layers.1.mlp.shared_experts",
    "model.layers.2.mlp.experts.0.w1",
    "model.layers.5000.mlp",
    "mtp",
    "mtp.layers.0.mlp.experts.0.w1",
    "vision.encoder.layers.3.mlp",
];

const PARTS: [&str; 20] = [
    "weight",
    "weight",
    "weight",
    "bias",
    "norm.weight",
    "qweight",
    "qzeros",
    "g_idx",
    "scales",
    "biases",
    "weight_packed",
    "weight_scale",
    "weight_shape",
    "weight_scale_inv",
    "gate_up_proj_blocks",
    "gate_up_proj_scales",
    "weight.absmax",
    "quant_state.bitsandbytes__nf4",
    "position_ids",
    "masked_bias",
];

const DTYPES: [&str; 9] = ["BF16", "F32", "U8", "I8", "U32", "U32", "I32", "I64", "F8_E8M0"];

const SHAPES: [&[u64]; 5] = [&[], &[0, 2], &[2], &[2, 4], &[1, 1, 4, 4]];

const EXPERTS: &str = r#""num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,
    "num_hidden_layers":2,"expert_dtype":"fp4""#;

const QUANTIZATIONS: [&str; 10] = [
    r#""quantization_config":null"#,
    r#""quantization_config":{"quant_method":"gptq","bits":4}"#,
    r#""quantization_config":{"quant_method":"awq","modules_to_not_convert":["lm_head"]}"#,
    r#""quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true}"#,
    r#""quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",
        "ignore":["re:.*layers.0.*"]}"#,
    r#""quantization_config":{"quant_method":"fp8"}"#,
    r#""quantization_config":{"quant_method":"mxfp4"}"#,
    r#""quantization_config":{"quant_method":"hqq","bits":4}"#,
    r#""quantization":{"bits":4,"group_size":64}"#,
    r#""quantization":{"mode":"mxfp4","lm_head":false}"#,
];

/// Tensors by name, each with its dtype and shape.
type Tensors = BTreeMap<String, (&'static str, &'static [u64])>;

fn tensors() -> impl Strategy<Value = Tensors> {
    let name = (select(&MODULES[..]), select(&PARTS[..]));
    let name = name.prop_map(|(module, part)| format!("{module}.{part}"));
    btree_map(name, (select(&DTYPES[..]), select(&SHAPES[..])), 0..40)
}

fn config_json() -> impl Strategy<Value = String> {
    let experts = prop_oneof![Just(format!("{EXPERTS},")), Just(String::new())];
    (experts, select(&QUANTIZATIONS[..]))
        .prop_map(|(experts, quantization)| format!("{{{experts}{quantization}}}"))
}

/// Counts files, with the configuration set before the file of that number, or after the last one.
fn count(
    files: &[SafetensorsFileHeader],
    config: &str,
    config_before: usize,
) -> (ParameterCount, CountBreakdown, bool) {
    let mut counter = Counter::new();
    let configs = Configs::from_config_json(config.as_bytes()).unwrap();
    for (at, file) in files.iter().enumerate() {
        if at == config_before {
            counter.set_configs(configs.clone());
        }
        counter.add_file(file).unwrap();
    }
    let needs_config = counter.needs_config();
    counter.set_configs(configs);
    let (parameters, breakdown) = counter.finish().unwrap();
    (parameters, breakdown, needs_config)
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn every_path_gives_the_same_count(
        tensors in tensors(),
        order in vec(any::<(Index, Index)>(), 40),
        splits in vec(any::<Index>(), 0..4),
        config in config_json(),
        config_before in 0_usize..6,
    ) {
        let sorted: Vec<_> =
            tensors.iter().map(|(name, (dtype, shape))| (&**name, *dtype, *shape)).collect();
        let mut shuffled = sorted.clone();
        if !shuffled.is_empty() {
            for (a, b) in order {
                let (a, b) = (a.index(shuffled.len()), b.index(shuffled.len()));
                shuffled.swap(a, b);
            }
        }
        let mut ends: Vec<_> = splits.iter().map(|at| at.index(shuffled.len() + 1)).collect();
        ends.extend([0, shuffled.len()]);
        ends.sort_unstable();
        let files: Vec<_> =
            ends.windows(2).map(|range| header(shuffled[range[0]..range[1]].iter().copied(), None)).collect();
        let one_file = [header(sorted.iter().copied(), None)];
        let expected = count(&one_file, &config, 0);
        prop_assert_eq!(count(&files, &config, config_before), expected);
    }

    #[test]
    fn tensors_that_need_no_config_count_the_same_with_any_config(
        tensors in tensors(),
        config in config_json(),
    ) {
        let tensors: Vec<_> =
            tensors.iter().map(|(name, (dtype, shape))| (&**name, *dtype, *shape)).collect();
        let file = [header(tensors, None)];
        let (with, _, needs_config) = count(&file, &config, 0);
        let (without, _, _) = count(&file, "{}", 0);
        prop_assert!(needs_config || with == without);
    }
}
