//! Compares the tensors of a model with its configuration.
//!
//! The tables of layouts list the modules of an architecture with formulas of their shapes. The comparison evaluates the
//! formulas with the values in `config.json`, and looks for each module under its name:
//!
//! 1. The layout of the `model_type` is found, and the prefix that all stored names share is removed.
//! 2. If the names are not those of the layout, the model is not compared, and the report states the reason. A model with
//!    its own code is compared only if all its names are known.
//! 3. Each module that is stored has the shape of its formula. Sides of packed weights are unknown and fit any length.
//! 4. Each module that the loader needs is stored, unless it is tied, optional, or of a part that no file contains.
//!
//! For `llama`, the line `layers.#.mlp.down_proj [$hidden, intermediate_size]` and a configuration with
//! `hidden_size` 4096 and `intermediate_size` 11008 require [4096, 11008] in every layer. A stored [4096, 14336] in all
//! 32 layers is one finding about 32 modules, not 32 findings.
//!
//! A key that is missing makes a formula unknown, and an unknown formula requires nothing: loaders have defaults, and a
//! false error costs more than a silence.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::model_class::{LoadedAs, ModelClass, is_by_mlx};
use super::siblings::{check_biases, check_embedding, check_siblings, check_stages, lists};
use super::stages::OtherStages;
use super::stored_modules::{ModulePart, StoredModules, first_numbers, parent};
use super::timm::check_timm;
use super::{MismatchKind, Mismatches, sides_text};
use crate::architectures::architecture::{FormulaError, positive};
use crate::architectures::blueprint::{Blueprint, BlueprintEntry, Place};
use crate::base::model_config::ModelConfig;
use crate::results::text::counted;
use hf_meta_format::formats::{Headers, all_tensors, clip};

/// Compares the tensors with the layout of the class that a loader builds.
///
/// # Errors
///
/// Returns the reason if the tensors cannot be compared: no layout is known, or the loader that reads these names is not
/// known.
pub(super) fn compare(
    config: &ModelConfig<'_>,
    headers: &Headers,
    loaded: LoadedAs,
    found: &mut Mismatches,
) -> Result<(), String> {
    if let Some(result) = check_timm(config.outermost(), headers, found) {
        return result;
    }
    let class = ModelClass::new(config, loaded).ok_or("it has no `model_type`")?;
    let (class, layout, stored) = find_layout(class, config, headers)?;
    let shown = clip(class.shown());
    // Their loaders rename nothing.
    let is_of_library = OWN_NAMES.iter().any(|library| class.architecture.starts_with(library));
    if is_of_library && let Some(first) = stored.first_of_other_model() {
        found.add(MismatchKind::ForeignNames, first, class.key, &shown, "");
        return Ok(());
    }
    let is_mlx = is_by_mlx(headers);
    if all_tensors(headers).next().is_none() {
        return Err("the files contain no tensors".to_owned());
    }
    if !is_of_library {
        class.check_names(&layout, &stored, loaded, is_mlx, found)?;
    }
    check_heads(config, found);
    let (layout, stored) = (&layout, &stored);
    let (has_head, is_tied) = (class.has_head(layout), is_tied(config, &class, layout));
    let check = ModelCheck::new(layout, stored, &class, headers, found);
    let shaped = ModelCheck { has_head, is_tied, is_mlx, ..check }.check_all(config);
    if !found.has_errors() {
        check_layers(stored, layout, &shaped, headers, found);
        // The layouts leave the lengths of numbered stages open.
        check_stages(headers, config, found);
    }
    Ok(())
}

/// Returns the class whose names the files have, with its layout and the stored modules.
///
/// # Errors
///
/// Returns the reason if the architecture is unknown.
fn find_layout<'a, 'h>(
    mut class: ModelClass<'a>,
    config: &ModelConfig<'a>,
    headers: &'h Headers,
) -> Result<(ModelClass<'a>, Blueprint<'a>, StoredModules<'h>), String> {
    let unknown = || format!("the architecture `{}` is not known", clip(class.shown()));
    let mut layout = class.layout().ok_or_else(unknown)?;
    let mut stored = StoredModules::new(&layout, headers);
    // Files of EXAONE and Sarvam have their own names, although `AutoModel` builds the classes of Llama and GLM.
    if let Some(by_type) = class.of_model_type(config)
        && let Some(other) = by_type.layout()
    {
        let of_type = StoredModules::new(&other, headers);
        if !stored.are_named_as(&layout) || of_type.unknown.len() < stored.unknown.len() {
            (class, layout, stored) = (by_type, other, of_type);
        }
    }
    if let Some(part) = class.part_layout() {
        let of_part = StoredModules::new(&part, headers);
        if of_part.fits_better(&part, &stored, &layout) {
            (layout, stored) = (part, of_part);
        }
    }
    Ok((class, layout, stored))
}

