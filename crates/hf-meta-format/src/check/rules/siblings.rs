//! Compares the layers of a model with each other, which needs no knowledge of its architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{MismatchKind, Mismatches};
use crate::base::model_config::ModelConfig;
use crate::base::sort::sort_by_key;
use crate::count::NamePatterns;
use crate::count::name_pattern::NamePattern;
use crate::formats::{Headers, TensorInfo, all_tensors};
use crate::tables::architecture::positive;

/// The number of layers that is needed to see which one differs.
const MIN_LAYERS: usize = 4;

/// The number of tensors of a layer. Lists of single tensors have gaps, and comparing layers with more would take long.
const TENSORS: RangeInclusive<usize> = 4..=4_096;

/// The tensors of each element of a list: their shapes by the rest of their names.
pub(super) type Elements<'h> = BTreeMap<u64, BTreeMap<&'h str, Vec<u64>>>;

/// The lists of layers of a model, by the start of their names.
pub(super) type Lists<'h> = BTreeMap<&'h str, Elements<'h>>;

/// Compares the layers of a model with each other. `is_compared` returns whether a tensor is that of a module that was
/// compared with the architecture.
pub(super) fn check_siblings(
    lists: &Lists<'_>,
    is_compared: impl Fn(&str) -> bool,
    found: &mut Mismatches,
) {
    for (path, elements) in lists {
        for name in missing(path, elements).iter().filter(|name| !is_compared(name)) {
            found.add(MismatchKind::MissingModule, name, "", "", "");
        }
        check_shapes(path, elements, found);
    }
}

/// Finds biases without a weight, and biases whose length is not the number of outputs of their weight.
pub(super) fn check_biases(headers: &Headers, found: &mut Mismatches) {
    let tensors: BTreeMap<_, _> = all_tensors(headers).collect();
    let mut patterns = NamePatterns::default();
    for (name, tensor) in &tensors {
        let module = name.strip_suffix("bias").filter(|module| module.ends_with('.'));
        let (Some(module), [length]) = (module, &tensor.shape[..]) else { continue };
        let weight = format!("{module}weight");
        if let Some(TensorInfo { dtype, shape, .. }) = tensors.get(&*weight) {
            // Packed weights have another dtype. A transposed convolution has its outputs on the second side, and a router
            // may have biases for some experts only.
            let is_wrong =
                *dtype == tensor.dtype && !shape.iter().take(2).any(|side| side == length);
            if is_wrong && !module.ends_with("gate.") {
                let outputs: Vec<_> = shape.iter().take(1).collect();
                let (expected, shape) = (format!("{outputs:?}"), format!("[{length}]"));
                found.add(MismatchKind::ShapeMismatch, name, &weight, expected, shape);
            }
            continue;
        }
        let mut inside = tensors.range(module..).take_while(|(name, _)| name.starts_with(module));
        // The weight may be a tied embedding, or the one of the module around it, as in `FusedLeakyReLU`.
        let around = module[..module.len() - 1].trim_end_matches(|end| end != '.');
        let is_elsewhere = module.ends_with("decoder.")
            || patterns.read(name).embedding().is_some()
            || tensors.contains_key(&*format!("{around}weight"));
        if inside.nth(1).is_none() && !is_elsewhere {
            found.add(MismatchKind::MissingModule, &weight, "", "", "");
        }
    }
}

/// Compares the layers of a model of unknown architecture with their numbers, and with the few keys that mean the same in
/// all configurations.
pub(super) fn check_lists(
    mut lists: Lists<'_>,
    config: Option<&ModelConfig<'_>>,
    headers: &Headers,
    found: &mut Mismatches,
) {
    lists.retain(|path, _| NamePattern::new(path).numbers.is_empty());
    for (path, elements) in &lists {
        check_gaps(path, elements, found);
    }
    if let Some(config) = config {
        check_length(&lists, config, found);
        check_embedding(config, headers, found);
    }
}

/// Returns the lists of layers, and of other elements in each of them.
pub(super) fn lists(headers: &Headers) -> Lists<'_> {
    let mut lists = Lists::new();
    for (name, tensor) in all_tensors(headers) {
        if let [.., number] = NamePattern::new(name).numbers[..] {
            let elements = lists.entry(&name[..number.start]).or_default();
            elements.entry(number.value).or_default().insert(&name[number.end..], tensor.shape);
        }
    }
    lists.retain(|_, elements| {
        let mut tensors = elements.values().map(BTreeMap::len);
        elements.len() >= MIN_LAYERS && tensors.all(|tensors| TENSORS.contains(&tensors))
    });
    lists
}

