use std::collections::HashSet;

use hf_meta::SafetensorsFileHeader;

use super::*;
use crate::terminal::TerminalSize;

/// Returns the tree of `BF16` tensors with these shapes.
fn tree<'a>(tensors: impl IntoIterator<Item = (String, &'a [u64])>) -> Tree {
    let mut at = 0;
    let entries = tensors.into_iter().map(|(name, lengths)| {
        let start = at;
        at += lengths.iter().product::<u64>() * 2;
        format!(r#""{name}":{{"dtype":"BF16","shape":{lengths:?},"data_offsets":[{start},{at}]}}"#)
    });
    let entries: Vec<_> = entries.collect();
    let json = format!("{{{}}}", entries.join(","));
    Tree::from_tensors(SafetensorsFileHeader::from_json(json.as_bytes()).unwrap().tensors())
}

fn drawn(tree: &Tree, terminal: Option<TerminalSize>) -> Vec<String> {
    let mut out = Vec::new();
    write_tree(&mut Page { out: &mut out, terminal }, tree, None).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

/// The tensor names of DeepSeek-V3: 61 layers, of which 58 have 256 experts, and a multi-token-prediction layer.
fn deepseek() -> Vec<(String, &'static [u64])> {
    let linear = |tensors: &mut Vec<_>, name: &str, shape: &'static [u64]| {
        tensors.push((format!("{name}.weight"), shape));
        tensors.push((format!("{name}.weight_scale_inv"), &[56, 128][..]));
    };
    let mlp = |tensors: &mut Vec<_>, name: &str, shapes: [&'static [u64]; 2]| {
        linear(tensors, &format!("{name}.gate_proj"), shapes[0]);
        linear(tensors, &format!("{name}.up_proj"), shapes[0]);
        linear(tensors, &format!("{name}.down_proj"), shapes[1]);
    };
    let mut all: Vec<(String, &[u64])> = vec![
        ("model.embed_tokens.weight".to_owned(), &[129_280, 7168]),
        ("model.norm.weight".to_owned(), &[7168]),
        ("lm_head.weight".to_owned(), &[129_280, 7168]),
    ];
    for layer in 0..62 {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            all.push((name(&format!("{norm}.weight")), &[7168]));
        }
        linear(&mut all, &name("self_attn.q_a_proj"), &[1536, 7168]);
        all.push((name("self_attn.q_a_layernorm.weight"), &[1536]));
        linear(&mut all, &name("self_attn.q_b_proj"), &[24_576, 1536]);
        linear(&mut all, &name("self_attn.kv_a_proj_with_mqa"), &[576, 7168]);
        all.push((name("self_attn.kv_a_layernorm.weight"), &[512]));
        linear(&mut all, &name("self_attn.kv_b_proj"), &[32_768, 512]);
        linear(&mut all, &name("self_attn.o_proj"), &[7168, 16_384]);
        if layer < 3 {
            mlp(&mut all, &name("mlp"), [&[18_432, 7168], &[7168, 18_432]]);
            continue;
        }
        all.push((name("mlp.gate.weight"), &[256, 7168]));
        all.push((name("mlp.gate.e_score_correction_bias"), &[256]));
        mlp(&mut all, &name("mlp.shared_experts"), [&[2048, 7168], &[7168, 2048]]);
        for expert in 0..256 {
            let name = name(&format!("mlp.experts.{expert}"));
            mlp(&mut all, &name, [&[2048, 7168], &[7168, 2048]]);
        }
    }
    for (part, shape) in [
        ("embed_tokens.weight", &[129_280, 7168][..]),
        ("enorm.weight", &[7168]),
        ("hnorm.weight", &[7168]),
        ("eh_proj.weight", &[7168, 14_336]),
        ("shared_head.norm.weight", &[7168]),
        ("shared_head.head.weight", &[129_280, 7168]),
    ] {
        all.push((format!("model.layers.61.{part}"), shape));
    }
    all
}