/// Compares the layers with each other. `shaped` are the entries whose shapes were compared with the configuration.
fn check_layers(
    stored: &StoredModules<'_>,
    layout: &Blueprint<'_>,
    shaped: &BTreeSet<usize>,
    headers: &Headers,
    found: &mut Mismatches,
) {
    let is_weight = |name: &str| stored.is_weight(layout, name);
    let has_shape =
        |name: &str| stored.find(layout, name).is_some_and(|found| shaped.contains(&found.entry));
    check_siblings(&lists(headers), is_weight, has_shape, found);
    check_biases(headers, is_weight, found);
}

/// Returns whether the class ties its embeddings; `None` if nothing states it.
fn is_tied(
    config: &ModelConfig<'_>,
    class: &ModelClass<'_>,
    layout: &Blueprint<'_>,
) -> Option<bool> {
    let stated = config.is_tied();
    // Custom code may have another default.
    if stated.is_some() || class.custom.is_some() { stated } else { layout.is_tied() }
}

/// The libraries that load only tensors with the names of their classes. transformers renames many.
const OWN_NAMES: [&str; 2] = ["diffusers:", "sentence-transformers:"];

/// Finds numbers of heads that are 0, by which model classes divide.
fn check_heads(config: &ModelConfig<'_>, found: &mut Mismatches) {
    const KEYS: [&str; 3] = ["num_attention_heads", "n_head", "num_heads"];

    for model in &config.models {
        for key in KEYS.iter().filter(|key| model.object.number(key) == Some(0)) {
            found.add(MismatchKind::InvalidConfigValue, key, key, "a positive number", 0);
        }
    }
}

/// A number that the configuration implies, with the keys, joined by commas.
pub(super) type Implied = (u64, String);

/// An implied number, and whether it follows from defaults of the class.
type Evaluated = (Implied, bool);

/// A comparison of a model with its configuration.
pub(super) struct ModelCheck<'c, 'a, 'h> {
    pub(super) layout: &'c Blueprint<'a>,
    headers: &'h Headers,
    pub(super) stored: &'c StoredModules<'h>,
    has_drafts: bool,
    /// True if the model class has a head.
    pub(super) has_head: bool,
    pub(super) class: &'c ModelClass<'a>,
    pub(super) is_tied: Option<bool>,
    /// True for the names and shapes of MLX, as far as they differ.
    pub(super) is_mlx: bool,
    other_stages: OtherStages,
    /// The values of formulas of each scope in each layer, with the keys that imply them.
    values: HashMap<(usize, &'static str, u32), Option<Evaluated>>,
    pub(super) mismatches: &'c mut Mismatches,
}

impl<'c, 'a, 'h> ModelCheck<'c, 'a, 'h> {
    /// Creates a comparison of a model with a head and of no known tie.
    pub(super) fn new(
        layout: &'c Blueprint<'a>,
        stored: &'c StoredModules<'h>,
        class: &'c ModelClass<'a>,
        headers: &'h Headers,
        mismatches: &'c mut Mismatches,
    ) -> Self {
        Self {
            layout,
            headers,
            stored,
            has_drafts: stored.has_drafts,
            has_head: true,
            class,
            is_tied: None,
            is_mlx: false,
            other_stages: OtherStages::new(layout),
            values: HashMap::new(),
            mismatches,
        }
    }
}

