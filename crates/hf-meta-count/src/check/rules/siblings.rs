//! Compares the layers of a model with each other, which needs no knowledge of its architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{MismatchKind, Mismatches};
use crate::architectures::architecture::positive;
use crate::base::model_config::ModelConfig;
use crate::count::NamePatterns;
use crate::count::names::pattern::NamePattern;
use hf_meta_format::base::sort::{Ordered, sort_by_key};
use hf_meta_format::formats::{Headers, TensorInfo, loaded_tensors};

/// The number of layers that is needed to see which one differs.
const MIN_LAYERS: usize = 4;

/// The number of tensors of a layer. Lists of single tensors have gaps, and comparing layers with more would take long.
const TENSORS: RangeInclusive<usize> = 4..=4_096;

/// The end of the path of routed experts, which have fewer tensors than a layer.
const EXPERTS: &str = "experts.";

/// The tensors of each element of a list, by the rest of their names.
pub(super) type Elements<'h> = BTreeMap<u64, BTreeMap<&'h str, TensorInfo>>;

/// The lists of layers of a model, by the start of their names.
pub(super) type Lists<'h> = BTreeMap<&'h str, Elements<'h>>;

/// Compares the layers of a model with each other. `is_compared` returns whether a tensor is that of a module that was
/// compared with the architecture, and `has_shape` whether its shape was, too: layers may differ as the architecture says.
pub(super) fn check_siblings(
    lists: &Lists<'_>,
    is_compared: impl Fn(&str) -> bool,
    has_shape: impl Fn(&str) -> bool,
    found: &mut Mismatches,
) {
    for (path, elements) in lists {
        for name in missing(path, elements).iter().filter(|name| !is_compared(name)) {
            found.add(MismatchKind::MissingModule, name, "", "", "");
        }
        check_shapes(path, elements, &has_shape, found);
    }
    check_experts(lists, found);
}

/// Finds an expert that one layer lacks and all others have.
fn check_experts(lists: &Lists<'_>, found: &mut Mismatches) {
    let mut kinds = BTreeMap::<_, BTreeMap<BTreeSet<u64>, Vec<&str>>>::new();
    for (path, elements) in lists.iter().filter(|(path, _)| path.ends_with(EXPERTS)) {
        let experts = elements.keys().copied().ordered();
        let kinds = kinds.entry(NamePattern::new(path).text).or_default();
        kinds.entry(experts).or_default().push(path);
    }
    for kinds in kinds.values() {
        let usual = kinds.iter().max_by_key(|(_, layers)| layers.len());
        let Some((usual, _)) = usual.filter(|(_, layers)| layers.len() >= MIN_LAYERS - 1) else {
            continue;
        };
        for (experts, layers) in kinds {
            let lacking = usual.difference(experts).next();
            if let ([layer], Some(expert), true) = (&layers[..], lacking, experts.is_subset(usual))
            {
                let layer = layer.trim_end_matches('.');
                let missing = format!("expert {expert}");
                found.add(MismatchKind::MissingExpert, layer, "", "", missing);
            }
        }
    }
}