/// Returns the tensors that a layer lacks and most others have, where no other layer has just its tensors. The first layer
/// may be of another kind, as in `ModernBERT` and DPT, unless it only lacks biases, and so may the last one, which then
/// has another shape, as in SD3.
fn missing(path: &str, elements: &Elements<'_>) -> Vec<String> {
    /// The maximum number of tensors. Each of many layers can lack thousands.
    const MAX_MISSING: usize = 10_000;

    let mut kinds = BTreeMap::<BTreeSet<_>, Vec<u64>>::new();
    for (number, tensors) in elements {
        kinds.entry(tensors.keys().copied().collect()).or_default().push(*number);
    }
    let usual = kinds.iter().max_by_key(|(_, layers)| layers.len());
    let usual = usual.filter(|(_, layers)| layers.len() >= MIN_LAYERS - 1);
    let ends = [elements.keys().next(), elements.keys().next_back()];
    let mut names = Vec::new();
    for (tensors, numbers) in &kinds {
        let (Some((usual, layers)), [number]) = (usual, &numbers[..]) else { continue };
        let (layer, other) = (&elements[number], &elements[&layers[0]]);
        let lacking = usual.difference(tensors);
        let is_other_kind = match ends.map(|end| end == Some(number)) {
            [true, _] => lacking.clone().any(|rest| !rest.ends_with("bias")),
            [_, true] => layer.iter().any(|(rest, shape)| other.get(rest) != Some(shape)),
            _ => false,
        };
        if tensors.is_subset(usual) && !is_other_kind {
            let left = MAX_MISSING.saturating_sub(names.len());
            names.extend(lacking.take(left).map(|rest| format!("{path}{number}{rest}")));
        }
    }
    names
}

/// Finds tensors between the first and the last layer that have another shape than in all other layers.
fn check_shapes(path: &str, elements: &Elements<'_>, found: &mut Mismatches) {
    let mut shapes = BTreeMap::<_, BTreeMap<_, Vec<u64>>>::new();
    for (number, tensors) in elements {
        for (rest, shape) in tensors {
            shapes.entry(*rest).or_default().entry(shape).or_default().push(*number);
        }
    }
    let ends = [elements.keys().next(), elements.keys().next_back()];
    for (rest, shapes) in shapes.iter().filter(|(_, shapes)| shapes.len() == 2) {
        let mut by_layers: Vec<_> = shapes.iter().collect();
        sort_by_key(&mut by_layers, |(_, layers)| layers.len());
        let [(odd, layers), (usual, others)] = by_layers[..] else { continue };
        if layers.len() > 1 || others.len() < MIN_LAYERS - 1 || ends.contains(&layers.first()) {
            continue;
        }
        let name = format!("{path}{}{rest}", layers[0]);
        found.add(MismatchKind::OddShape, &name, "", format!("{usual:?}"), format!("{odd:?}"));
    }
}

/// Compares the length of the longest list with the configured number of layers.
fn check_length(lists: &Lists<'_>, config: &ModelConfig<'_>, found: &mut Mismatches) {
    let Some((key, length)) = positive(config.text_model(), "layers") else { return };
    let longest = lists.iter().max_by_key(|(_, elements)| elements.len());
    let Some((path, elements)) = longest else { return };
    let stored = elements.len() as u64;
    // Much shorter lists count something else.
    if stored < length && stored * 2 > length {
        let missing = (0..length).find(|number| !elements.contains_key(number)).unwrap_or(length);
        let path = path.trim_end_matches('.');
        found.add(MismatchKind::MissingBlocks, path, key, length, format!("layer {missing}"));
    }
}

/// Finds a number that no layer has.
fn check_gaps(path: &str, elements: &Elements<'_>, found: &mut Mismatches) {
    let last = elements.keys().next_back().copied().unwrap_or_default();
    let missing: Vec<_> =
        (0..last.min(4_096)).filter(|number| !elements.contains_key(number)).collect();
    if let [first, ..] = missing[..]
        && missing.len() * 2 < elements.len()
        && first > 0
    {
        let path = path.trim_end_matches('.');
        found.add(MismatchKind::MissingNumber, path, "", "", format!("layer {first}"));
    }
}

/// Compares the rows of all matrices with the size of the vocabulary of a language model.
fn check_embedding(config: &ModelConfig<'_>, headers: &Headers, found: &mut Mismatches) {
    const KEY: &str = "vocab_size";

    let classes = config.outermost().get::<Vec<String>>("architectures").unwrap_or_default();
    let is_causal = classes.iter().any(|class| class.ends_with("ForCausalLM"));
    let Some(rows) = config.text_model().number(KEY).filter(|rows| is_causal && *rows > 0) else {
        return;
    };
    let mut shapes = all_tensors(headers).map(|(_, tensor)| tensor.shape).peekable();
    let is_large = |shape: Vec<u64>| shape.len() == 2 && shape.iter().any(|side| *side >= rows);
    if shapes.peek().is_some() && !shapes.any(is_large) {
        found.add(MismatchKind::MissingEmbedding, "", KEY, rows, "");
    }
}
