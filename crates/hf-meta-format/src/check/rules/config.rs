//! Compares the tensors of a model with its configuration.
//!
//! The tables of layouts list the modules of an architecture with formulas of their shapes.

use std::collections::{BTreeSet, HashMap};

use super::siblings::{check_biases, check_lists, check_siblings, lists};
use super::stored_modules::{ModulePart, StoredModules, first_numbers, parent};
use super::{MismatchKind, Mismatches, sides_text};
use crate::base::json_object::{JsonObject, parse, standard_json};
use crate::base::model_config::ModelConfig;
use crate::formats::{Headers, TensorInfo, clip};
use crate::results::text::counted;
use crate::results::{ConfigCheck, Finding};
use crate::tables::architecture::{FormulaError, positive};
use crate::tables::layout::{LayoutEntry, ModelLayout, Place};

/// Compares all tensors of a model with the contents of `config.json`, or with each other if there is none or its
/// architecture is unknown.
pub(crate) fn check_model(json: Option<&[u8]>, headers: &Headers) -> (Vec<Finding>, ConfigCheck) {
    let json = json.map(standard_json);
    let config = json.as_deref().map(|json| parse::<ModelConfig<'_>>(json).ok());
    let mut found = Mismatches::default();
    let result = match &config {
        None => Err("there is none next to the weights".to_owned()),
        Some(None) => Err("it is not a JSON object".to_owned()),
        Some(Some(config)) => compare(config, headers, &mut found),
    };
    if result.is_err() {
        let lists = lists(headers);
        check_siblings(&lists, |_| false, &mut found);
        check_biases(headers, &mut found);
        check_lists(lists, config.flatten().as_ref(), headers, &mut found);
    }
    let (compared, reason) = (result.is_ok(), result.err());
    (found.into_findings(), ConfigCheck { compared, reason })
}

fn compare(
    config: &ModelConfig<'_>,
    headers: &Headers,
    found: &mut Mismatches,
) -> Result<(), String> {
    let object = config.outermost().clone();
    let class = || Some(format!("diffusers:{}", object.get::<String>("_class_name")?));
    let architecture: String =
        object.get("model_type").or_else(class).ok_or("it has no `model_type`")?;
    let classes = object.get::<Vec<String>>("architectures").unwrap_or_default();
    let has_code = object.raw("auto_map").is_some();
    let shown = clip(architecture.split_once(':').map_or(&*architecture, |(_, name)| name));
    let unknown = || format!("the architecture `{shown}` is not known");
    let layout = ModelLayout::new(&architecture, object).ok_or_else(unknown)?;
    let stored = StoredModules::new(&layout, headers);
    let is_named = stored.are_named_as(&layout);
    if has_code && (!is_named || !stored.unknown.is_empty()) {
        return Err("the model has its own code (`auto_map`)".to_owned());
    }
    let is_class = classes.iter().any(|class| class.ends_with(layout.head_class));
    if !is_named {
        // Training programs store the names that a model has in memory, and the layout has some of them.
        let mut entries = layout.entries.iter().zip(&stored.places);
        let is_other = is_class
            && !layout.head_class.is_empty()
            && layout.unknown.is_empty()
            && entries.all(|(entry, places)| entry.is_head || places.is_empty());
        if let (true, Some((first, _))) = (is_other, stored.unknown.first()) {
            found.add(MismatchKind::OtherNames, first, "model_type", &shown, "");
        }
        return Err(format!("the names are not those of `{shown}`"));
    }
    let has_head = classes.is_empty() && stored.prefix.ends_with(layout.prefix) || is_class;
    let is_tied = config.is_tied();
    check_heads(config, found);
    let (layout, stored, has_drafts) = (&layout, &stored, stored.has_drafts);
    let mut check = ModelCheck {
        layout,
        stored,
        has_drafts,
        has_head,
        classes: &classes,
        is_tied,
        values: HashMap::new(),
        mismatches: found,
    };
    check.check_all(config);
    if !found.has_errors() {
        check_siblings(&lists(headers), |name| stored.is_weight(layout, name), found);
        check_biases(headers, found);
    }
    Ok(())
}

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

/// A comparison of a model with its configuration.
pub(super) struct ModelCheck<'c, 'a, 'h> {
    pub(super) layout: &'c ModelLayout<'a>,
    pub(super) stored: &'c StoredModules<'h>,
    has_drafts: bool,
    /// True if the model class has a head.
    pub(super) has_head: bool,
    /// The names of the model classes.
    pub(super) classes: &'c [String],
    pub(super) is_tied: Option<bool>,
    /// The values of formulas of each scope in each layer, with the keys that imply them.
    values: HashMap<(usize, &'static str, u32), Option<Implied>>,
    pub(super) mismatches: &'c mut Mismatches,
}

impl ModelCheck<'_, '_, '_> {
    /// Evaluates a formula for a layer. The keys of the result are joined by commas.
    pub(super) fn evaluate(
        &mut self,
        scope: usize,
        formula: &'static str,
        layer: u32,
    ) -> Option<Implied> {
        if let Some(value) = self.values.get(&(scope, formula, layer)) {
            return value.clone();
        }
        let model = &self.layout.scopes[scope];
        model.names.layer.set(layer.into());
        let value = match model.names.trace(formula) {
            // Files with custom code may have other defaults.
            Ok((_, keys)) if keys.keys().any(|key| model.names.is_default(key)) => None,
            Ok((value, keys)) => {
                let keys = keys.into_keys().map(|key| format!("{}{key}", model.path));
                let keys = keys.collect::<Vec<_>>().join(", ");
                Some((value, if keys.is_empty() { "model_type".to_owned() } else { keys }))
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

    fn check_all(&mut self, config: &ModelConfig<'_>) {
        self.check_shapes();
        for (at, list) in self.layout.entries.iter().enumerate().filter(|(_, list)| list.is_list) {
            self.check_list(at, list);
        }
        let missing = self.missing_modules();
        self.add_missing(&missing);
        self.check_biases();
        // A head that the layout has is a missing module.
        let is_in_list = |(entry, _): &(usize, Place)| self.layout.entries[*entry].depth > 0;
        if missing.iter().all(is_in_list) {
            self.check_head(config);
        }
        self.check_parts(config);
    }

    /// Finds a model without a head that its class has, or without one row of it per label.
    fn check_head(&mut self, config: &ModelConfig<'_>) {
        const LABELS: &str = "Classification";
        /// The ends of names of classes whose heads are never tied.
        const ENDS: [&str; 7] = [
            LABELS,
            "ForCTC",
            "ForMultipleChoice",
            "ForNextSentencePrediction",
            "ForPreTraining",
            "ForQuestionAnswering",
            "ForXVector",
        ];

        let [class] = self.classes else { return };
        if !ENDS.iter().any(|end| class.ends_with(end)) {
            return;
        }
        let mut known = self.layout.entries.iter().zip(&self.stored.places);
        let is_stored = known.any(|(entry, places)| entry.is_head && !places.is_empty());
        // The layout of BERT is that of a class without a pooler.
        let is_base = |(name, _): &(&str, TensorInfo)| name.contains("pooler.");
        // The layout has the head of its class, which may be tied.
        let is_own = self.has_head && !self.layout.head_class.is_empty();
        if !is_own && !is_stored && self.stored.unknown.iter().all(is_base) {
            self.mismatches.add(MismatchKind::NoHead, class, "architectures", "", "");
        } else if class.ends_with(LABELS) {
            self.check_labels(class, config);
        }
    }

    /// Finds a class that assigns labels, and of which no tensor has a row per label.
    fn check_labels(&mut self, class: &str, config: &ModelConfig<'_>) {
        let object = config.outermost();
        let names = object.get::<JsonObject<'_>>("id2label").map(|names| names.len() as u64);
        let names = names.map(|labels| (labels, "id2label"));
        let stated = names.or_else(|| Some((object.number("num_labels")?, "num_labels")));
        // A class that states no number has a default, and a packed head has other rows.
        let Some((labels, key)) = stated.filter(|_| !self.stored.has_packed) else { return };
        let has_rows = |tensor: &TensorInfo| tensor.shape.len() > 1 && tensor.shape[0] == labels;
        let is_outside = |entry: &LayoutEntry| entry.depth == 0 && !entry.path.contains("embed");
        let mut known = self.stored.tensors.iter().filter(|(_, tensor, _)| has_rows(tensor));
        let has_head = known.any(|(.., found)| is_outside(&self.layout.entries[found.entry]))
            || self.stored.unknown.iter().any(|(_, tensor)| has_rows(tensor));
        if labels > 0 && !has_head {
            self.mismatches.add(MismatchKind::MissingHead, class, key, labels, "");
        }
    }

    /// Returns the name of an entry at a place.
    pub(super) fn name(&self, entry: &LayoutEntry, place: Place) -> String {
        let prefix = if entry.is_head { &self.stored.head_prefix } else { &self.stored.prefix };
        let mut numbers = place.iter();
        let parts = entry.path.split('.').map(|part| match part {
            "#" => numbers.next().map_or_else(String::new, u32::to_string),
            part => part.to_owned(),
        });
        prefix.clone() + &parts.collect::<Vec<_>>().join(".")
    }

    /// Returns the length of a list; `None` if it is not known.
    fn length(&mut self, list: usize, place: Place) -> Option<Implied> {
        let LayoutEntry { formulas, scope, depth, .. } = self.layout.entries[list];
        let layer = if depth == 0 { 0 } else { place[0] };
        if ["_", "~"].contains(&formulas) { None } else { self.evaluate(scope, formulas, layer) }
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

    fn check_shapes(&mut self) {
        for (name, tensor, found) in &self.stored.tensors {
            let LayoutEntry { ref path, formulas, is_list, .. } = self.layout.entries[found.entry];
            if is_list || formulas == "_" || self.is_beyond(found.entry, found.place) {
                continue;
            }
            let mut expected = self.expected_shape(found.entry, found.place);
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
            let Some(wrong) = wrong_side(&expected, &tensor.shape) else { continue };
            let keys = wrong.as_ref().map_or("model_type", |(_, keys)| keys.as_str());
            let sides = expected.iter().map(|side| Some(side.as_ref()?.0));
            let (expected, shape) = (sides_text(sides), format!("{:?}", tensor.shape));
            self.mismatches.add(MismatchKind::ShapeMismatch, name, keys, expected, shape);
        }
    }

    /// Returns the sides of a tensor that the configuration implies; `None` for unknown ones.
    pub(super) fn expected_shape(&mut self, entry: usize, place: Place) -> Vec<Option<Implied>> {
        let LayoutEntry { scope, formulas, .. } = self.layout.entries[entry];
        let sides = formulas.split(',');
        sides.map(|side| (side != "_").then(|| self.evaluate(scope, side, place[0]))?).collect()
    }

    /// Compares the length of a list with the configuration.
    fn check_list(&mut self, list: usize, entry: &LayoutEntry) {
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
                self.mismatches.add(MismatchKind::MissingBlocks, path, &keys, length, missing);
            }
            if all > length {
                self.mismatches.add(MismatchKind::SpareBlocks, path, &keys, length, all);
            }
        }
    }

    /// Finds a number that a list of unknown length does not have, although it has the next one.
    fn check_gaps(&mut self, list: &LayoutEntry, elements: &[Place]) {
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

        // Loaders add and remove one segment, the name of the model in the class with the head.
        let (prefix, expected) = (self.stored.prefix.as_str(), self.layout.prefix);
        let spare = prefix.strip_suffix(expected).unwrap_or(prefix);
        let is_segment = spare == prefix && spare.matches('.').count() == 1 || spare == "model.";
        let is_wrapper = ["module.", "_orig_mod."].contains(&spare);
        if !spare.is_empty() && (is_wrapper || !is_segment) {
            self.mismatches.add_prefix(prefix, "model_type", expected);
        }
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
