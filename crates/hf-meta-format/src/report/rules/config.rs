//! Compares the tensors of a language model with its configuration.
//!
//! The table of architectures lists the modules of a language model with formulas of their shapes.
//! `tests/oracles/layouts.py` derives them from `transformers` 5.23.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::rc::Rc;

use super::{MismatchKind, Mismatches};
use crate::base::json_object::{JsonObject, standard_json};
use crate::base::model_config::ModelConfig;
use crate::count::name_pattern::NamePattern;
use crate::count::{Component, NamePatterns, container_bits, split_name};
use crate::formats::{FileHeader, RepoPath, TensorInfo};
use crate::report::Finding;
use crate::tables::architecture::{Definitions, ModelNames, positive};
use crate::tables::formula::FormulaError;

type Headers = [(RepoPath, FileHeader)];

/// The output embedding, which is next to the language model or inside of it.
const HEAD: &str = "lm_head";

/// The name of the input embedding in the table.
const INPUT: &str = "@";

/// The names of vision towers, which are the first or second segment of a name.
const TOWERS: [&str; 3] = ["visual", "vision_model", "vision_tower"];

/// Parts of a configuration that describe images in some way, or a model with other code.
const IMAGE_KEYS: [&str; 6] = ["vis", "image", "img", "mm_", "clip", "auto_map"];

/// Compares all tensors of a model with the contents of `config.json`. Returns nothing for unknown layouts.
#[must_use]
pub fn check_model(config_json: &[u8], headers: &[(RepoPath, FileHeader)]) -> Vec<Finding> {
    let json = standard_json(config_json);
    let config = serde_json::from_slice::<ModelConfig<'_>>(&json).ok();
    let found = config.and_then(|config| find_mismatches(&config, &json, headers));
    found.unwrap_or_default().into_findings()
}

fn find_mismatches(config: &ModelConfig<'_>, json: &[u8], headers: &Headers) -> Option<Mismatches> {
    let architecture = config.architecture()?;
    let rules = Definitions::find("modules", &architecture)?;
    let embedding = rules.get(INPUT)?;
    let prefix = prefix(headers, embedding)?;
    let definitions = Definitions::find("cache", &architecture).or_else(Definitions::root)?;
    let mut check = ConfigCheck {
        rules: &rules,
        names: ModelNames::of_config(definitions, config.text_model()),
        values: HashMap::new(),
        mismatches: Mismatches::default(),
    };
    let mut stored = StoredModules::default();
    for (name, tensor) in headers.iter().flat_map(|(_, header)| header.tensors()) {
        stored.add_name(name);
        let Some(found) = ModuleTensor::new(name, prefix, tensor) else {
            stored.has_others = true;
            continue;
        };
        stored.add(&found, &rules);
        if let Some(shape) = rules.get(&found.place.text).filter(|_| found.is_unpacked()) {
            check.check_shape(&found, shape);
            if found.inside == HEAD || found.inside == embedding {
                let row = &mut stored.rows[usize::from(found.inside == HEAD)];
                *row = found.tensor.shape.first().copied();
            }
        }
    }
    let mut has_spares = false;
    for (list, elements) in &stored.lists {
        has_spares |= check.check_list(list, elements);
    }
    stored.has_drafts |= has_spares;
    check.check_parts(config, json, prefix, &stored);
    Some(check.mismatches)
}

/// Returns the start of the names of a language model, if it has exactly one input embedding.
fn prefix<'a>(headers: &'a Headers, embedding: &str) -> Option<&'a str> {
    let names = headers.iter().flat_map(|(_, header)| header.tensors()).map(|(name, _)| name);
    let modules = names.map(split_name).filter(|(_, component)| component.is_weights());
    let prefixes = modules.filter_map(|(module, _)| module.strip_suffix(embedding));
    let mut prefixes = prefixes.filter(|prefix| prefix.is_empty() || prefix.ends_with('.'));
    prefixes.next().filter(|_| prefixes.next().is_none())
}

