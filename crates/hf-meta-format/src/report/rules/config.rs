//! Compares the tensors of a model with its configuration.
//!
//! The table of layouts lists the modules of an architecture with formulas of their shapes. `tests/oracles/layouts.py`
//! derives them from `transformers` 5.23.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::siblings::check_siblings;
use super::{MismatchKind, Mismatches};
use crate::base::json_object::{JsonObject, standard_json};
use crate::base::model_config::ModelConfig;
use crate::count::name_pattern::NamePattern;
use crate::count::{Embedding, NamePatterns, container_bits, split_name};
use crate::formats::{FileHeader, RepoPath, TensorInfo, clip};
use crate::report::Finding;
use crate::report::text::counted;
use crate::tables::architecture::positive;
use crate::tables::formula::FormulaError;
use crate::tables::layout::{Entry, Group, GroupRule, Layout, Place};

type Headers = [(RepoPath, FileHeader)];

/// Whether the tensors were compared with `config.json`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigCheck {
    /// True if all modules of the model and their shapes were compared.
    pub compared: bool,
    /// The reason why they were not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ConfigCheck {
    /// Creates the result of a model that was not compared.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { compared: false, reason: Some(reason.into()) }
    }
}

/// Compares all tensors of a model with the contents of `config.json`, or with each other if there is none or its
/// architecture is unknown.
#[must_use]
pub fn check_model(
    config_json: Option<&[u8]>,
    headers: &[(RepoPath, FileHeader)],
) -> (Vec<Finding>, ConfigCheck) {
    let json = config_json.map(standard_json);
    let config = json.as_deref().and_then(|json| serde_json::from_slice(json).ok());
    let result = match (&json, &config) {
        (None, _) => Err("there is none next to the weights".to_owned()),
        (Some(_), None) => Err("it is not a JSON object".to_owned()),
        (Some(json), Some(config)) => compare(config, json, headers),
    };
    match result {
        Ok(mismatches) => {
            (mismatches.into_findings(), ConfigCheck { compared: true, reason: None })
        }
        Err(reason) => {
            let found = check_siblings(config.as_ref(), headers);
            (found.into_findings(), ConfigCheck::skipped(reason))
        }
    }
}

fn compare<'a>(
    config: &ModelConfig<'a>,
    json: &'a [u8],
    headers: &Headers,
) -> Result<Mismatches, String> {
    let object: JsonObject<'a> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let architecture: String = object.get("model_type").ok_or("it has no `model_type`")?;
    let classes = object.get::<Vec<String>>("architectures").unwrap_or_default();
    let has_code = object.raw("auto_map").is_some();
    let unknown = || format!("the architecture `{}` is not known", clip(&architecture));
    let layout = Layout::new(&architecture, object).ok_or_else(unknown)?;
    let stored = StoredModules::new(&layout, headers);
    if !stored.are_named_as(&layout) {
        return Err(format!(
            "the names are not those of `{}` in transformers",
            clip(&architecture)
        ));
    }
    if has_code && !stored.unknown.is_empty() {
        return Err("the model has code of its own (`auto_map`)".to_owned());
    }
    let has_head = classes.is_empty() && stored.prefix.ends_with(layout.prefix)
        || classes.iter().any(|class| class.ends_with(layout.head_class));
    let is_tied = config.is_tied();
    let (values, mut mismatches) = Default::default();
    check_heads(config, &mut mismatches);
    let mut check = ModelCheck { layout, stored, has_head, is_tied, values, mismatches };
    check.check_all(config);
    Ok(check.mismatches)
}

/// Finds numbers of heads that are 0, by which model classes divide.
fn check_heads(config: &ModelConfig<'_>, found: &mut Mismatches) {
    const KEYS: [&str; 3] = ["num_attention_heads", "n_head", "num_heads"];

    for model in config.models() {
        for key in KEYS.iter().filter(|key| model.object.number(key) == Some(0)) {
            found.add(MismatchKind::InvalidConfigValue, key, key, "a positive number", 0);
        }
    }
}