#[test]
fn a_model_of_91_991_tensors_fits_on_a_screen() {
    let tensors = deepseek();
    assert_eq!(tensors.len(), 91_991);
    let tree = tree(tensors);
    let whole = drawn(&tree, None);
    assert!(whole.len() < 70, "{} lines", whole.len());
    assert!(whole.iter().any(|line| line.contains("experts.[0-255]  ")), "{whole:#?}");
    for (width, height) in [(60, 24), (80, 24), (120, 50)] {
        let screen = drawn(&tree, Some(TerminalSize { width, height }));
        assert!(screen.len() + 4 <= height, "{screen:#?}");
        let shown = |line: &String| anstream::adapter::strip_str(line).to_string();
        assert!(screen.iter().all(|line| shown(line).chars().count() <= width), "{screen:#?}");
    }
}

/// Bars repeat the shares, but dtypes and shapes are shown nowhere else.
#[test]
fn bars_are_dropped_before_dtypes_and_shapes() {
    let tree = tree([("transformer.h.attention.weight".to_owned(), &[768, 2304][..])]);
    for (width, has_bar) in [(100, true), (80, false), (60, false)] {
        let screen = drawn(&tree, Some(TerminalSize { width, height: 24 })).join("\n");
        assert!(screen.contains("BF16 [768, 2304]"), "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= width), "{screen}");
        assert_eq!(screen.contains('█'), has_bar, "{screen}");
    }
}

/// The name of a tensor in a module is worth more than its guide lines, and the first tensor of a list than the ends of
/// all of them.
#[test]
fn narrow_rows_keep_what_differs() {
    let experts: [(_, &[u64]); 5] = [
        ("down_proj_blocks", &[32, 2880, 90, 16]),
        ("down_proj_scales", &[32, 2880, 90]),
        ("gate_up_proj_blocks", &[32, 5760, 90, 16]),
        ("gate_up_proj_scales", &[32, 5760, 90]),
        ("sinks", &[64]),
    ];
    let module = |name: &str| format!("model.layers.0.mlp.{name}");
    let experts = experts.map(|(name, shape)| (module(&format!("experts.{name}")), shape));
    let other: [(_, &[u64]); 4] = [
        (module("router.bias"), &[32]),
        (module("router.weight"), &[32, 2880]),
        ("model.layers.0.norm".to_owned(), &[2880]),
        ("model.norm".to_owned(), &[2880]),
    ];
    let screen = drawn(
        &tree(experts.into_iter().chain(other)),
        Some(TerminalSize { width: 60, height: 24 }),
    );
    let names = screen
        .iter()
        .filter_map(|line| line.split("  ").find(|name| name.contains('…') && name.contains('─')));
    assert_eq!(names.collect::<HashSet<_>>().len(), 4, "{screen:#?}");
    assert!(screen.iter().any(|line| line.ends_with("bias BF16 [32], w…")), "{screen:#?}");
}

#[test]
fn a_note_reports_hidden_rows() {
    let screen = Some(TerminalSize { width: 80, height: 14 });
    let shapes: Vec<_> = (1..100_u64).map(|length| [length]).collect();
    let tensors = || shapes.iter().map(|shape| (format!("t{}", shape[0]), &shape[..]));
    assert_eq!(drawn(&tree(tensors()), screen).len(), 1 + 99 + 1, "one level is always shown");
    let nested = tensors().map(|(name, shape)| (format!("m.{name}"), shape));
    let lines = drawn(&tree(nested), screen);
    assert!(lines[1].starts_with("m [+99] "), "{lines:#?}");
    assert!(lines[3].contains("not shown: the tensors of modules with [+N];"), "{lines:#?}");
}

#[test]
fn a_bar_is_exact_to_an_eighth_of_a_character() {
    let cases = [
        (0, 8, ""),
        (8, 8, "██████████"),
        (1, 2, "█████"),
        (1, u64::MAX, "▏"),
        (u64::MAX, u64::MAX, "██████████"),
        (3, 16, "█▉"),
        (0, 0, ""),
    ];
    for (part, whole, shown) in cases {
        assert_eq!(bar(part, whole), shown, "{part} of {whole}");
    }
}