/// A tensor of a module that is in the language model, or of the output embedding.
struct ModuleTensor<'h> {
    name: &'h str,
    component: &'static Component,
    tensor: TensorInfo,
    is_bias: bool,
    module: &'h str,
    /// The name of the module, relative to the language model.
    inside: &'h str,
    place: NamePattern,
}

impl<'h> ModuleTensor<'h> {
    /// Returns `None` for a module outside of the language model.
    fn new(name: &'h str, prefix: &str, tensor: TensorInfo) -> Option<Self> {
        let (whole, component) = split_name(name);
        let module = whole.strip_suffix(".bias").unwrap_or(whole);
        let is_head = module == HEAD || module.ends_with(".lm_head");
        let inside = if is_head { HEAD } else { module.strip_prefix(prefix)? };
        let (is_bias, place) = (module.len() < whole.len(), NamePattern::new(inside));
        Some(Self { name, component, tensor, is_bias, module, inside, place })
    }

    /// Returns whether the tensor has the shape of its weights. bitsandbytes packs into columns, and quantizers may
    /// transpose stacks.
    fn is_unpacked(&self) -> bool {
        let TensorInfo { dtype, shape, .. } = &self.tensor;
        let least = if shape.len() > 2 { 16 } else { 8 };
        let is_float = container_bits(dtype).is_none() && dtype.bits() >= Some(least);
        let is_weight = self.component.is_plain() && !self.is_bias;
        is_weight && is_float && !matches!(shape[..], [_, 1])
    }

    /// Returns the path of the list that contains the number at `start` of the name inside the language model.
    fn list_path(&self, start: usize) -> &'h str {
        let path = &self.module[..self.module.len() - self.inside.len() + start];
        path.trim_end_matches('.')
    }
}

/// Returns the number of the layer; 0 outside of layers.
fn layer(place: &NamePattern) -> u64 {
    place.numbers.first().map_or(0, |number| number.value)
}

/// A list of modules, such as the layers of a model or the experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleList<'h> {
    /// The name in the table.
    name: &'static str,
    /// The number of the layer around the list; 0 for the layers.
    layer: u64,
    path: &'h str,
}

/// The patterns of the names of modules.
type Patterns = BTreeSet<Rc<str>>;

/// The modules in the files.
#[derive(Default)]
struct StoredModules<'h> {
    /// The modules of each element of each list.
    lists: BTreeMap<ModuleList<'h>, BTreeMap<u64, Patterns>>,
    /// The patterns that modules share. A hostile file can have a different one for each tensor.
    patterns: HashSet<Rc<str>>,
    /// The rows of the input embedding and of the output embedding.
    rows: [Option<u64>; 2],
    /// True if a module is outside of the known language model.
    has_others: bool,
    has_drafts: bool,
    names: NamePatterns,
    /// A tensor of a vision tower.
    tower: Option<&'h str>,
}

impl<'h> StoredModules<'h> {
    /// The maximum number of different patterns. Further unknown ones count as one.
    const MAX_PATTERNS: usize = 128;

    fn add_name(&mut self, name: &'h str) {
        self.has_drafts |= self.names.read(name).is_draft();
        let is_tower = name.split('.').take(2).any(|part| TOWERS.contains(&part));
        self.tower = self.tower.or(Some(name).filter(|_| is_tower));
    }

    fn add(&mut self, found: &ModuleTensor<'h>, rules: &Definitions) {
        let place = &found.place;
        let is_known = rules.get(&place.text).is_some();
        self.has_others |= !is_known;
        let pattern = self.shared(&place.text, is_known);
        for (at, number) in place.numbers.iter().enumerate() {
            if let Some((name, _)) = rules.entries.get_key_value(&place.text[..number.pattern_end])
            {
                let layer = if at == 0 { 0 } else { layer(place) };
                let list = ModuleList { name, layer, path: found.list_path(number.start) };
                let elements = self.lists.entry(list).or_default();
                elements.entry(number.value).or_default().insert(pattern.clone());
            }
        }
    }

