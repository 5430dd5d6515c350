//! A packed module without its weight, or without a part that its method requires, is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Checkpoint, Mismatch, MismatchKind, Severity, fixtures};
use crate::count::{Component, split_name};

/// The tensors of each module, with their components.
type Modules = BTreeMap<String, Vec<(String, &'static Component)>>;

fn modules(checkpoint: &Checkpoint) -> Modules {
    let mut modules = Modules::new();
    for name in checkpoint.tensors.keys() {
        let (module, component) = split_name(name);
        modules.entry(module.to_owned()).or_default().push((name.clone(), component));
    }
    modules
}

/// The states in which a checkpoint may be published.
const STATES: [&str; 3] = ["as written", "of an unknown architecture", "without a configuration"];

fn in_state(mut checkpoint: Checkpoint, state: usize) -> Checkpoint {
    match state {
        1 => {
            if let Some(config) = checkpoint.config.as_object_mut() {
                config.insert("model_type".to_owned(), json!("unknown"));
                config.insert("architectures".to_owned(), json!(["UnknownForCausalLM"]));
            }
        }
        2 => checkpoint.config = Value::Null,
        _ => {}
    }
    checkpoint
}

fn is_refused(checkpoint: &Checkpoint, module: &str) -> bool {
    let is_named = |found: &Mismatch| {
        found.kind.rule().severity == Severity::Error && found.to_string().contains(module)
    };
    checkpoint.mismatches().iter().any(is_named)
}

/// A module, the names of its weights, and its other tensors.
type PackedTensors = (String, Vec<String>, Vec<(String, &'static Component)>);

/// Returns the first, the middle and the last of some modules.
fn some<T: Clone>(all: &[T]) -> Vec<T> {
    let mut places = vec![0, all.len() / 2, all.len().saturating_sub(1)];
    places.dedup();
    places.into_iter().filter_map(|at| all.get(at).cloned()).collect()
}

/// Calls a function with each fixture and its packed modules.
fn for_each(mut call: impl FnMut(&str, &Checkpoint, &[PackedTensors])) {
    for entry in fixtures().join("quantized").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let fixture = path.file_stem().unwrap().display().to_string();
        let checkpoint = Checkpoint::from_fixture(&path);
        let packed = modules(&checkpoint).into_iter().filter_map(|(module, parts)| {
            let (weights, others): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|(_, part)| part.is_weights());
            let weights: Vec<_> = weights.into_iter().map(|(name, _)| name).collect();
            (!weights.is_empty() && !others.is_empty()).then_some((module, weights, others))
        });
        call(&fixture, &checkpoint, &packed.collect::<Vec<_>>());
    }
}

/// The fixtures whose parts have names that unquantized models use, too, or that contain other packed modules.
const AMBIGUOUS: [&str; 15] = [
    "comfyui-",
    "compressed-tensors-sparse-24-bitmask-fp8",
    "compressed-tensors-w4-stacked-experts",
    "exl3-packed-signs",
    "fbgemm-fp8-stacked-experts",
    "fp-quant-",
    "fp8-block-stacked-experts",
    "gguf-blocks-",
    "gptq-marlin",
    "hqq-",
    "modelopt-",
    "qqq-",
    "quip-sharp-e8p",
    "sdnq-real-",
    "vptq-",
];

/// If no module has its weight, none shows what the others lack, but a method has all of their parts.
#[test]
fn a_checkpoint_without_any_packed_weight_is_refused() {
    let (mut refused, mut silent) = (0, Vec::new());
    for_each(|fixture, checkpoint, packed| {
        for (at, state) in STATES.iter().enumerate() {
            let mut broken = in_state(checkpoint.clone(), at);
            for name in packed.iter().flat_map(|(_, weights, _)| weights) {
                broken.tensors.remove(name);
            }
            // Only packed weights are a reason to read this file.
            broken.config.as_object_mut().map(|config| config.remove("quantize_config"));
            if packed.iter().any(|(module, ..)| is_refused(&broken, module)) {
                refused += 1;
            } else if !AMBIGUOUS.iter().any(|start| fixture.starts_with(start)) {
                silent.push(format!("{fixture}, {state}"));
            }
        }
    });
    assert_eq!(silent, Vec::<String>::new(), "{refused} refused");
    assert!(refused > 900, "{refused}");
}

/// Scales without a weight have no meaning to any loader, whatever the method, the module and the architecture are.
#[test]
fn a_packed_module_needs_its_weight() {
    let (mut tried, mut silent) = (0, Vec::new());
    for_each(|fixture, checkpoint, packed| {
        for (at, state) in STATES.iter().enumerate() {
            let tried_here = if at == 0 { packed.to_vec() } else { some(packed) };
            for (module, weights, _) in tried_here {
                let mut broken = in_state(checkpoint.clone(), at);
                broken.tensors.retain(|name, _| !weights.contains(name));
                tried += 1;
                if !is_refused(&broken, &module) {
                    silent.push(format!("{fixture}, {state}: {module}"));
                }
            }
        }
    });
    assert_eq!(silent, Vec::<String>::new(), "of {tried}");
    assert!(tried > 4_000, "{tried}");
}

/// The fixtures in which fewer than four modules have weights of a form with the same parts, or a part that not all have,
/// so that the modules of one layer do not show what one of them lacks.
const FEW: [&str; 13] = [
    "compressed-tensors-mixed",
    "compressed-tensors-w4-stacked-experts",
    "dfloat11",
    "fbgemm-fp8-stacked-experts",
    "fp8-block-stacked-experts",
    "fp8-packed-fp4",
    "llmcompressor-real-mixed",
    "modelopt-mixed",
    "modelopt-nvfp4-stacked-experts",
    "modelopt-real-",
    "nunchaku-flux-block",
    "quanto-real-conv",
    "sdnq-real-uint4-svd",
];

#[test]
fn a_packed_module_needs_its_parts() {
    let (mut tried, mut silent) = (0, BTreeMap::<_, BTreeSet<String>>::new());
    for_each(|fixture, checkpoint, packed| {
        for (module, _, others) in packed.iter().skip(packed.len() / 2).take(1) {
            for (name, part) in others.iter().filter(|(_, part)| part.is_stored_for_each_weight()) {
                let mut broken = checkpoint.clone();
                broken.tensors.remove(name);
                tried += 1;
                let are_few = FEW.iter().any(|few| fixture.starts_with(few));
                if !are_few && !is_refused(&broken, module) {
                    silent.entry(part.name).or_default().insert(format!("{fixture} {module}"));
                }
            }
        }
    });
    let silent: Vec<_> = silent.iter().map(|(part, found)| format!("{part}: {found:?}")).collect();
    assert!(silent.is_empty(), "of {tried}:\n{}", silent.join("\n"));
    assert!(tried > 700, "{tried}");
}

/// transformers builds the modules of SINQ without biases, and those of all other methods with them.
#[test]
fn sinq_has_no_biases() {
    let fixture = |config: &str| {
        let mut checkpoint = Checkpoint::named("quantized/sinq-real-llama");
        checkpoint.edit(r#"model_type="qwen2""#);
        checkpoint.edit(r#"architectures=["Qwen2ForCausalLM"]"#);
        checkpoint.edit(config);
        let found = checkpoint.mismatches().into_iter();
        found.filter(|found| found.kind == MismatchKind::MissingModule).count()
    };
    assert_eq!(fixture(r#"quantization_config.quant_method="sinq""#), 0);
    // The queries, keys and values of a layer.
    assert_eq!(fixture(r#"quantization_config.quant_method="hqq""#), 3);
}
