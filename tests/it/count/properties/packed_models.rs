//! A model of random size, packed by a random method and split into random shards, is counted as before packing.

use std::collections::BTreeMap;

use hf_meta_count::count::{Configs, Counter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::config;
use crate::support::header;

/// The parts of a packed matrix: name, dtype and shape.
type Parts = Vec<(&'static str, &'static str, Vec<u64>)>;

/// The choices of a packer: bits of a weight, and weights that share a scale.
#[derive(Clone, Copy, Debug)]
struct Choice {
    bits: u64,
    group: u64,
}

/// A method with the widths and group sizes that it writes.
struct Packer {
    name: &'static str,
    bits: &'static [u64],
    groups: &'static [u64],
    /// Packs a matrix of some outputs and inputs, both multiples of 128.
    pack: fn(u64, u64, Choice) -> Parts,
    config: fn(Choice) -> Value,
}

const PACKERS: [Packer; 24] = [
    Packer {
        name: "gptq",
        bits: &[2, 3, 4, 5, 6, 7, 8],
        groups: &[32, 64, 128],
        pack: gptq,
        config: gptq_config,
    },
    Packer {
        name: "gptq without g_idx",
        bits: &[2, 4, 8],
        groups: &[32, 64, 128],
        pack: gptq_columns,
        config: gptq_config,
    },
    Packer {
        name: "auto-round",
        bits: &[2, 3, 4, 8],
        groups: &[32, 128],
        pack: gptq_columns,
        config: |c| method("auto-round", c),
    },
    Packer {
        name: "awq",
        bits: &[4],
        groups: &[32, 64, 128],
        pack: awq,
        config: |c| method("awq", c),
    },
    Packer {
        name: "bitsandbytes",
        bits: &[4],
        groups: &[64],
        pack: nf4,
        config: |_| json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
    },
    Packer {
        name: "bitsandbytes in BF16",
        bits: &[4],
        groups: &[64],
        pack: nf4_wide,
        config: |_| json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
    },
    Packer {
        name: "LLM.int8",
        bits: &[8],
        groups: &[0],
        pack: int8,
        config: |_| json!({"quant_method": "bitsandbytes", "load_in_8bit": true}),
    },
    Packer {
        name: "compressed-tensors",
        bits: &[2, 3, 4, 5, 6, 7, 8],
        groups: &[32, 64, 128],
        pack: compressed,
        config: compressed_config,
    },
    Packer {
        name: "marlin-24",
        bits: &[4, 8],
        groups: &[128],
        pack: marlin_24,
        config: compressed_config,
    },
    Packer {
        name: "nvfp4",
        bits: &[4],
        groups: &[16],
        pack: nvfp4,
        config: |_| json!({"quant_method": "modelopt"}),
    },
    Packer {
        name: "mxfp4",
        bits: &[4],
        groups: &[32],
        pack: mxfp4,
        config: |_| json!({"quant_method": "quark"}),
    },
    Packer {
        name: "fp8",
        bits: &[8],
        groups: &[128],
        pack: fp8,
        config: |_| json!({"quant_method": "fp8"}),
    },
    Packer {
        name: "eetq",
        bits: &[8],
        groups: &[0],
        pack: eetq,
        config: |_| json!({"quant_method": "eetq"}),
    },
    Packer {
        name: "bitnet",
        bits: &[2],
        groups: &[0],
        pack: bitnet,
        config: |_| json!({"quant_method": "bitnet"}),
    },
    Packer {
        name: "aqlm",
        bits: &[2],
        groups: &[8, 16],
        pack: aqlm,
        config: |_| json!({"quant_method": "aqlm"}),
    },
    Packer {
        name: "exl2",
        bits: &[2, 3, 4, 5, 6, 8],
        groups: &[32],
        pack: exl2,
        config: |_| json!({"quant_method": "exl2"}),
    },
    Packer {
        name: "exl3",
        bits: &[1, 2, 3, 4, 6, 8],
        groups: &[0],
        pack: exl3,
        config: |_| json!({"quant_method": "exl3"}),
    },
    Packer { name: "hqq", bits: &[1, 2, 4, 8], groups: &[64], pack: hqq, config: hqq_config },
    Packer {
        name: "quanto",
        bits: &[2, 4],
        groups: &[128],
        pack: quanto,
        config: |c| json!({"quant_method": "quanto", "weights": format!("int{}", c.bits)}),
    },
    Packer {
        name: "mlx",
        bits: &[2, 3, 4, 5, 6, 8],
        groups: &[32, 64, 128],
        pack: mlx,
        config: |c| json!({"bits": c.bits, "group_size": c.group}),
    },
    Packer {
        name: "metal",
        bits: &[2, 4, 8],
        groups: &[32, 64],
        pack: metal,
        config: |c| method("metal", c),
    },
    Packer {
        name: "nunchaku",
        bits: &[4],
        groups: &[64],
        pack: nunchaku,
        config: |_| json!({"method": "svdquant"}),
    },
    Packer {
        name: "fp-quant",
        bits: &[4],
        groups: &[16, 32],
        pack: fp_quant,
        config: |_| json!({"quant_method": "fp_quant"}),
    },
    Packer {
        name: "sparse",
        bits: &[16],
        groups: &[0],
        pack: sparse,
        config: |_| json!({"quant_method": "compressed-tensors", "format": "sparse-24-bitmask"}),
    },
];

fn method(name: &str, Choice { bits, group }: Choice) -> Value {
    json!({"quant_method": name, "bits": bits, "group_size": group})
}

fn gptq_config(choice: Choice) -> Value {
    method("gptq", choice)
}

fn compressed_config(Choice { bits, group }: Choice) -> Value {
    let weights = json!({"num_bits": bits, "group_size": group, "strategy": "group"});
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
}

fn hqq_config(Choice { bits, group }: Choice) -> Value {
    json!({"quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": group, "axis": 1}}})
}