/// A tensor of a known module.
struct Found {
    entry: usize,
    place: Place,
    part: ModulePart,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ModulePart {
    Weight,
    Bias,
    /// A part of a packed weight.
    Packed,
}

impl Found {
    /// Finds the module of a tensor by its name without the prefix of the model.
    fn new(layout: &Layout<'_>, name: &str, is_head: bool) -> Option<Self> {
        let find = |module, part| {
            let (entry, place) = layout.find(module, is_head)?;
            Some(Self { entry, place, part })
        };
        let weight = find(name.strip_suffix(".weight").unwrap_or(name), ModulePart::Weight);
        weight.or_else(|| find(name.strip_suffix(".bias")?, ModulePart::Bias)).or_else(|| {
            let (module, _) = split_name(name);
            find(module, ModulePart::Packed).filter(|_| module.len() < name.len())
        })
    }
}

/// The modules in the files.
struct StoredModules<'h> {
    /// The prefix of the model, and the one of its head.
    prefix: String,
    head_prefix: String,
    /// The places of each entry, sorted: of a module, or of the elements of a list.
    places: Vec<Vec<Place>>,
    biases: Vec<Vec<Place>>,
    tensors: Vec<(&'h str, TensorInfo, Found)>,
    unknown: Vec<(&'h str, TensorInfo)>,
    /// The layers with experts under names that the layout does not have.
    other_experts: BTreeSet<u32>,
    /// The elements of the outermost lists with unknown modules.
    with_others: BTreeSet<(usize, u32)>,
    /// The modules with packed weights that the layout does not have. They may contain several of its modules.
    packed: BTreeSet<&'h str>,
    has_drafts: bool,
    has_output: bool,
    /// The rows of the input embedding and of the output embedding.
    input_rows: Option<u64>,
    output_rows: Option<u64>,
}

impl<'h> StoredModules<'h> {
    fn new(layout: &Layout<'_>, headers: &'h Headers) -> Self {
        let tensors = || headers.iter().flat_map(|(_, header)| header.tensors());
        let prefix = prefix(layout, tensors().map(|(name, _)| name));
        let head_prefix = prefix.strip_suffix(layout.prefix).unwrap_or(prefix);
        let count = layout.entries.len();
        let mut stored = Self {
            prefix: prefix.to_owned(),
            head_prefix: head_prefix.to_owned(),
            places: vec![Vec::new(); count],
            biases: vec![Vec::new(); count],
            tensors: Vec::new(),
            unknown: Vec::new(),
            other_experts: BTreeSet::new(),
            with_others: BTreeSet::new(),
            packed: BTreeSet::new(),
            has_drafts: false,
            has_output: false,
            input_rows: None,
            output_rows: None,
        };
        let mut names = NamePatterns::default();
        for (name, tensor) in tensors() {
            let facts = names.read(name);
            stored.has_drafts |= facts.is_draft();
            let rows = tensor
                .shape
                .first()
                .copied()
                .filter(|_| is_unpacked(&tensor) && tensor.shape.len() == 2);
            match facts.embedding() {
                Some(Embedding::Output) => {
                    stored.has_output = true;
                    stored.output_rows = rows.or(stored.output_rows);
                }
                Some(Embedding::Input) => stored.input_rows = rows.or(stored.input_rows),
                _ => {}
            }
            stored.add(layout, name, tensor);
        }
        for places in stored.places.iter_mut().chain(&mut stored.biases) {
            places.sort_unstable();
            places.dedup();
        }
        stored
    }

    fn add(&mut self, layout: &Layout<'_>, name: &'h str, tensor: TensorInfo) {
        let inside = name.strip_prefix(&self.prefix);
        let found = inside.and_then(|name| Found::new(layout, name, false));
        let head = || Found::new(layout, name.strip_prefix(&self.head_prefix)?, true);
        let Some(found) = found.or_else(head) else {
            return self.add_unknown(layout, name, tensor);
        };
        let Found { entry, place, part } = found;
        if part == ModulePart::Bias {
            self.biases[entry].push(place);
        } else {
            self.places[entry].push(place);
        }
        let mut at = &layout.entries[entry];
        while let Some(list) = at.parent {
            at = &layout.entries[list];
            let element = first_numbers(place, at.depth + 1);
            if self.places[list].last() != Some(&element) {
                self.places[list].push(element);
            }
        }
        if part == ModulePart::Weight && is_unpacked(&tensor) {
            self.tensors.push((name, tensor, found));
        }
    }

    fn add_unknown(&mut self, layout: &Layout<'_>, name: &'h str, tensor: TensorInfo) {
        /// The maximum number of unknown tensors. Further ones are ignored.
        const MAX_UNKNOWN: usize = 10_000;

        let (module, component) = split_name(name);
        if !component.is_plain() && self.packed.len() < MAX_UNKNOWN {
            self.packed.insert(module);
        }
        let inside = name.strip_prefix(&self.prefix).unwrap_or(name);
        if let Some((list, number)) = layout.element(inside) {
            self.with_others.insert((list, number));
            if is_expert(inside) {
                self.other_experts.insert(number);
            }
        }
        let is_nested = layout.unknown.iter().any(|prefix| inside.starts_with(&**prefix));
        if !is_nested && !is_leftover(name) && self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push((name, tensor));
        }
    }

    /// Returns whether most modules have names of the layout, or nearly none has other names.
    fn are_named_as(&self, layout: &Layout<'_>) -> bool {
        let required = layout.entries.iter().zip(&self.places);
        let required = required.filter(|(entry, _)| entry.is_required && !entry.is_head);
        let (all, known) = required.fold((0, 0), |(all, known), (_, places)| {
            (all + 1, known + usize::from(!places.is_empty()))
        });
        known * 2 >= all || known > 0 && self.unknown.len() < known
    }
}

/// Returns the prefix of a model: the one before most names of its layout.
fn prefix<'h>(layout: &Layout<'_>, names: impl Iterator<Item = &'h str>) -> &'h str {
    /// The maximum number of prefixes, because each file could have others.
    const MAX_PREFIXES: usize = 64;

    let mut found = BTreeMap::<&str, BTreeSet<usize>>::new();
    for name in names {
        let dots = name.match_indices('.').map(|(dot, _)| dot + 1);
        for start in std::iter::once(0).chain(dots.take(8)) {
            let (prefix, inside) = name.split_at(start);
            let segment = inside.split('.').next().unwrap_or_default();
            let is_new = !found.contains_key(prefix);
            if !layout.has_root(segment) || is_new && found.len() == MAX_PREFIXES {
                continue;
            }
            if let Some(Found { entry, .. }) = Found::new(layout, inside, false) {
                found.entry(prefix).or_default().insert(entry);
            }
        }
    }
    let best = found.into_iter().max_by_key(|(prefix, entries)| {
        (entries.len(), *prefix == layout.prefix, usize::MAX - prefix.len())
    });
    best.map_or("", |(prefix, _)| prefix)
}

/// Returns whether a weight tensor has the shape of its weights. bitsandbytes packs into columns, and quantizers may
/// transpose stacks.
fn is_unpacked(TensorInfo { dtype, shape, .. }: &TensorInfo) -> bool {
    let least = if shape.len() > 2 { 16 } else { 8 };
    let is_float = container_bits(dtype).is_none() && dtype.bits() >= Some(least);
    is_float && !matches!(shape[..], [_, 1])
}

/// Returns whether a name belongs to routed experts, which formats store one by one or as stacks.
fn is_expert(name: &str) -> bool {
    name.split('.').any(|part| part.contains("expert") || part == "switch_mlp")
}

/// Returns whether a module may be a part of experts, which formats name differently.
fn is_feed_forward(path: &str) -> bool {
    const PARTS: [&str; 7] = ["expert", "moe", "mlp", "feed_forward", "ffn", "gate", "router"];

    PARTS.iter().any(|part| path.contains(part))
}

/// Returns whether a tensor is one that old versions stored and loaders ignore.
fn is_leftover(name: &str) -> bool {
    const ENDS: [&str; 7] = [
        "inv_freq",
        "masked_bias",
        "attn.bias",
        "attention.bias",
        "position_ids",
        "token_type_ids",
        "num_batches_tracked",
    ];
    const ROTARY: &str = "rotary_emb";

    ENDS.iter().any(|end| name.ends_with(end)) || name.contains(ROTARY)
}

/// Returns a place without the numbers of inner lists.
fn first_numbers(place: Place, depth: usize) -> Place {
    let mut first = Place::default();
    first[..depth].copy_from_slice(&place[..depth]);
    first
}

/// A comparison of a model with its configuration.
struct ModelCheck<'a, 'h> {
    layout: Layout<'a>,
    stored: StoredModules<'h>,
    /// True if the model class has a head.
    has_head: bool,
    is_tied: Option<bool>,
    /// The values of formulas of each scope in each layer, with the keys that imply them.
    values: HashMap<(usize, &'static str, u32), Option<(u64, String)>>,
    mismatches: Mismatches,
}

impl ModelCheck<'_, '_> {
    /// Evaluates a formula for a layer. The keys of the result are joined by commas.
    fn evaluate(
        &mut self,
        scope: usize,
        formula: &'static str,
        layer: u32,
    ) -> Option<(u64, String)> {
        if let Some(value) = self.values.get(&(scope, formula, layer)) {
            return value.clone();
        }
        let model = &mut self.layout.scopes[scope];
        model.names.layer = layer.into();
        let value = match model.names.trace(formula) {
            // Files with custom code may have other defaults.
            Ok((_, keys)) if keys.keys().any(|key| model.names.is_default(key)) => None,
            Ok((value, keys)) => {
                let keys: Vec<_> =
                    keys.into_keys().map(|key| format!("{}{key}", model.path)).collect();
                Some((value, keys.join(", ")))
            }
            Err(FormulaError::InvalidKey { key } | FormulaError::WrongLength { key }) => {
                let found = model.names.text(key);
                let key = format!("{}{key}", model.path);
                self.mismatches.add(
                    MismatchKind::InvalidConfigValue,
                    &key,
                    &key,
                    "a number, or one per layer",
                    found,
                );
                None
            }
            Err(_) => None,
        };
        self.values.insert((scope, formula, layer), value.clone());
        value
    }

