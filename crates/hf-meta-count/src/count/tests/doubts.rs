//! Tests of the checks that mark a count although every module was solved.

use super::*;

fn reasons(breakdown: &CountBreakdown) -> Vec<UnresolvedReason> {
    breakdown.unresolved.iter().map(|found| found.reason).collect()
}

/// A tensor that may belong to an unknown method is next to or below the weights.
#[test]
fn an_unknown_tensor_next_to_weights_is_a_doubt() {
    let cases: [(&str, &str, &[u64], bool); 19] = [
        ("h.0.q.weight", "h.0.q.rotate.weight", &[16, 16], true),
        ("h.0.q.weight", "h.0.q.a.b.c.weight", &[16], true),
        ("h.0.q.weight", "h.0.q.amax", &[1], true),
        ("h.0.q.weight", "h.0.q.amax", &[], false),
        ("h.0.q.weight", "h.0.q.bias", &[64], false),
        ("h.0.q.weight", "h.0.k.amax", &[1], false),
        ("h.0.q.weight", "h.0.q_norm.weight", &[16], false),
        ("h.0.norm.weight", "h.0.norm.amax", &[1], false),
        ("h.0.q.weight", "h.0.q.lora_A.weight", &[8, 64], false),
        ("h.0.q.weight", "h.0.q.lora_A.default.weight", &[8, 64], false),
        ("h.0.q.weight", "h.0.q.lora.down.weight", &[8, 64], false),
        ("h.0.q.weight", "h.0.q.lora2.weight", &[8, 64], true),
        ("h.0.gate.weight", "h.0.gate.e_score_correction_bias", &[64], false),
        ("h.0.gate.weight", "h.0.gate.global_scale", &[1], false),
        ("h.0.q.weight", "h.0.q.some_scale", &[1], true),
        ("h.0.q.weight", "h.0.q.weight_quantizer.new_state", &[64], true),
        ("h.0.gate.weight", "h.0.gate.position_ids", &[64], false),
        ("h.0.q.qweight", "h.0.q.codes2", &[64], true),
        ("h.0.q.qweight", "h.0.q.scale", &[64], false),
    ];
    for (weights, other, shape, is_doubt) in cases {
        let side: &[u64] = if weights.contains("norm") { &[64] } else { &[64, 64] };
        let dtype = if weights.ends_with("qweight") { Dtype::I32 } else { Dtype::BF16 };
        let mut tensors: Vec<Tensor<'_>> = vec![
            (weights, dtype, side),
            (other, Dtype::BF16, shape),
            ("h.0.v.bias", Dtype::BF16, &[4]),
        ];
        let expected: &[&str] = if is_doubt { &[weights.rsplit_once('.').unwrap().0] } else { &[] };
        for _ in 0..2 {
            tensors.reverse();
            let (_, breakdown) = counting("{}", &tensors).unwrap();
            let mut found = breakdown.unresolved.iter();
            let found = found.find(|found| found.reason == UnresolvedReason::UnknownTensors);
            let names = found.map_or(&[][..], |found| &found.examples[..]);
            assert_eq!(names, expected, "{weights} {other}");
            assert_eq!(found.map_or(0, |found| found.modules), u64::from(is_doubt), "{other}");
        }
    }
}