fn gptq(o: u64, i: u64, choice: Choice) -> Parts {
    let mut parts = gptq_columns(o, i, choice);
    parts.push(("g_idx", "I32", vec![i]));
    parts
}

fn gptq_columns(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("qweight", "I32", vec![i * bits / 32, o]),
        ("qzeros", "I32", vec![i / group, o * bits / 32]),
        ("scales", "F16", vec![i / group, o]),
    ]
}

fn awq(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![
        ("qweight", "I32", vec![i, o / 8]),
        ("qzeros", "I32", vec![i / group, o / 8]),
        ("scales", "F16", vec![i / group, o]),
    ]
}

fn nf4(o: u64, i: u64, choice: Choice) -> Parts {
    let mut parts = nf4_wide(o, i, choice);
    parts[0] = ("weight", "U8", vec![o * i / 2, 1]);
    parts
}

fn nf4_wide(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![
        ("weight", "BF16", vec![o * i / 4, 1]),
        ("weight.absmax", "F32", vec![o * i / group]),
        ("weight.quant_map", "F32", vec![16]),
        ("weight.quant_state.bitsandbytes__nf4", "U8", vec![80]),
    ]
}

fn int8(o: u64, i: u64, _: Choice) -> Parts {
    vec![("weight", "I8", vec![o, i]), ("SCB", "F32", vec![o]), ("weight_format", "U8", vec![])]
}

fn compressed(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("weight_packed", "I32", vec![o, i * bits / 32]),
        ("weight_scale", "BF16", vec![o, i / group]),
        ("weight_shape", "I64", vec![2]),
    ]
}

fn marlin_24(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("weight_packed", "I32", vec![i / 32, o * bits / 2]),
        ("scale_packed", "F16", vec![i / group, o]),
        ("meta", "I16", vec![i / 32, o * 2]),
    ]
}

fn nvfp4(o: u64, i: u64, _: Choice) -> Parts {
    vec![
        ("weight", "U8", vec![o, i / 2]),
        ("weight_scale", "F8_E4M3", vec![o, i / 16]),
        ("weight_scale_2", "F32", vec![]),
    ]
}

fn mxfp4(o: u64, i: u64, _: Choice) -> Parts {
    vec![("weight", "U8", vec![o, i / 2]), ("weight_scale", "U8", vec![o, i / 32])]
}

fn fp8(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![("weight", "F8_E4M3", vec![o, i]), ("weight_scale_inv", "F32", vec![o / group, i / group])]
}

fn eetq(o: u64, i: u64, _: Choice) -> Parts {
    vec![("weight", "I8", vec![i, o]), ("weight_scales", "F16", vec![o])]
}

fn bitnet(o: u64, i: u64, _: Choice) -> Parts {
    vec![("weight", "U8", vec![o / 4, i]), ("weight_scale", "BF16", vec![1])]
}

fn aqlm(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![
        ("codes", "I16", vec![o, i / group, 1]),
        ("codebooks", "F16", vec![1, 65_536, 1, group]),
        ("scales", "F16", vec![o, 1, 1, 1]),
    ]
}

fn exl2(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("q_weight", "I32", vec![i * bits / 32, o]),
        ("q_invperm", "I32", vec![i]),
        ("q_scale", "I32", vec![i / group, o / 8]),
        ("q_scale_max", "F16", vec![i / group]),
        ("q_groups", "I16", vec![2 * i / group]),
    ]
}