    fn check_all(&mut self, config: &ModelConfig<'_>) {
        self.check_shapes();
        for list in 0..self.layout.entries.len() {
            self.check_list(list);
        }
        let missing = self.missing_modules();
        self.add_missing(&missing);
        self.check_biases();
        self.check_parts(config);
    }

    /// Returns the name of an entry at a place.
    fn name(&self, entry: &Entry, place: Place) -> String {
        let prefix = if entry.is_head { &self.stored.head_prefix } else { &self.stored.prefix };
        let mut numbers = place.iter();
        let parts = entry.path.split('.').map(|part| match part {
            "#" => numbers.next().map_or_else(String::new, u32::to_string),
            part => part.to_owned(),
        });
        prefix.clone() + &parts.collect::<Vec<_>>().join(".")
    }

    /// Returns the length of a list; `None` if it is not known.
    fn length(&mut self, list: usize, place: Place) -> Option<(u64, String)> {
        let Entry { formulas, scope, depth, .. } = self.layout.entries[list];
        let layer = if depth == 0 { 0 } else { place[0] };
        if ["_", "~"].contains(&formulas) { None } else { self.evaluate(scope, formulas, layer) }
    }

    /// Returns whether a place is in a layer after the last one. Such layers draft tokens.
    fn is_beyond(&mut self, entry: usize, place: Place) -> bool {
        let mut at = entry;
        while let Some(list) = self.layout.entries[at].parent {
            at = list;
        }
        let is_inside = at != entry || self.layout.entries[at].is_list;
        is_inside && self.length(at, place).is_some_and(|(length, _)| u64::from(place[0]) >= length)
    }