impl ModelCheck<'_, '_, '_> {
    /// Evaluates a formula for a layer. The keys of the result are joined by commas. Returns `None` if a key is missing,
    /// even if the class has a default for it: custom code may have another one.
    pub(super) fn evaluate(
        &mut self,
        scope: usize,
        formula: &'static str,
        layer: u32,
    ) -> Option<Implied> {
        self.evaluate_any(scope, formula, layer)
            .filter(|(_, is_default)| !is_default)
            .map(|(value, _)| value)
    }

    /// Evaluates a formula for a layer, also with defaults of the class.
    fn evaluate_any(
        &mut self,
        scope: usize,
        formula: &'static str,
        layer: u32,
    ) -> Option<Evaluated> {
        if let Some(value) = self.values.get(&(scope, formula, layer)) {
            return value.clone();
        }
        let model = &self.layout.scopes[scope];
        model.names.layer.set(layer.into());
        let value = match model.names.trace(formula) {
            Ok((value, keys)) => {
                let is_default = keys.keys().any(|key| model.names.is_default(key));
                let keys = keys.into_keys().map(|key| format!("{}{key}", model.path));
                let mut keys = keys.collect::<Vec<_>>().join(", ");
                if keys.is_empty() {
                    let list = formula.strip_prefix("len(").and_then(|rest| rest.strip_suffix(')'));
                    let list = list.map(|key| format!("len({}{key})", model.path));
                    keys = list.unwrap_or_else(|| self.class.key.to_owned());
                }
                Some(((value, keys), is_default))
            }
            Err(FormulaError::InvalidKey { key } | FormulaError::WrongLength { key }) => {
                let (kind, expected) =
                    (MismatchKind::InvalidConfigValue, "a number, or one per layer");
                // A list of megabytes may be invalid in each layer.
                let (found, key) = (clip(model.names.text(key)), format!("{}{key}", model.path));
                self.mismatches.add(kind, &key, &key, expected, found);
                None
            }
            Err(_) => None,
        };
        self.values.insert((scope, formula, layer), value.clone());
        value
    }

    /// Checks everything. Returns the entries whose shapes the configuration implies in all places.
    pub(super) fn check_all(mut self, config: &ModelConfig<'_>) -> BTreeSet<usize> {
        let shaped = self.check_shapes();
        for (at, list) in self.layout.entries.iter().enumerate().filter(|(_, list)| list.is_list) {
            self.check_list(at, list);
        }
        let missing = self.missing_modules();
        self.add_missing(&missing);
        self.check_biases(config);
        // A head that the layout has is a missing module.
        let is_in_list = |(entry, _): &(usize, Place)| self.layout.entries[*entry].depth > 0;
        if missing.iter().all(is_in_list) {
            self.check_head(config);
        }
        self.check_parts(config);
        self.check_tied(config);
        shaped
    }

    /// Finds a model without the embedding that all tied modules share.
    fn check_tied(&mut self, config: &ModelConfig<'_>) {
        let mut tied = self.layout.entries.iter().enumerate().filter(|(at, entry)| {
            let is_tied = !entry.is_head && entry.depth == 0 && entry.may_be_tied();
            is_tied
                && entry.path.ends_with("_embeddings") | entry.path.ends_with("embed_tokens")
                && !self.is_replaced(*at)
        });
        if tied.next().is_some() && !self.stored.has_packed && !self.stored.is_described {
            check_embedding(config, self.headers, self.mismatches);
        }
    }

    /// Returns the name of an entry at a place.
    pub(super) fn name(&self, entry: &BlueprintEntry, place: Place) -> String {
        let prefix = if entry.is_head { &self.stored.head_prefix } else { &self.stored.prefix };
        let mut numbers = place.iter();
        let parts = entry.path.split('.').map(|part| match part {
            "#" => numbers.next().map_or_else(String::new, u32::to_string),
            part => part.to_owned(),
        });
        prefix.clone() + &parts.collect::<Vec<_>>().join(".")
    }

    /// Returns the length of a list; `None` if it is not known. Published configurations omit a number of layers that is the
    /// default of the class.
    fn length(&mut self, list: usize, place: Place) -> Option<Implied> {
        let BlueprintEntry { formulas, scope, depth, .. } = self.layout.entries[list];
        let layer = if depth == 0 { 0 } else { place[0] };
        if ["_", "~"].contains(&formulas) {
            return None;
        }
        let has_defaults = self.class.custom.is_none() && !self.is_mlx;
        let length = self.evaluate_any(scope, formulas, layer);
        length.filter(|(_, is_default)| has_defaults || !is_default).map(|(length, _)| length)
    }

    /// Returns whether a place is in a layer after the last one. Such layers draft tokens.
    pub(super) fn is_beyond(&mut self, entry: usize, place: Place) -> bool {
        let mut at = entry;
        while let Some(list) = self.layout.entries[at].parent {
            at = list;
        }
        let is_inside = at != entry || self.layout.entries[at].is_list;
        is_inside && self.length(at, place).is_some_and(|(length, _)| u64::from(place[0]) >= length)
    }

    /// Compares the shapes. Returns the entries of which all shapes are implied.
    fn check_shapes(&mut self) -> BTreeSet<usize> {
        let (mut shaped, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for (name, tensor, found) in &self.stored.tensors {
            let BlueprintEntry { ref path, formulas, is_list, .. } =
                self.layout.entries[found.entry];
            if is_list || formulas == "_" || self.is_beyond(found.entry, found.place) {
                unknown.insert(found.entry);
                continue;
            }
            let mut expected = self.expected_shape(found.entry, found.place);
            let is_known = expected.iter().all(Option::is_some);
            if is_known { &mut shaped } else { &mut unknown }.insert(found.entry);
            if found.part == ModulePart::Bias {
                // A router may have biases for some experts only.
                if path.ends_with("gate") {
                    continue;
                }
                // The outputs are the first side of the weight, or the last one.
                let [length] = tensor.shape[..] else { continue };
                let fits = |side: &Option<Implied>| {
                    side.as_ref().is_none_or(|(value, _)| [0, length].contains(value))
                };
                if expected.iter().any(fits) {
                    continue;
                }
                expected.truncate(1);
            }
            let shape = self.comparable_shape(&tensor.shape, expected.len(), path);
            let Some(wrong) = wrong_side(&expected, &shape) else { continue };
            let keys = wrong.as_ref().map_or(self.class.key, |(_, keys)| keys.as_str());
            let sides = expected.iter().map(|side| Some(side.as_ref()?.0));
            let (expected, shape) = (sides_text(sides), format!("{:?}", tensor.shape));
            self.mismatches.add(MismatchKind::ShapeMismatch, name, keys, expected, shape);
        }
        &shaped - &unknown
    }

    /// Returns a shape as the layout has it. GGUF files may have more sides with a length of 1 than llama.cpp asks for
    /// (`llama_model_loader::check_tensor_dims`), and MLX has the channels of kernels last.
    fn comparable_shape<'s>(&self, shape: &'s [u64], sides: usize, path: &str) -> Cow<'s, [u64]> {
        if self.stored.is_described {
            let spare = shape.len().saturating_sub(sides);
            let are_ones = shape[..spare].iter().all(|side| *side == 1);
            return Cow::Borrowed(if are_ones { &shape[spare..] } else { shape });
        }
        let mut turned = shape.to_vec();
        if self.is_mlx && sides > 2 && shape.len() == sides {
            turned[1..].rotate_right(1);
        }
        // MLX has linear modules in place of `Conv1D` (`sanitize` in `mlx_lm/models/gpt2.py`, 0.32).
        if self.is_mlx && self.class.architecture == "gpt2" && path.contains(".c_") {
            turned.reverse();
        }
        Cow::Owned(turned)
    }

    /// Returns the sides of a tensor that the configuration implies; `None` for unknown ones.
    pub(super) fn expected_shape(&mut self, entry: usize, place: Place) -> Vec<Option<Implied>> {
        let entry = &self.layout.entries[entry];
        let mut side = |side| match side {
            "_" => None,
            side if self.other_stages.hide(entry, side) => None,
            side => self.evaluate(entry.scope, side, place[0]),
        };
        entry.formulas.split(',').map(&mut side).collect()
    }

    /// Compares the length of a list with the configuration.
    fn check_list(&mut self, list: usize, entry: &BlueprintEntry) {
        let depth = entry.depth;
        let elements = &self.stored.places[list];
        for elements in elements.chunk_by(|left, right| left[..depth] == right[..depth]) {
            let place = first_numbers(elements[0], depth);
            let Some((length, keys)) = self.length(list, place) else {
                if entry.formulas == "_" {
                    self.check_gaps(entry, elements);
                }
                continue;
            };
            if depth > 0 && self.is_beyond(list, place) {
                continue;
            }
            let numbers = elements.iter().map(|place| u64::from(place[depth]));
            let (numbers, beyond): (BTreeSet<_>, BTreeSet<_>) =
                numbers.partition(|number| *number < length);
            let others = &self.stored.with_others;
            let spare = beyond.iter().filter(|at| depth > 0 || !others.contains(&(list, **at)));
            let stored = numbers.len() as u64;
            let all = stored + spare.count() as u64;
            self.has_drafts |= depth == 0 && !beyond.is_empty();
            let name = self.name(entry, place);
            let path = parent(&name);
            // A file may contain only the layers that draft tokens.
            if stored > 0 && stored < length {
                let first = (0..length).find(|number| !numbers.contains(number)).unwrap_or(length);
                let others = length - stored - 1;
                let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
                let missing = format!("{} {first}{more}", noun(path));
                // A constant of the table implies the number.
                let is_constant = entry.formulas.bytes().all(|byte| byte.is_ascii_digit());
                let (kind, keys) = if is_constant {
                    (MismatchKind::MissingLayers, self.class.shown())
                } else {
                    (MismatchKind::MissingBlocks, &*keys)
                };
                self.mismatches.add(kind, path, keys, length, missing);
            }
            if all > length {
                self.mismatches.add(MismatchKind::SpareBlocks, path, &keys, length, all);
            }
        }
    }

    /// Finds a number that a list of unknown length does not have, although it has the next one.
    fn check_gaps(&mut self, list: &BlueprintEntry, elements: &[Place]) {
        let mut numbers = elements.iter().map(|place| place[list.depth]).zip(0..);
        if let Some((_, missing)) = numbers.find(|(number, expected)| number != expected) {
            let name = self.name(list, elements[0]);
            let path = parent(&name);
            let missing = format!("{} {missing}", noun(path));
            self.mismatches.add(MismatchKind::MissingNumber, path, "", "", missing);
        }
    }

    /// Returns whether an unknown tensor belongs to a layer after the last one.
    fn is_draft(&mut self, name: &str) -> bool {
        let inside = name.strip_prefix(&self.stored.prefix);
        let element = inside.and_then(|name| self.layout.element(name));
        element.is_some_and(|(list, number)| self.is_beyond(list, [number, 0, 0]))
    }

    /// Adds the notes and warnings about the model as a whole.
    fn check_parts(&mut self, config: &ModelConfig<'_>) {
        use MismatchKind as Kind;

        if let Some((key, layers)) = positive(config.text_model(), "draft_layers")
            && !self.has_drafts
        {
            self.mismatches.add(Kind::MissingDraftLayers, "", key, layers, 0);
        }
        let unknown = self.stored.unknown.iter().filter(|(name, _)| !self.is_draft(name));
        let unknown: Vec<_> = unknown.collect();
        if let [(first, _), ..] = unknown[..] {
            let found = counted(unknown.len() as u64, "tensor");
            self.mismatches.add(Kind::UnknownTensor, first, "model_type", "", found);
        }
    }
}

/// Returns the first side that does not fit a shape, or the first one if the number of sides is wrong. GGUF files leave
/// out the first sides if their length is 1.
pub(super) fn wrong_side<'s>(
    expected: &'s [Option<Implied>],
    shape: &[u64],
) -> Option<&'s Option<Implied>> {
    #[cfg(test)]
    super::tests::COMPARED.set(super::tests::COMPARED.get() + 1);
    // The number 0 often says that a module is not used.
    let fits = |side: &Option<Implied>, length: u64| {
        side.as_ref().is_none_or(|(value, _)| *value == 0 || *value == length)
    };
    let spare = expected.len().checked_sub(shape.len());
    let (first, sides) = expected.split_at_checked(spare.unwrap_or(expected.len()))?;
    let mut pairs = sides.iter().zip(shape);
    let wrong = pairs.find(|(side, length)| !fits(side, **length)).map(|(side, _)| side);
    wrong.or_else(|| first.iter().find(|side| spare.is_none() || !fits(side, 1)))
}

/// Returns the noun for an element of a list.
fn noun(path: &str) -> &'static str {
    let name = path.rsplit('.').next().unwrap_or_default();
    match name {
        "experts" => "expert",
        "blocks" | "block" => "block",
        _ => "layer",
    }
}