/// The ancestors of a name with a million parts would take minutes.
#[test]
fn only_the_nearest_ancestors_of_a_tensor_are_looked_at() {
    for (parts, is_doubt) in [(20, true), (30, false)] {
        let other = format!("h.0.q{}.amax", ".a".repeat(parts));
        let tensors: [Tensor<'_>; 2] =
            [("h.0.q.weight", Dtype::BF16, &[64, 64]), (&other, Dtype::BF16, &[1])];
        let (_, breakdown) = counting("{}", &tensors).unwrap();
        assert_eq!(!breakdown.unresolved.is_empty(), is_doubt, "{parts} parts");
    }
}

/// The state of every quantizer that modelopt 0.47 registers, next to weights that are not packed. Names without the
/// underscore are not its.
#[test]
fn the_state_of_quantizers_is_never_counted() {
    let quantizers = [
        "input_quantizer",
        "weight_quantizer",
        "weight_quantizer.1",
        "q_bmm_quantizer",
        "softmax_quantizer",
        "gate_up_proj_input_quantizer",
        "down_proj_weight_quantizers.0",
    ];
    let states = ["_amax", "_global_amax", "_amax_post", "_pre_quant_scale", "_bias_value"];
    for (quantizer, state) in quantizers.iter().flat_map(|one| states.map(|state| (one, state))) {
        let counts = ["", "_"].map(|underscore| {
            let state = format!("h.0.q.{quantizer}.{underscore}{}", state.trim_start_matches('_'));
            let weights = ("h.0.q.weight", Dtype::BF16, &[64_u64, 64][..]);
            let (count, breakdown) =
                counting("{}", &[weights, (&state, Dtype::F32, &[64])]).unwrap();
            (count.total(), breakdown.is_exact())
        });
        assert_eq!(counts, [(64 * 64 + 64, false), (64 * 64, true)], "{quantizer} {state}");
    }
}

/// The number of modules is exact, although only ten names are kept.
#[test]
fn modules_with_unknown_tensors_are_counted_once() {
    let names =
        (0..12).flat_map(|at| ["weight", "a", "b", "c.d"].map(|part| format!("h.{at}.q.{part}")));
    let names: Vec<_> = names.collect();
    let tensors: Vec<Tensor<'_>> =
        names.iter().map(|name| (&**name, Dtype::BF16, &[64, 64][..])).collect();
    let (count, breakdown) = counting("{}", &tensors).unwrap();
    let [found] = &breakdown.unresolved[..] else { panic!("{breakdown:?}") };
    assert_eq!((found.modules, found.examples.len(), found.elements), (12, 10, 0));
    assert_eq!((count.total(), breakdown.is_exact()), (12 * 4 * 64 * 64, false));
}

/// Counts a Llama with a packed query projection and a norm.
fn llama(tensors: &[Tensor<'_>]) -> (u64, Vec<UnresolvedReason>) {
    const CONFIG: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,
        "hidden_size":120,"intermediate_size":96,"num_hidden_layers":1,"num_attention_heads":2,
        "num_key_value_heads":2,"head_dim":60,"quantization_config":{"quant_method":"compressed-tensors"}}"#;

    let (count, breakdown) = counting(CONFIG, tensors).unwrap();
    assert_eq!(breakdown.is_exact(), breakdown.unresolved.is_empty());
    (count.total(), reasons(&breakdown))
}

#[test]
fn a_size_that_contradicts_the_config_is_a_doubt() {
    let query = |rows: &'static [u64]| {
        let name = |part: &str| format!("model.layers.0.self_attn.q_proj.{part}");
        [(name("weight"), Dtype::F8_E4M3, rows), (name("weight_scale"), Dtype::F32, &[1])]
    };
    let count = |tensors: &[(String, Dtype, &'static [u64])]| {
        let tensors = tensors.iter().map(|(name, dtype, shape)| (&**name, dtype.clone(), *shape));
        llama(&tensors.collect::<Vec<_>>())
    };
    assert_eq!(count(&query(&[120, 120])), (120 * 120, vec![]));
    let contradicts = vec![UnresolvedReason::ContradictsConfig];
    assert_eq!(count(&query(&[120, 60])), (120 * 60, contradicts));
    // Weights that are not packed have the shapes that are stored.
    let norm = ("model.layers.0.input_layernorm.weight".to_owned(), Dtype::BF16, &[60][..]);
    assert_eq!(count(&[&query(&[120, 120])[..], &[norm]].concat()), (120 * 120 + 60, vec![]));
}

/// Only sides that the writer pads may be shorter than stored. `AutoRound` pads the inputs to whole groups, and with an
/// order of the inputs their number is known.
#[test]
fn the_config_implies_the_inputs_without_padding() {
    use UnresolvedReason::{ContradictsConfig, Padded};

    let count = |module: &str, order: bool, outputs: u64| {
        let name = |part: &str| format!("model.layers.0.self_attn.{module}.{part}");
        let parts: [(_, _, &[u64]); 4] = [
            ("qweight", Dtype::I32, &[16, outputs]),
            ("scales", Dtype::F16, &[8, outputs]),
            ("qzeros", Dtype::I32, &[8, outputs / 8]),
            ("g_idx", Dtype::I32, &[128]),
        ];
        let parts = parts.iter().take(3 + usize::from(order));
        let tensors: Vec<_> =
            parts.map(|(part, dtype, shape)| (name(part), dtype, *shape)).collect();
        let tensors =
            tensors.iter().map(|(name, dtype, shape)| (&**name, (*dtype).clone(), *shape));
        llama(&tensors.collect::<Vec<_>>())
    };
    assert_eq!(count("q_proj", false, 120), (120 * 120, vec![]));
    assert_eq!(count("q_proj", true, 120), (120 * 128, vec![ContradictsConfig]));
    assert_eq!(count("q_proj", false, 112), (112 * 120, vec![ContradictsConfig]));
    assert_eq!(count("new_proj", false, 120), (120 * 120, vec![Padded]));
}

/// Each group of 16 inputs has a scale, so 120 inputs are padded to 128.
#[test]
fn inputs_that_are_no_dimension_of_the_model_may_be_padded() {
    let packed: [Tensor<'_>; 2] =
        [("q.weight_packed", Dtype::U8, &[64, 64]), ("q.weight_scale", Dtype::F8_E4M3, &[64, 8])];
    let cases = [
        (r#"{"ffn_dim":64,"hidden_size":128}"#, true),
        (r#"{"ffn_dim":64,"hidden_size":113}"#, false),
        (r#"{"ffn_dim":64,"hidden_size":112}"#, true),
        (r#"{"ffn_dim":64,"hidden_size":120}"#, false),
        (r#"{"ffn_dim":64,"hidden_size":120,"intermediate_size":128}"#, true),
        (r#"{"hidden_size":120}"#, true),
        ("{}", true),
    ];
    for (config, is_exact) in cases {
        let (count, breakdown) = counting(config, &packed).unwrap();
        assert_eq!((count.total(), breakdown.is_exact()), (64 * 128, is_exact), "{config}");
        let expected: &[_] = if is_exact { &[] } else { &[UnresolvedReason::Padded] };
        assert_eq!(reasons(&breakdown), expected, "{config}");
    }
}

/// Without a configuration, only the sides of other tensors show whether a signed byte with a scale per row holds one
/// or two weights.
#[test]
fn bytes_with_half_as_many_inputs_as_a_side_are_a_doubt() {
    let model = |inputs: &'static [u64], down: &'static [u64]| {
        let bytes: [Tensor<'_>; 5] = [
            ("h.0.norm.weight", Dtype::F16, &[64]),
            ("h.0.up.weight", Dtype::I8, inputs),
            ("h.0.up.weight_scale", Dtype::F32, &[96]),
            ("h.0.down.weight", Dtype::I8, down),
            ("h.0.down.weight_scale", Dtype::F32, &[64, 1]),
        ];
        let config = r#"{"hidden_size":64}"#;
        let int8 = r#"{"quantization_config":{"quant_method":"compressed-tensors","bits":8}}"#;
        ["{}", config, int8].map(|config| counting(config, &bytes).unwrap().1.is_exact())
    };
    assert_eq!(model(&[96, 64], &[64, 96]), [true; 3]);
    assert_eq!(model(&[96, 32], &[64, 48]), [false, false, true]);
    assert_eq!(model(&[96, 64], &[64, 48]), [false, false, true]);
}

#[test]
fn experts_that_are_not_found_are_reported() {
    let (_, breakdown) = counting(GPTQ, &EXPERTS).unwrap();
    assert_eq!(breakdown.moe_unknown, None);
    let names = ["q.qweight", "q.qzeros", "q.scales"];
    let dense =
        names.iter().zip(&EXPERTS).map(|(name, (_, dtype, shape))| (*name, dtype.clone(), *shape));
    let (_, breakdown) = counting(GPTQ, &dense.collect::<Vec<_>>()).unwrap();
    assert_eq!(breakdown.moe_unknown, Some(UnknownActive::NoExperts));
    // The configuration of such a model is not requested.
    let (_, breakdown) = counting(GPTQ, &[("q.weight", Dtype::BF16, &[4, 4])]).unwrap();
    assert_eq!(breakdown.moe_unknown, None);
}

/// Floats into which several weights are packed, under names that no method uses. Only the other tensors show it, and the
/// configuration that the model is quantized.
#[test]
fn floats_in_shapes_that_fit_no_vector_are_a_doubt() {
    let embedding = ("model.embed_tokens.weight", Dtype::BF16, &[640, 64][..]);
    let norm = ("h.0.norm.weight", Dtype::BF16, &[64][..]);
    let is_exact = |name: &str, shapes: [&[u64]; 2]| {
        let [up, down] = ["up", "down"].map(|module| format!("h.0.{module}.{name}"));
        let layer = [(&*up, Dtype::F16, shapes[0]), (&*down, Dtype::F16, shapes[1])];
        let tensors = [&[embedding.clone(), norm.clone()][..], &layer].concat();
        let found = reasons(&counting("{}", &tensors).unwrap().1);
        assert_eq!(found, [], "nothing suggests a quantizer: {name} {shapes:?}");
        let found = reasons(&counting(UNKNOWN_METHOD, &tensors).unwrap().1);
        assert!(matches!(found[..], [] | [UnresolvedReason::SuspectedPacking]), "{found:?}");
        found.is_empty()
    };
    let cases: [(&str, [&[u64]; 2], bool); 8] = [
        ("weight", [&[96, 64], &[64, 96]], true),
        ("codes", [&[96, 64], &[64, 96]], true),
        // Four weights in each element: along the inputs, along the outputs, and in one dimension.
        ("weight", [&[96, 16], &[64, 24]], false),
        ("codes", [&[24, 64], &[16, 96]], false),
        ("weight", [&[1536], &[1536]], false),
        ("codes", [&[1536], &[1536]], false),
        // Experts.
        ("weight", [&[8, 96, 64], &[8, 64, 96]], true),
        ("weight", [&[8, 96, 16], &[8, 64, 24]], false),
    ];
    for (name, shapes, expected) in cases {
        assert_eq!(is_exact(name, shapes), expected, "{name} {shapes:?}");
    }
}

const UNKNOWN_METHOD: &str = r#"{"quantization_config":{"quant_method":"new"}}"#;

/// Tables, projections and heads without any sign of a quantizer, as in static embeddings and small classifiers.
#[test]
fn shapes_alone_prove_nothing() {
    let cases: [&[Tensor<'_>]; 4] = [
        &[
            ("embeddings", Dtype::F32, &[100, 768]),
            ("weights", Dtype::F32, &[768, 256]),
            ("bias", Dtype::F32, &[256]),
        ],
        &[
            ("table.weight", Dtype::F32, &[500, 64]),
            ("proj.weight", Dtype::F32, &[32, 128]),
            ("proj.bias", Dtype::F32, &[128]),
        ],
        &[
            ("users", Dtype::F64, &[1_000, 48]),
            ("items", Dtype::F64, &[2_000, 48]),
            ("mlp.0.weight", Dtype::F64, &[32, 96]),
            ("mlp.0.bias", Dtype::F64, &[32]),
        ],
        &[("codes", Dtype::I64, &[1, 2, 828]), ("index", Dtype::I64, &[64, 64])],
    ];
    for tensors in cases {
        let (count, breakdown) = counting("{}", tensors).unwrap();
        let elements = tensors.iter().map(|(_, _, shape)| shape.iter().product::<u64>());
        assert_eq!((count.total(), reasons(&breakdown)), (elements.sum(), vec![]), "{tensors:?}");
    }
    let scale: Tensor<'_> = ("proj.weight_scale", Dtype::F32, &[128]);
    let tensors = [cases[1], &[scale]].concat();
    assert!(!counting(UNKNOWN_METHOD, &tensors).unwrap().1.is_exact());
}

/// Words of 64 bits are packed weights next to scales only.
#[test]
fn long_integers_are_plain() {
    let names = ["codes", "m.qweight", "m.codes", "m.B", "m.W_q", "vq.0.trellis"];
    for name in names {
        let tensors: [Tensor<'_>; 2] =
            [(name, Dtype::I64, &[1, 2, 828]), ("norm.weight", Dtype::F32, &[64])];
        let (count, breakdown) = counting("{}", &tensors).unwrap();
        assert_eq!((count.total(), reasons(&breakdown)), (2 * 828 + 64, vec![]), "{name}");
    }
    let many: Vec<_> = (0..8).map(|at| format!("vq.{at}.codes")).collect();
    let many: Vec<Tensor<'_>> =
        many.iter().map(|name| (&**name, Dtype::I64, &[4, 512][..])).collect();
    assert_eq!(reasons(&counting("{}", &many).unwrap().1), []);
}

/// The norms of Qwen 4's experimental models are longer than the sides of their matrices.
#[test]
fn shapes_that_the_configuration_implies_are_no_doubt() {
    let layer: [Tensor<'_>; 4] = [
        ("model.layers.0.attn_hyper_connection.hc_norm.weight", Dtype::BF16, &[256]),
        (
            "model.layers.0.attn_hyper_connection.input_mix_weight_down.weight",
            Dtype::BF16,
            &[48, 256],
        ),
        ("model.layers.0.linear_attn.in_proj_z.weight", Dtype::BF16, &[128, 64]),
        ("model.layers.0.mlp.experts.0.up_proj.weight", Dtype::BF16, &[32, 64]),
    ];
    let known = r#"{"model_type":"qwen4_exp_text","hidden_size":64,"moe_intermediate_size":32,
        "linear_num_value_heads":4,"linear_value_head_dim":32}"#;
    let doubt = &[UnresolvedReason::SuspectedPacking][..];
    for (config, expected) in [(known, &[][..]), ("{}", &[]), (UNKNOWN_METHOD, doubt)] {
        assert_eq!(reasons(&counting(config, &layer).unwrap().1), expected, "{config}");
    }
}

/// Models without norms and biases, models most of which are tables or convolutions, and adapters have nothing to compare.
#[test]
fn shapes_prove_nothing_without_vectors_and_in_tables_and_adapters() {
    let cases: [&[Tensor<'_>]; 5] = [
        &[("h.0.up.weight", Dtype::F16, &[96, 64]), ("h.0.down.weight", Dtype::F16, &[64, 96])],
        &[
            ("model.embed_tokens.weight", Dtype::F16, &[640, 64]),
            ("model.embed_tokens_per_layer.weight", Dtype::F16, &[640, 48]),
            ("model.norm.weight", Dtype::F16, &[64]),
        ],
        &[
            ("conv.weight", Dtype::F16, &[24, 16, 3, 3]),
            ("head.weight", Dtype::F16, &[10, 24]),
            ("head.bias", Dtype::F16, &[10]),
        ],
        // Flux 2 has norms of attention heads only.
        &[
            ("x_embedder.weight", Dtype::BF16, &[96, 8]),
            ("blocks.0.attn.norm_q.weight", Dtype::BF16, &[8]),
            ("blocks.0.attn.to_q.weight", Dtype::BF16, &[96, 96]),
            ("blocks.0.ff.linear_in.weight", Dtype::BF16, &[288, 96]),
        ],
        &[
            ("base_model.model.h.0.up.lora_A.weight", Dtype::F32, &[8, 64]),
            ("base_model.model.h.0.up.lora_B.weight", Dtype::F32, &[96, 8]),
            ("base_model.model.head.weight", Dtype::F32, &[2, 64]),
            ("base_model.model.head.bias", Dtype::F32, &[2]),
        ],
    ];
    for tensors in cases {
        assert_eq!(reasons(&counting("{}", tensors).unwrap().1), [], "{tensors:?}");
    }
}

/// `AutoGPTQ` stores a bias of zeros next to all packed weights.
#[test]
fn biases_that_the_configuration_excludes_are_not_counted() {
    let names = ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"];
    let count = |model: &str| {
        let config = format!(
            r#"{{{model},"hidden_size":64,"num_attention_heads":4,"quantization_config":{{"quant_method":"gptq","bits":4}}}}"#
        );
        let parts: [(_, _, &[u64]); 4] = [
            ("bias", Dtype::F16, &[64]),
            ("qweight", Dtype::I32, &[8, 64]),
            ("scales", Dtype::F16, &[1, 64]),
            ("qzeros", Dtype::I32, &[1, 8]),
        ];
        let full_names = names
            .iter()
            .flat_map(|module| parts.iter().map(move |(part, ..)| format!("{module}.{part}")));
        let full_names: Vec<_> = full_names.collect();
        let norm = ("model.norm.weight", Dtype::F16, &[64][..]);
        let tensors = full_names.iter().zip(parts.iter().cycle());
        let tensors = tensors.map(|(name, (_, dtype, shape))| (&**name, dtype.clone(), *shape));
        let (count, breakdown) =
            counting(&config, &tensors.chain([norm]).collect::<Vec<_>>()).unwrap();
        let bias = CountedAs::AuxiliaryTensor(AuxiliaryTensor::Bias);
        let added = breakdown.groups.iter().find(|group| group.counted_as == bias);
        let reasons: Vec<_> = breakdown.unresolved.iter().map(|found| found.reason).collect();
        let tensors = added.map_or(0, |group| group.count.tensors);
        (count.total() - 2 * 64 * 64 - 64, tensors, reasons)
    };
    let (left_out, counted) = ((0, 2, vec![]), (128, 0, vec![]));
    let doubtful = (128, 0, vec![UnresolvedReason::UnknownBias]);
    assert_eq!(count(r#""model_type":"llama","attention_bias":false"#), left_out);
    assert_eq!(count(r#""model_type":"llama""#), left_out, "the default of the class");
    assert_eq!(count(r#""model_type":"qwen2_moe""#), doubtful);
    assert_eq!(count(r#""model_type":"llama","attention_bias":true"#), doubtful);
    assert_eq!(count(r#""model_type":"qwen2","attention_bias":false"#), counted);
    assert_eq!(count(r#""model_type":"llama","attention_bias":false,"auto_map":{}"#), doubtful);
    assert_eq!(count(r#""model_type":"new""#), doubtful);
}

/// Neural Compressor adds biases to the text model of a model with images, whose vision tower has separate biases, and to
/// routed experts.
#[test]
fn added_biases_of_one_stack_are_a_doubt() {
    let packed = |module: &str| {
        let parts: [(&str, Dtype, &[u64]); 4] = [
            ("bias", Dtype::F16, &[64]),
            ("qweight", Dtype::I32, &[8, 64]),
            ("scales", Dtype::F16, &[1, 64]),
            ("qzeros", Dtype::I32, &[1, 8]),
        ];
        parts.map(|(part, dtype, shape)| (format!("{module}.{part}"), dtype, shape))
    };
    let vision = |part: &str, shape: &'static [u64]| {
        (format!("visual.blocks.0.attn.qkv.{part}"), Dtype::F16, shape)
    };
    let own = [vision("weight", &[192, 64]), vision("bias", &[192])];
    let norm = ("model.layers.0.norm.weight".to_owned(), Dtype::F16, &[64_u64][..]);
    let is_doubt = |modules: [&str; 2], others: &[(String, Dtype, &'static [u64])]| {
        let tensors = modules.iter().flat_map(|module| packed(module));
        let tensors: Vec<_> = tensors.chain(others.iter().cloned()).collect();
        let tensors: Vec<Tensor<'_>> =
            tensors.iter().map(|(name, dtype, shape)| (&**name, dtype.clone(), *shape)).collect();
        let (_, breakdown) = counting(GPTQ, &tensors).unwrap();
        reasons(&breakdown).contains(&UnresolvedReason::UnknownBias)
    };
    let text = ["model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"];
    let experts = ["model.layers.0.mlp.experts.0.up", "model.layers.0.mlp.experts.1.up"];
    let tower = [&own[..], &[norm]].concat();
    assert!(is_doubt(text, &tower) && is_doubt(experts, &tower));
    // A layer with a bias that is not packed has real biases.
    let norm_bias = ("model.layers.0.norm.bias".to_owned(), Dtype::F16, &[64_u64][..]);
    assert!(!is_doubt(text, &[tower, vec![norm_bias]].concat()));
}

/// The scales of an FP8 attention, next to weights that are not quantized.
#[test]
fn the_scales_of_an_attention_are_never_counted() {
    for scale in ["q_scale", "k_scale", "v_scale", "k_cache_scale"] {
        for (shape, counted) in [(&[1][..], 0), (&[64], 64)] {
            let name = format!("model.layers.0.self_attn.attn.{scale}");
            let tensors: [Tensor<'_>; 2] = [
                ("model.layers.0.self_attn.q_proj.weight", Dtype::BF16, &[64, 64]),
                (&name, Dtype::F32, shape),
            ];
            let (count, _) = counting("{}", &tensors).unwrap();
            assert_eq!(count.total(), 64 * 64 + counted, "{scale} {shape:?}");
        }
    }
}

/// An 8-bit weight that is an object with several fields.
#[test]
fn weights_with_fields_are_exact() {
    let norm: Tensor<'_> = ("h.0.norm.weight", Dtype::F32, &[32]);
    for (weights, scale) in
        [("h.0.q.weight.qweight", "h.0.q.weight.scale"), ("h.0.q.qweight", "h.0.q.scale")]
    {
        for shape in [&[64, 1][..], &[64]] {
            let tensors: [Tensor<'_>; 3] =
                [norm.clone(), (weights, Dtype::I8, &[64, 32]), (scale, Dtype::F32, shape)];
            let (count, breakdown) = counting("{}", &tensors).unwrap();
            assert_eq!((count.total(), reasons(&breakdown)), (64 * 32 + 32, vec![]), "{weights}");
            assert_eq!(breakdown.module_kinds[0].packing.bits, Some(8), "{weights}");
        }
    }
}

/// The tensors that `sinq` 0.2 with transformers 5.24 stores for a module, and the frequencies that models compute.
#[test]
fn the_computed_buffers_of_sinq_are_not_counted() {
    let tensors: [Tensor<'_>; 14] = [
        ("model.rotary_emb.inv_freq", Dtype::F32, &[32]),
        ("model.rotary_emb.original_inv_freq", Dtype::F32, &[32]),
        ("model.norm.weight", Dtype::BF16, &[64]),
        ("model.layers.0.mlp.down_proj.W_q", Dtype::U8, &[64, 64]),
        ("model.layers.0.mlp.down_proj.meta.scale.x", Dtype::U8, &[32, 4]),
        ("model.layers.0.mlp.down_proj.meta.scale.m", Dtype::F16, &[1, 4]),
        ("model.layers.0.mlp.down_proj.meta.scale.s", Dtype::F16, &[1, 4]),
        ("model.layers.0.mlp.down_proj.meta.scale2", Dtype::F16, &[1, 128]),
        ("model.layers.0.mlp.down_proj.meta.zero.x", Dtype::U8, &[128, 1]),
        ("model.layers.0.mlp.down_proj.meta.zero.m", Dtype::F16, &[1, 1]),
        ("model.layers.0.mlp.down_proj.meta.zero.s", Dtype::F16, &[1, 1]),
        // Gemma 3 has frequencies for each type of layer, and a tower of CLIP the IDs of its positions.
        ("model.rotary_emb.sliding_attention_inv_freq", Dtype::F32, &[16]),
        ("model.rotary_emb.sliding_attention_original_inv_freq", Dtype::F32, &[16]),
        ("vision_tower.vision_model.embeddings.position_ids", Dtype::I64, &[1, 17]),
    ];
    let sinq = r#"{"quantization_config":{"quant_method":"sinq","nbits":4,"group_size":64}}"#;
    for config in [sinq, "{}"] {
        let (count, breakdown) = counting(config, &tensors).unwrap();
        assert_eq!((count.total(), breakdown.is_exact()), (64 * 128 + 64, true), "{config}");
    }
    let (count, _) = counting("{}", &tensors[..3]).unwrap();
    assert_eq!(count.total(), 32 + 32 + 64, "models stored them once");
}