    fn check_shapes(&mut self) {
        for (name, tensor, found) in std::mem::take(&mut self.stored.tensors) {
            let Entry { formulas, scope, parent, is_list, .. } = self.layout.entries[found.entry];
            if is_list
                || formulas == "_"
                || parent.is_some() && self.is_beyond(found.entry, found.place)
            {
                continue;
            }
            let expected = self.expected_shape(scope, formulas, found.place[0]);
            let wrong =
                expected.iter().zip(&tensor.shape).find(|(side, length)| !side.fits(**length));
            let keys = match wrong {
                Some((side, _)) => side.keys.clone(),
                None if expected.len() == tensor.shape.len() => continue,
                None => expected
                    .iter()
                    .map(|side| &*side.keys)
                    .find(|keys| !keys.is_empty())
                    .unwrap_or("model_type")
                    .to_owned(),
            };
            let sides: Vec<_> = expected.iter().map(ToString::to_string).collect();
            let (expected, shape) =
                (format!("[{}]", sides.join(", ")), format!("{:?}", tensor.shape));
            self.mismatches.add(MismatchKind::ShapeMismatch, name, &keys, expected, shape);
        }
    }

    fn expected_shape(&mut self, scope: usize, formulas: &'static str, layer: u32) -> Vec<Side> {
        let mut side = |text: &'static str| {
            let (is_least, formula) =
                text.strip_prefix('>').map_or((false, text), |formula| (true, formula));
            let value = if formula == "_" { None } else { self.evaluate(scope, formula, layer) };
            let (value, keys) =
                value.map_or((None, String::new()), |(value, keys)| (Some(value), keys));
            Side { value, is_least, keys }
        };
        formulas.split(',').map(&mut side).collect()
    }