fn exl3(o: u64, i: u64, Choice { bits, .. }: Choice) -> Parts {
    vec![
        ("trellis", "I16", vec![i / 16, o / 16, 16 * bits]),
        ("suh", "F16", vec![i]),
        ("svh", "F16", vec![o]),
    ]
}

fn hqq(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("W_q", "U8", vec![o * i / group * bits / 8, group]),
        ("scale", "BF16", vec![o * i / group, 1]),
        ("zero", "BF16", vec![o * i / group, 1]),
    ]
}

fn quanto(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("weight._data._data", "U8", vec![o * i / group * bits / 8, group]),
        ("weight._scale", "BF16", vec![o * i / group, 1]),
        ("weight._shift", "BF16", vec![o * i / group, 1]),
    ]
}

fn mlx(o: u64, i: u64, Choice { bits, group }: Choice) -> Parts {
    vec![
        ("weight", "U32", vec![o, i * bits / 32]),
        ("scales", "BF16", vec![o, i / group]),
        ("biases", "BF16", vec![o, i / group]),
    ]
}

fn metal(o: u64, i: u64, choice: Choice) -> Parts {
    let mut parts = mlx(o, i, choice);
    parts[2].0 = "qbiases";
    parts
}

fn nunchaku(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![
        ("qweight", "I8", vec![o, i / 2]),
        ("wscales", "BF16", vec![i / group, o]),
        ("smooth_factor", "BF16", vec![i]),
        ("proj_down", "BF16", vec![i, 32]),
        ("proj_up", "BF16", vec![o, 32]),
    ]
}

fn fp_quant(o: u64, i: u64, Choice { group, .. }: Choice) -> Parts {
    vec![
        ("qweight", "U8", vec![o, i / 2]),
        ("scales", "U8", vec![o, i / group]),
        ("forward_hadamard_matrix", "BF16", vec![group, group]),
    ]
}

fn sparse(o: u64, i: u64, _: Choice) -> Parts {
    vec![
        ("compressed", "BF16", vec![o, i / 2]),
        ("bitmask", "U8", vec![o, i / 8]),
        ("shape", "I64", vec![2]),
    ]
}

/// A packer, by its position, with one of its choices.
fn packer() -> impl Strategy<Value = (usize, Choice)> {
    (0..PACKERS.len()).prop_flat_map(|at| {
        let Packer { bits, groups, .. } = PACKERS[at];
        (select(bits), select(groups)).prop_map(move |(bits, group)| (at, Choice { bits, group }))
    })
}

const MODULES: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn packed_models_count_like_the_original(
        (method, choice) in packer(),
        sizes in vec((1_u64..20, 1_u64..20), 1..7),
        shards in 1_usize..4,
        places in any::<u64>(),
    ) {
        let packer = &PACKERS[method];
        let mut files = vec![BTreeMap::new(); shards];
        let mut at = 0;
        let mut put = |name: String, tensor| {
            at += 1;
            let place = usize::try_from(places.rotate_left(at) % 64).unwrap() % shards;
            files[place].insert(name, tensor);
        };
        put("norm.weight".to_owned(), ("BF16", vec![64]));
        put("embed_tokens.weight".to_owned(), ("BF16", vec![512, 128]));
        let mut parameters = 64 + 512 * 128;
        let mut config = Map::new();
        for (module, (outputs, inputs)) in MODULES.iter().zip(sizes) {
            let (outputs, inputs) = (outputs * 128, inputs * 128);
            parameters += outputs * inputs;
            config.insert(format!("{module}_hidden_size"), inputs.into());
            config.insert(format!("{module}_intermediate_size"), outputs.into());
            for (part, dtype, shape) in (packer.pack)(outputs, inputs, choice) {
                put(format!("model.layers.0.{module}.{part}"), (dtype, shape));
            }
        }
        let section = (packer.config)(choice);
        let key = if section.get("group_size").is_some() && section.get("quant_method").is_none() {
            "quantization"
        } else {
            "quantization_config"
        };
        let mut counter = Counter::new();
        for file in &files {
            counter.add_file(&header(file.iter().map(|(name, (dtype, shape))| (name, *dtype, &**shape)), None)).unwrap();
        }
        config.insert(key.to_owned(), section);
        let config = Value::Object(config).to_string();
        counter.set_configs(Configs::from_config_json(config.as_bytes()).unwrap());
        let (counted, breakdown) = counter.finish().unwrap();
        let found = (counted.total(), breakdown.is_exact());
        prop_assert_eq!(found, (parameters, true), "{} {:?}", packer.name, choice);
    }
}