    fn shared(&mut self, pattern: &str, is_known: bool) -> Rc<str> {
        if let Some(known) = self.patterns.get(pattern) {
            return known.clone();
        }
        if !is_known && self.patterns.len() >= Self::MAX_PATTERNS {
            return "".into();
        }
        let new: Rc<str> = pattern.into();
        self.patterns.insert(new.clone());
        new
    }
}

/// A comparison of a model with its configuration.
struct ConfigCheck<'a> {
    rules: &'a Definitions,
    names: ModelNames<'a>,
    /// The values of formulas in each layer, with the keys that imply them.
    values: HashMap<(&'static str, u64), Option<(u64, String)>>,
    mismatches: Mismatches,
}

impl ConfigCheck<'_> {
    /// Evaluates a formula for a layer. The keys of the result are joined by commas.
    fn evaluate(&mut self, formula: &'static str, layer: u64) -> Option<(u64, String)> {
        if let Some(value) = self.values.get(&(formula, layer)) {
            return value.clone();
        }
        self.names.layer = layer;
        let value = match self.names.trace(formula) {
            // Files with custom code may have other defaults.
            Ok((_, keys)) if keys.keys().any(|key| self.names.is_default(key)) => None,
            Ok((value, keys)) => {
                let keys: Vec<_> = keys.into_keys().collect();
                Some((value, keys.join(", ")))
            }
            Err(FormulaError::InvalidKey { key } | FormulaError::WrongLength { key }) => {
                let found = self.names.text(key);
                let kind = MismatchKind::InvalidConfigValue;
                self.mismatches.add(kind, (key, ""), key, ("a number, or one per layer", found));
                None
            }
            Err(_) => None,
        };
        self.values.insert((formula, layer), value.clone());
        value
    }

    /// Compares the parts of the model with the configuration: wrappers, vision towers, embeddings and draft layers.
    fn check_parts(
        &mut self,
        config: &ModelConfig<'_>,
        json: &[u8],
        prefix: &str,
        stored: &StoredModules<'_>,
    ) {
        use MismatchKind as Kind;

        let mut add = |kind, module: &str, key: &str, values: [&dyn Display; 2]| {
            self.mismatches.add(kind, (module, ""), key, (values[0], values[1]));
        };
        // Training programs wrap models, and loaders do not know their names.
        let is_wrapper = |(at, part): &(usize, &str)| {
            *part == "module" && *at == 0 || ["_orig_mod", "_fsdp_wrapped_module"].contains(part)
        };
        if let Some((_, wrapper)) = prefix.split('.').enumerate().find(is_wrapper) {
            add(Kind::WrappedNames, wrapper, "model_type", [&"no prefix", &prefix]);
        }
        let outer = config.outermost();
        let has_vision = outer.get::<JsonObject<'_>>("vision_config").is_some();
        if has_vision && !stored.has_others {
            add(Kind::MissingVisionTower, "", "vision_config", [&1, &0]);
        }
        let text = std::str::from_utf8(json).unwrap_or_default();
        let has_images = IMAGE_KEYS.iter().any(|key| text.contains(key));
        let is_whole = outer.get::<String>("model_type") == config.architecture();
        if let Some(tower) = stored.tower.filter(|_| !has_images && is_whole) {
            add(Kind::SpareVisionTower, tower, "model_type", [&0, &1]);
        }
        if let [Some(input), Some(output)] = stored.rows
            && config.is_tied() == Some(true)
            && input != output
        {
            add(Kind::TiedShapeMismatch, HEAD, "tie_word_embeddings", [&input, &output]);
        }
        if let Some((key, layers)) = positive(config.text_model(), "draft_layers")
            && !stored.has_drafts
        {
            add(Kind::MissingDraftLayers, "", key, [&layers, &0]);
        }
    }

    fn check_shape(&mut self, found: &ModuleTensor<'_>, formulas: &'static str) {
        let place = &found.place;
        // Layers that draft tokens may have other shapes.
        if let Some(first) = place.numbers.first()
            && let Some(list) = self.rules.get(&place.text[..first.pattern_end])
            && self.evaluate(list, 0).is_none_or(|(length, _)| first.value >= length)
        {
            return;
        }
        let shape = &found.tensor.shape;
        let (mut expected, mut wrong) = (Vec::new(), None);
        for (at, formula) in formulas.trim_start_matches('!').split(',').enumerate() {
            let (is_least, formula) =
                formula.strip_prefix('>').map_or((false, formula), |formula| (true, formula));
            let value = if formula == "_" { None } else { self.evaluate(formula, layer(place)) };
            let Some((value, keys)) = value else {
                expected.push("_".to_owned());
                continue;
            };
            expected.push(format!("{}{value}", if is_least { "≥" } else { "" }));
            let fits = |length: &u64| if is_least { *length >= value } else { *length == value };
            if !shape.get(at).is_some_and(fits) {
                wrong.get_or_insert(keys);
            }
        }
        if let Some(keys) = wrong {
            let values = (format!("[{}]", expected.join(", ")), format!("{shape:?}"));
            let module = (found.name, &*place.text);
            self.mismatches.add(MismatchKind::ShapeMismatch, module, &keys, values);
        }
    }

    /// Compares the length of a list with the configuration, and its elements with each other. Returns true if the
    /// list is longer.
    fn check_list(&mut self, list: &ModuleList<'_>, elements: &BTreeMap<u64, Patterns>) -> bool {
        let Some(formula) = self.rules.get(list.name) else { return false };
        let Some((length, keys)) = self.evaluate(formula, list.layer) else { return false };
        let stored = elements.range(..length).count() as u64;
        // Layers with unknown modules may draft tokens.
        let is_known =
            |modules: &Patterns| modules.iter().all(|name| self.rules.get(name).is_some());
        let spare =
            elements.range(length..).filter(|(_, modules)| is_known(modules)).count() as u64;
        let place = (list.path, list.name);
        if stored < length {
            let values = (length, stored);
            self.mismatches.add(MismatchKind::MissingBlocks, place, &keys, values);
        }
        if stored + spare > length {
            let values = (length, stored + spare);
            self.mismatches.add(MismatchKind::SpareBlocks, place, &keys, values);
        }
        let missing = self.missing(list, elements.range(..length).map(|(_, modules)| modules));
        for (number, modules) in elements.range(..length) {
            for name in missing.get(modules).into_iter().flatten() {
                let module = format!("{}.{number}{}", list.path, &name[list.name.len()..]);
                self.mismatches.add(MismatchKind::MissingModule, (&module, name), &keys, (1, 0));
            }
        }
        elements.keys().any(|number| *number >= length)
    }

    /// Returns the required modules that each kind of element lacks, compared with elements that have all its modules. An
    /// element with a module that the others lack is of another kind, such as a dense layer between others with experts,
    /// or a layer with a convolution in place of attention.
    fn missing<'p>(
        &self,
        list: &ModuleList<'_>,
        elements: impl Iterator<Item = &'p Patterns>,
    ) -> BTreeMap<&'p Patterns, Vec<&'p str>> {
        /// The maximum number of kinds that are compared.
        const MAX_KINDS: usize = 64;

        let kinds: BTreeSet<_> = elements.collect();
        if kinds.len() > MAX_KINDS {
            return BTreeMap::new();
        }
        let is_child = |name: &str| name.rfind('#').is_some_and(|end| name[..=end] == *list.name);
        let is_required = |name: &str| {
            is_child(name) && self.rules.get(name).is_some_and(|text| text.starts_with('!'))
        };
        let missing = |modules: &'p Patterns| {
            let larger = kinds.iter().filter(|kind| kind.is_superset(modules));
            let names: BTreeSet<_> = larger.flat_map(|kind| kind.difference(modules)).collect();
            names.into_iter().map(|name| &**name).filter(|name| is_required(name)).collect()
        };
        kinds.iter().map(|kind| (*kind, missing(kind))).collect()
    }
}