/// Finds biases without a weight, and biases whose length is not the number of outputs of their weight.
/// `is_module` returns whether the architecture has a parameter with the name of a bias and no weight next to it.
pub(super) fn check_biases(
    headers: &Headers,
    is_module: impl Fn(&str) -> bool,
    found: &mut Mismatches,
) {
    let tensors: BTreeMap<_, _> = loaded_tensors(headers).collect();
    let mut patterns = NamePatterns::default();
    for (name, tensor) in &tensors {
        let module = name.strip_suffix("bias").filter(|module| module.ends_with('.'));
        let (Some(module), [length]) = (module, &tensor.shape[..]) else { continue };
        if is_module(name) {
            continue;
        }
        let weight = format!("{module}weight");
        if let Some(TensorInfo { dtype, shape, .. }) = tensors.get(&*weight) {
            // Packed weights have another dtype. A transposed convolution has its outputs on the second side, and a router
            // may have biases for some experts only. Weights in groups have their outputs on the first and the last side.
            let outputs = match shape[..] {
                [groups, _, outputs] => groups.checked_mul(outputs),
                _ => None,
            };
            let is_side = shape.iter().take(2).any(|side| side == length);
            let is_wrong = *dtype == tensor.dtype && !is_side && outputs != Some(*length);
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
        check_lengths(&lists, config, found);
        check_stages(headers, config, found);
        let classes = config.outermost().get::<Vec<String>>("architectures").unwrap_or_default();
        if classes.iter().any(|class| class.ends_with("ForCausalLM")) {
            check_embedding(config, headers, found);
        }
    }
}

/// Returns the lists of layers, and of other elements in each of them.
pub(super) fn lists(headers: &Headers) -> Lists<'_> {
    let mut lists = Lists::new();
    for (name, tensor) in loaded_tensors(headers) {
        if let [.., number] = NamePattern::new(name).numbers[..] {
            let elements = lists.entry(&name[..number.start]).or_default();
            elements.entry(number.value).or_default().insert(&name[number.end..], tensor);
        }
    }
    lists.retain(|path, elements| {
        let min = if path.ends_with(EXPERTS) { 1 } else { *TENSORS.start() };
        let mut tensors = elements.values().map(BTreeMap::len);
        elements.len() >= MIN_LAYERS
            && tensors.all(|tensors| (min..=*TENSORS.end()).contains(&tensors))
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
    // Experts are all of one kind.
    let are_experts = path.ends_with(EXPERTS);
    let ends = [elements.keys().next(), elements.keys().next_back()];
    let mut names = Vec::new();
    for (tensors, numbers) in &kinds {
        let (Some((usual, layers)), [number]) = (usual, &numbers[..]) else { continue };
        let (layer, other) = (&elements[number], &elements[&layers[0]]);
        let lacking = usual.difference(tensors);
        let is_other_kind = match ends.map(|end| !are_experts && end == Some(number)) {
            [true, _] => lacking.clone().any(|rest| !rest.ends_with("bias")),
            [_, true] => layer.iter().any(|(rest, tensor)| {
                other.get(rest).is_none_or(|other| other.shape != tensor.shape)
            }),
            _ => false,
        };
        if tensors.is_subset(usual) && !is_other_kind {
            let left = MAX_MISSING.saturating_sub(names.len());
            names.extend(lacking.take(left).map(|rest| format!("{path}{number}{rest}")));
        }
    }
    names
}

/// Finds tensors between the first and the last layer that have another shape than in all other layers. A quantizer may
/// leave a module as it was, which then has another dtype.
fn check_shapes(
    path: &str,
    elements: &Elements<'_>,
    has_shape: impl Fn(&str) -> bool,
    found: &mut Mismatches,
) {
    let mut shapes = BTreeMap::<_, BTreeMap<_, Vec<u64>>>::new();
    for (number, tensors) in elements {
        for (rest, TensorInfo { dtype, shape, .. }) in tensors {
            let shapes = shapes.entry((*rest, dtype.as_str())).or_default();
            shapes.entry(shape).or_default().push(*number);
        }
    }
    let ends = [elements.keys().next(), elements.keys().next_back()];
    for ((rest, _), shapes) in shapes.iter().filter(|(_, shapes)| shapes.len() == 2) {
        let mut by_layers: Vec<_> = shapes.iter().collect();
        sort_by_key(&mut by_layers, |(_, layers)| layers.len());
        let [(odd, layers), (usual, others)] = by_layers[..] else { continue };
        if layers.len() > 1 || others.len() < MIN_LAYERS - 1 || ends.contains(&layers.first()) {
            continue;
        }
        let name = format!("{path}{}{rest}", layers[0]);
        if has_shape(&name) {
            continue;
        }
        found.add(MismatchKind::OddShape, &name, "", format!("{usual:?}"), format!("{odd:?}"));
    }
}

/// Compares the length of the longest list with the configured number of layers, and those of the longest lists of an
/// encoder and a decoder with theirs.
fn check_lengths(lists: &Lists<'_>, config: &ModelConfig<'_>, found: &mut Mismatches) {
    const PARTS: [(&str, [&str; 2]); 2] = [
        ("encoder", ["encoder_layers", "num_encoder_layers"]),
        ("decoder", ["decoder_layers", "num_decoder_layers"]),
    ];

    let model = config.text_model();
    if let Some((key, length)) = positive(model, "layers") {
        check_length(lists.iter(), key, length, found);
        check_half(lists, config, key, length, found);
    }
    for (part, keys) in PARTS {
        let stated = keys.into_iter().find_map(|key| Some((key, model.number(key)?)));
        let inside = lists.iter().filter(|(path, _)| path.split('.').any(|name| name == part));
        if let Some((key, length)) = stated {
            check_length(inside, key, length, found);
        }
    }
}

/// Compares the length of the longest of several lists with a number of layers.
fn check_length<'l, 'h: 'l>(
    lists: impl Iterator<Item = (&'l &'h str, &'l Elements<'h>)>,
    key: &str,
    length: u64,
    found: &mut Mismatches,
) {
    let longest = lists.max_by_key(|(_, elements)| elements.len());
    let Some((path, elements)) = longest else { return };
    let stored = elements.len() as u64;
    // Much shorter lists count something else.
    if stored < length && stored * 2 > length {
        let missing = (0..length).find(|number| !elements.contains_key(number)).unwrap_or(length);
        let path = path.trim_end_matches('.');
        found.add(MismatchKind::MissingBlocks, path, key, length, format!("layer {missing}"));
    }
}

/// Finds the second half of all layers missing. Some models count the parts of a layer, or have layers of several kinds, so
/// that the layers must be equal, the only ones, and no list may state their kinds.
fn check_half(
    lists: &Lists<'_>,
    config: &ModelConfig<'_>,
    key: &str,
    length: u64,
    found: &mut Mismatches,
) {
    const KINDS: [&str; 7] = [
        "auto_map",
        "block_types",
        "hybrid_override_pattern",
        "layer_types",
        "layers_block_type",
        "num_hidden_groups",
        "num_nextn_predict_layers",
    ];

    let models = [config.outermost(), config.text_model()];
    let is_mixed = || models.iter().any(|model| KINDS.iter().any(|key| model.raw(key).is_some()));
    let outer = || config.outermost().get::<Vec<String>>("architectures");
    let mut layers = lists.iter().filter(|(path, _)| !path.ends_with(EXPERTS));
    let (Some((path, elements)), None) = (layers.next(), layers.next()) else { return };
    let stored = elements.len() as u64;
    let mut tensors = elements.values().map(|layer| layer.keys().collect::<Vec<_>>());
    let first = tensors.next();
    let are_equal = tensors.all(|names| Some(names) == first);
    let are_first = elements.keys().copied().eq(0..stored);
    if stored * 2 == length && are_equal && are_first && !is_mixed() && outer().is_some() {
        let path = path.trim_end_matches('.');
        found.add(MismatchKind::MissingBlocks, path, key, length, format!("layer {stored}"));
    }
}

/// Compares the number of layers of each stage with `depths`, as vision models state it.
pub(super) fn check_stages(headers: &Headers, config: &ModelConfig<'_>, found: &mut Mismatches) {
    const KEY: &str = "depths";

    let Some(depths) = config.outermost().get::<Vec<u64>>(KEY) else { return };
    let mut stages = BTreeMap::<_, BTreeMap<u64, BTreeSet<u64>>>::new();
    for (name, _) in loaded_tensors(headers) {
        let pattern = NamePattern::new(name);
        if let [stage, layer, ..] = pattern.numbers[..] {
            let lists = stages.entry(pattern.text[..layer.pattern_end].to_owned()).or_default();
            lists.entry(stage.value).or_default().insert(layer.value);
        }
    }
    for (path, lists) in stages {
        let stored = lists.values().map(|layers| layers.len() as u64);
        let stored: Vec<_> = stored.collect();
        let mut short = stored.iter().zip(&depths).filter(|(stored, depth)| stored < depth);
        // Only one stage is shorter, and all others are as long as stated.
        let (Some((stored_in, depth)), None, true) =
            (short.next(), short.next(), stored.len() == depths.len())
        else {
            continue;
        };
        let is_equal = stored.iter().zip(&depths).filter(|(stored, depth)| stored == depth);
        if is_equal.count() + 1 == depths.len() && *stored_in + 1 == *depth {
            let missing = format!("layer {stored_in}");
            let path = path.trim_end_matches(['.', '#']);
            found.add(MismatchKind::MissingBlocks, path, KEY, depth, missing);
        }
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
pub(super) fn check_embedding(config: &ModelConfig<'_>, headers: &Headers, found: &mut Mismatches) {
    const KEY: &str = "vocab_size";

    let rows = config.text_model().number(KEY).filter(|rows| *rows > 0);
    let Some(rows) = rows else { return };
    let mut shapes = loaded_tensors(headers).map(|(_, tensor)| tensor.shape).peekable();
    let is_large = |shape: Vec<u64>| shape.len() == 2 && shape.iter().any(|side| *side >= rows);
    if shapes.peek().is_some() && !shapes.any(is_large) {
        found.add(MismatchKind::MissingEmbedding, "", KEY, rows, "");
    }
}
