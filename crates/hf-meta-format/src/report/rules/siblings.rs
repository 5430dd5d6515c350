//! Compares the layers of a model with each other, which needs no knowledge of its architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{MismatchKind, Mismatches};
use crate::base::model_config::ModelConfig;
use crate::base::sort::sort_by_key;
use crate::count::name_pattern::NamePattern;
use crate::formats::{Headers, all_tensors};
use crate::tables::architecture::positive;

/// The number of layers that is needed to see which one differs.
const MIN_LAYERS: usize = 4;

/// The number of tensors of a layer. Lists of single tensors have gaps, and comparing layers with more would take long.
const TENSORS: RangeInclusive<usize> = 4..=4_096;

/// The tensors of each element of a list: their shapes by the rest of their names.
type Elements<'h> = BTreeMap<u64, BTreeMap<&'h str, Vec<u64>>>;

/// The lists of layers of a model, by the start of their names.
type Lists<'h> = BTreeMap<&'h str, Elements<'h>>;

/// Compares the layers of a model with each other, and with the few keys that mean the same in all configurations.
pub(super) fn check_siblings(
    config: Option<&ModelConfig<'_>>,
    headers: &Headers,
    found: &mut Mismatches,
) {
    let lists = lists(headers);
    for (path, elements) in &lists {
        check_gaps(path, elements, found);
        check_missing(path, elements, found);
        check_shapes(path, elements, found);
    }
    if let Some(config) = config {
        check_length(&lists, config, found);
        check_embedding(config, headers, found);
    }
}

/// Returns the lists of layers. The experts of a layer are compared by the number of the layer alone.
fn lists(headers: &Headers) -> Lists<'_> {
    let mut lists = Lists::new();
    for (name, tensor) in all_tensors(headers) {
        if let [number] = NamePattern::new(name).numbers[..] {
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

/// Finds layers with fewer tensors than most others, where no other layer has just these. The first layer may be of
/// another kind, as in `ModernBERT` and DPT, and so may the last one, which then has another shape, as in SD3.
fn check_missing(path: &str, elements: &Elements<'_>, found: &mut Mismatches) {
    let mut kinds = BTreeMap::<BTreeSet<_>, Vec<u64>>::new();
    for (number, tensors) in elements {
        kinds.entry(tensors.keys().copied().collect()).or_default().push(*number);
    }
    let Some((usual, layers)) = kinds.iter().max_by_key(|(_, layers)| layers.len()) else {
        return;
    };
    let (first, last) = (elements.keys().next(), elements.keys().next_back());
    for (tensors, numbers) in kinds.iter().filter(|(tensors, _)| tensors.is_subset(usual)) {
        let is_usual = numbers.len() > 1 || layers.len() < MIN_LAYERS - 1;
        if is_usual || numbers.first() == first {
            continue;
        }
        let (layer, other) = (&elements[&numbers[0]], &elements[&layers[0]]);
        let is_odd = layer.iter().any(|(rest, shape)| other.get(rest) != Some(shape));
        if is_odd && numbers.first() == last {
            continue;
        }
        for rest in usual.difference(tensors) {
            let name = format!("{path}{}{rest}", numbers[0]);
            found.add(MismatchKind::MissingModule, &name, "", "", "");
        }
    }
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