    /// Compares the length of a list with the configuration.
    fn check_list(&mut self, list: usize) {
        let Entry { depth, is_list, .. } = self.layout.entries[list];
        let elements = self.stored.places[list].clone();
        if !is_list {
            return;
        }
        for elements in elements.chunk_by(|left, right| left[..depth] == right[..depth]) {
            let place = first_numbers(elements[0], depth);
            let Some((length, keys)) = self.length(list, place) else {
                if self.layout.entries[list].formulas == "_" {
                    self.check_gaps(list, elements, depth);
                }
                continue;
            };
            if depth > 0 && self.is_beyond(list, place) {
                continue;
            }
            let numbers: BTreeSet<u64> = elements.iter().map(|place| place[depth].into()).collect();
            let stored = numbers.range(..length).count() as u64;
            let spare = numbers.range(length..).filter(|number| {
                let element = u32::try_from(**number).map(|number| (list, number));
                depth > 0
                    || element.is_ok_and(|element| !self.stored.with_others.contains(&element))
            });
            let all = stored + spare.count() as u64;
            self.stored.has_drafts |= depth == 0 && numbers.iter().any(|number| *number >= length);
            let name = self.name(&self.layout.entries[list], place);
            let path = name.rsplit_once('.').map_or("", |(path, _)| path);
            if stored < length {
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
    fn check_gaps(&mut self, list: usize, elements: &[Place], depth: usize) {
        let mut numbers = elements.iter().map(|place| place[depth]).zip(0..);
        if let Some((_, missing)) = numbers.find(|(number, expected)| number != expected) {
            let name = self.name(&self.layout.entries[list], elements[0]);
            let path = name.rsplit_once('.').map_or("", |(path, _)| path);
            let missing = format!("{} {missing}", noun(path));
            self.mismatches.add(MismatchKind::MissingNumber, path, "", "", missing);
        }
    }

    /// Returns the modules that the configuration or their group implies, and that are not stored, with their places.
    fn missing_modules(&mut self) -> Vec<(usize, Place)> {
        let mut missing = Vec::new();
        let parents: BTreeSet<_> = self.layout.entries.iter().map(|entry| entry.parent).collect();
        for parent in parents {
            let domain = match parent {
                None => vec![Place::default()],
                Some(list) => self.stored.places[list].clone(),
            };
            let groups = self.groups(parent);
            for place in domain {
                if parent.is_some_and(|list| self.is_beyond(list, place)) {
                    continue;
                }
                let wanted = self.wanted_groups(&groups, parent, place);
                for entry in self.layout.children(parent).collect::<Vec<_>>() {
                    let Entry { is_required, group, is_head, .. } = self.layout.entries[entry];
                    let is_wanted =
                        is_required || group.is_some_and(|group| wanted.contains(&group));
                    let is_missing = is_wanted
                        && (!is_head || self.has_head)
                        && !self.is_stored(entry, place)
                        && !self.is_elsewhere(entry, place)
                        && !self.is_empty(entry, place);
                    if is_missing {
                        missing.push((entry, place));
                    }
                }
            }
        }
        missing
    }

    /// Returns the groups of a parent with their entries.
    fn groups(&self, parent: Option<usize>) -> BTreeMap<Group, Vec<usize>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for entry in self.layout.children(parent) {
            if let Some(group) = self.layout.entries[entry].group {
                groups.entry(group).or_default().push(entry);
            }
        }
        groups
    }

    /// Returns the groups of which something is stored at a place, or which a rule implies.
    fn wanted_groups(
        &mut self,
        groups: &BTreeMap<Group, Vec<usize>>,
        parent: Option<usize>,
        place: Place,
    ) -> BTreeSet<Group> {
        let is_stored =
            |entries: &Vec<usize>| entries.iter().any(|entry| self.is_stored(*entry, place));
        let stored =
            groups.iter().filter(|(_, entries)| is_stored(entries)).map(|(group, _)| *group);
        let mut wanted: BTreeSet<_> = stored.collect();
        for at in 0..self.layout.rules.len() {
            match &self.layout.rules[at] {
                GroupRule::One(choices) if choices[0].1 == parent => {
                    if !choices.iter().any(|group| wanted.contains(group)) {
                        wanted.insert(choices[0]);
                    }
                }
                &GroupRule::If(group, formula, scope) if group.1 == parent => {
                    if self.evaluate(scope, formula, place[0]).is_some_and(|(value, _)| value > 0) {
                        wanted.insert(group);
                    }
                }
                _ => {}
            }
        }
        wanted
    }

    /// Returns whether an entry has a tensor at a place.
    fn is_stored(&self, entry: usize, place: Place) -> bool {
        let Entry { is_list, depth, .. } = self.layout.entries[entry];
        let places = &self.stored.places[entry];
        let at = places.partition_point(|other| *other < place);
        places.get(at).is_some_and(|other| {
            if is_list { other[..depth] == place[..depth] } else { *other == place }
        })
    }

    /// Returns whether another tensor replaces a module: experts under other names, or a tied embedding.
    fn is_elsewhere(&self, entry: usize, place: Place) -> bool {
        let entry = &self.layout.entries[entry];
        if is_feed_forward(&entry.path) && self.stored.other_experts.contains(&place[0]) {
            return true;
        }
        let name = self.name(entry, place);
        let mut outer = name.match_indices('.').map(|(dot, _)| &name[..dot]);
        if outer.any(|outer| self.stored.packed.contains(outer)) {
            return true;
        }
        match NamePatterns::default().read(&name).embedding() {
            Some(Embedding::Output) => self.is_tied == Some(true) || self.stored.has_output,
            Some(Embedding::Input) => self.is_tied != Some(false) && self.stored.has_output,
            _ => false,
        }
    }

    /// Returns whether the configuration implies a module without elements, which is not stored.
    fn is_empty(&mut self, entry: usize, place: Place) -> bool {
        let Entry { scope, formulas, .. } = self.layout.entries[entry];
        formulas != "~"
            && self
                .expected_shape(scope, formulas, place[0])
                .iter()
                .any(|side| side.value == Some(0))
    }

    /// Adds the mismatches of missing modules. If all modules below a path are missing, the path is named.
    fn add_missing(&mut self, missing: &[(usize, Place)]) {
        let mut paths = BTreeMap::<_, BTreeSet<usize>>::new();
        for &(entry, place) in missing {
            let found = &self.layout.entries[entry];
            let name = self.name(found, place);
            if let Some(path) = self.missing_path(entry) {
                let length = name.match_indices('.').nth(path).map_or(name.len(), |(dot, _)| dot);
                paths.entry(name[..length].to_owned()).or_default().insert(entry);
                continue;
            }
            let renamed = self.renamed(entry, place, &name);
            let (kind, other) = match renamed {
                Some(other) => (MismatchKind::RenamedTensor, other),
                None => (MismatchKind::MissingTensor, ""),
            };
            // The names in a list are folded, and differ in their numbers.
            let other = NamePattern::new(other).text;
            self.mismatches.add(kind, &name, "model_type", "", other);
        }
        for (path, entries) in paths {
            self.mismatches.add(MismatchKind::MissingPath, &path, "model_type", "", entries.len());
        }
    }

    /// Returns the number of dots in the shortest path below which nothing is stored; `None` for the path of the entry
    /// itself.
    fn missing_path(&self, entry: usize) -> Option<usize> {
        let found = &self.layout.entries[entry];
        let inside = |path: &str| {
            let prefix = format!("{path}.");
            let below = self.layout.entries.iter().zip(&self.stored.places);
            let mut below = below.filter(move |(other, _)| {
                other.is_head == found.is_head && other.path.starts_with(&prefix)
            });
            below.all(|(_, places)| places.is_empty())
        };
        let dots = found.path.match_indices('.').enumerate();
        let (path, _) =
            dots.map(|(at, (dot, _))| (at, dot)).find(|(_, dot)| inside(&found.path[..*dot]))?;
        let prefix = if found.is_head { &self.stored.head_prefix } else { &self.stored.prefix };
        Some(path + prefix.matches('.').count())
    }

    /// Returns an unknown tensor next to a missing one, with its shape.
    fn renamed(&mut self, entry: usize, place: Place, name: &str) -> Option<&str> {
        let Entry { scope, formulas, is_list, .. } = self.layout.entries[entry];
        if is_list || formulas == "_" {
            return None;
        }
        let expected = self.expected_shape(scope, formulas, place[0]);
        let parent = |name: &str| name.rsplit_once('.').map_or(0, |(parent, _)| parent.len());
        let module = |name: &str| parent(name.trim_end_matches(".weight"));
        let inside = &name[..parent(name)];
        let found = self.stored.unknown.iter().find(|(other, tensor)| {
            let fits = expected.iter().zip(&tensor.shape).all(|(side, length)| side.fits(*length));
            fits && expected.len() == tensor.shape.len() && other[..module(other)] == *inside
        });
        found.map(|(other, _)| *other)
    }

    /// Adds the missing biases of modules that always have one.
    fn check_biases(&mut self) {
        for (at, entry) in
            self.layout.entries.iter().enumerate().filter(|(_, entry)| entry.has_bias)
        {
            let biases = &self.stored.biases[at];
            let places = self.stored.places[at].iter();
            for place in places.filter(|place| biases.binary_search(place).is_err()) {
                let name = format!("{}.bias", self.name(entry, *place));
                self.mismatches.add(MismatchKind::MissingTensor, &name, "model_type", "", "");
            }
        }
    }

    /// Adds the notes and warnings about the model as a whole.
    fn check_parts(&mut self, config: &ModelConfig<'_>) {
        use MismatchKind as Kind;

        let lists =
            (0..self.layout.entries.len()).filter(|list| self.layout.entries[*list].is_list);
        let lists: Vec<_> = lists.filter(|list| self.layout.entries[*list].depth == 0).collect();
        let lengths = lists
            .into_iter()
            .filter_map(|list| Some((list, self.length(list, Place::default())?.0)));
        let lengths: HashMap<_, _> = lengths.collect();
        // Training programs wrap models, and loaders do not know their names.
        let is_wrapper = |(at, part): &(usize, &str)| {
            *part == "module" && *at == 0 || ["_orig_mod", "_fsdp_wrapped_module"].contains(part)
        };
        let prefix = &self.stored.prefix;
        if let Some((_, wrapper)) = prefix.split('.').enumerate().find(is_wrapper) {
            self.mismatches.add(Kind::WrappedNames, wrapper, "model_type", "no prefix", prefix);
        }
        if let Some((key, layers)) = positive(config.text_model(), "draft_layers")
            && !self.stored.has_drafts
        {
            self.mismatches.add(Kind::MissingDraftLayers, "", key, layers, 0);
        }
        if let (Some(input), Some(output), Some(true)) =
            (self.stored.input_rows, self.stored.output_rows, self.is_tied)
            && input != output
        {
            self.mismatches.add(
                Kind::TiedShapeMismatch,
                "lm_head",
                "tie_word_embeddings",
                input,
                output,
            );
        }
        let unknown = std::mem::take(&mut self.stored.unknown);
        let is_draft = |name: &str| {
            let element = name
                .strip_prefix(&self.stored.prefix)
                .and_then(|inside| self.layout.element(inside));
            element.is_some_and(|(list, number)| {
                lengths.get(&list).is_some_and(|length| u64::from(number) >= *length)
            })
        };
        let unknown: Vec<_> = unknown.iter().filter(|(name, _)| !is_draft(name)).collect();
        if let [(first, _), ..] = unknown[..] {
            let others = unknown.len();
            let found = counted(others as u64, "tensor");
            self.mismatches.add(Kind::UnknownTensor, first, "model_type", "", found);
        }
    }
}

/// A side of a tensor that the configuration implies.
struct Side {
    value: Option<u64>,
    is_least: bool,
    keys: String,
}

impl Side {
    fn fits(&self, length: u64) -> bool {
        self.value.is_none_or(|value| if self.is_least { length >= value } else { length == value })
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value {
            Some(value) => write!(f, "{}{value}", if self.is_least { "≥" } else { "" }),
            None => f.write_str("_"),
        }
    }
}

/// Returns what the elements of a list are called.
fn noun(path: &str) -> &'static str {
    let name = path.rsplit('.').next().unwrap_or_default();
    match name {
        "experts" => "expert",
        "blocks" | "block" => "block",
        _ => "layer",
    }
}
