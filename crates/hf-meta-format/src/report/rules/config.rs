//! Compares the tensors of a language model with its configuration.
//!
//! The table of architectures lists the modules of a language model with formulas of their shapes.
//! `tests/oracles/layouts.py` derives them from `transformers` 5.23.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{MismatchKind, Mismatches};
use crate::base::json_object::{JsonObject, standard_json};
use crate::base::model_config::ModelConfig;
use crate::count::name_pattern::NamePattern;
use crate::count::{NamePatterns, container_bits, split_name};
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
    let (mut stored, mut names) = (StoredModules::default(), NamePatterns::default());
    for (name, tensor) in headers.iter().flat_map(|(_, header)| header.tensors()) {
        stored.has_drafts |= names.read(name).is_draft();
        if name.split('.').take(2).any(|part| TOWERS.contains(&part)) {
            stored.tower.get_or_insert(name);
        }
        let Some(found) = ModuleTensor::new(name, prefix, tensor) else {
            stored.has_others = true;
            continue;
        };
        stored.add(&found, &rules);
        if let Some(shape) = rules.get(&found.place.text).filter(|_| found.is_unpacked) {
            check.check_shape(&found, shape);
            let rows = found.tensor.shape.first().copied();
            match found.inside {
                HEAD => stored.output_rows = rows,
                inside if inside == embedding => stored.input_rows = rows,
                _ => {}
            }
        }
    }
    for (path, list) in &stored.lists {
        stored.has_drafts |= check.check_list(path, list);
    }
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
    tensor: TensorInfo,
    module: &'h str,
    /// The name of the module, relative to the language model.
    inside: &'h str,
    place: NamePattern,
    /// True if the tensor has the shape of its weights.
    is_unpacked: bool,
}

impl<'h> ModuleTensor<'h> {
    /// Returns `None` for a module outside of the language model.
    fn new(name: &'h str, prefix: &str, tensor: TensorInfo) -> Option<Self> {
        let (whole, component) = split_name(name);
        let module = whole.strip_suffix(".bias").unwrap_or(whole);
        let is_head = module == HEAD || module.ends_with(".lm_head");
        let inside = if is_head { HEAD } else { module.strip_prefix(prefix)? };
        let is_weight = component.is_plain() && module == whole;
        let is_unpacked = is_weight && is_unpacked(&tensor);
        Some(Self { name, tensor, module, inside, place: NamePattern::new(inside), is_unpacked })
    }

    /// Returns the path of the list that contains the number at `start` of the name inside the language model.
    fn list_path(&self, start: usize) -> &'h str {
        let path = &self.module[..self.module.len() - self.inside.len() + start];
        path.trim_end_matches('.')
    }
}

/// Returns whether a weight tensor has the shape of its weights. bitsandbytes packs into columns, and quantizers may
/// transpose stacks.
fn is_unpacked(TensorInfo { dtype, shape, .. }: &TensorInfo) -> bool {
    let least = if shape.len() > 2 { 16 } else { 8 };
    let is_float = container_bits(dtype).is_none() && dtype.bits() >= Some(least);
    is_float && !matches!(shape[..], [_, 1])
}

/// Returns the number of the layer; 0 outside of layers.
fn layer(place: &NamePattern) -> u64 {
    place.numbers.first().map_or(0, |number| number.value)
}

/// A list of modules, such as the layers of a model or the experts of a layer.
struct ModuleList {
    /// The name in the table.
    name: &'static str,
    /// The number of the layer around the list; 0 for the layers.
    layer: u64,
    elements: BTreeMap<u64, Patterns>,
}

/// The patterns of the names of an element's modules.
type Patterns = BTreeSet<String>;

/// The modules in the files.
#[derive(Default)]
struct StoredModules<'h> {
    lists: BTreeMap<&'h str, ModuleList>,
    /// The rows of the input embedding and of the output embedding.
    input_rows: Option<u64>,
    output_rows: Option<u64>,
    /// True if a module is outside of the known language model.
    has_others: bool,
    has_drafts: bool,
    /// A tensor of a vision tower.
    tower: Option<&'h str>,
}

impl<'h> StoredModules<'h> {
    /// Adds a tensor to the lists around it.
    fn add(&mut self, found: &ModuleTensor<'h>, rules: &Definitions) {
        /// The maximum number of modules in an element. Further unknown ones are ignored.
        const MAX_MODULES: usize = 256;

        let place = &found.place;
        let is_known = rules.get(&place.text).is_some();
        self.has_others |= !is_known;
        for (at, number) in place.numbers.iter().enumerate() {
            let name = &place.text[..number.pattern_end];
            let Some((name, _)) = rules.entries.get_key_value(name) else { continue };
            let layer = if at == 0 { 0 } else { layer(place) };
            let list = self.lists.entry(found.list_path(number.start));
            let list = list.or_insert(ModuleList { name, layer, elements: BTreeMap::new() });
            let modules = list.elements.entry(number.value).or_default();
            if is_known || modules.len() < MAX_MODULES {
                modules.insert(place.text.clone());
            }
        }
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
                let (expected, found) = ("a number, or one per layer", self.names.text(key));
                self.mismatches.add(MismatchKind::InvalidConfigValue, key, key, expected, found);
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

        let found = &mut self.mismatches;
        // Training programs wrap models, and loaders do not know their names.
        let is_wrapper = |(at, part): &(usize, &str)| {
            *part == "module" && *at == 0 || ["_orig_mod", "_fsdp_wrapped_module"].contains(part)
        };
        if let Some((_, wrapper)) = prefix.split('.').enumerate().find(is_wrapper) {
            found.add(Kind::WrappedNames, wrapper, "model_type", "no prefix", prefix);
        }
        let outer = config.outermost();
        let has_vision = outer.get::<JsonObject<'_>>("vision_config").is_some();
        if has_vision && !stored.has_others {
            found.add(Kind::MissingVisionTower, "", "vision_config", 1, 0);
        }
        let text = std::str::from_utf8(json).unwrap_or_default();
        let has_images = IMAGE_KEYS.iter().any(|key| text.contains(key));
        let is_whole = outer.get::<String>("model_type") == config.architecture();
        if let Some(tower) = stored.tower.filter(|_| !has_images && is_whole) {
            found.add(Kind::SpareVisionTower, tower, "model_type", 0, 1);
        }
        if let (Some(input), Some(output)) = (stored.input_rows, stored.output_rows)
            && config.is_tied() == Some(true)
            && input != output
        {
            found.add(Kind::TiedShapeMismatch, HEAD, "tie_word_embeddings", input, output);
        }
        if let Some((key, layers)) = positive(config.text_model(), "draft_layers")
            && !stored.has_drafts
        {
            found.add(Kind::MissingDraftLayers, "", key, layers, 0);
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
            let (expected, shape) = (format!("[{}]", expected.join(", ")), format!("{shape:?}"));
            self.mismatches.add(MismatchKind::ShapeMismatch, found.name, &keys, expected, shape);
        }
    }

    /// Compares the length of a list with the configuration, and its elements with each other. Returns true if the list
    /// is longer.
    fn check_list(&mut self, path: &str, list: &ModuleList) -> bool {
        let Some(formula) = self.rules.get(list.name) else { return false };
        let Some((length, keys)) = self.evaluate(formula, list.layer) else { return false };
        let stored = list.elements.range(..length).count() as u64;
        // Layers with unknown modules may draft tokens.
        let is_known =
            |modules: &Patterns| modules.iter().all(|name| self.rules.get(name).is_some());
        let spare = list.elements.range(length..).filter(|(_, modules)| is_known(modules)).count();
        let all = stored + spare as u64;
        if stored < length {
            self.mismatches.add(MismatchKind::MissingBlocks, path, &keys, length, stored);
        }
        if all > length {
            self.mismatches.add(MismatchKind::SpareBlocks, path, &keys, length, all);
        }
        let missing = self.missing_modules(list, length);
        for (number, modules) in list.elements.range(..length) {
            for name in missing.get(modules).into_iter().flatten() {
                let module = format!("{path}.{number}{}", &name[list.name.len()..]);
                self.mismatches.add(MismatchKind::MissingModule, &module, &keys, 1, 0);
            }
        }
        list.elements.keys().any(|number| *number >= length)
    }

    /// Returns the required modules that each kind of element lacks, compared with elements that have all its modules. An
    /// element with a module that the others lack is of another kind, such as a dense layer between others with experts,
    /// or a layer with a convolution in place of attention.
    fn missing_modules<'l>(
        &self,
        list: &'l ModuleList,
        length: u64,
    ) -> BTreeMap<&'l Patterns, BTreeSet<&'l String>> {
        /// The maximum number of kinds that are compared.
        const MAX_KINDS: usize = 64;

        let kinds: BTreeSet<_> =
            list.elements.range(..length).map(|(_, modules)| modules).collect();
        if kinds.len() > MAX_KINDS {
            return BTreeMap::new();
        }
        let is_required = |name: &&String| {
            let is_child = name.rfind('#').is_some_and(|end| name[..=end] == *list.name);
            is_child && self.rules.get(name).is_some_and(|text| text.starts_with('!'))
        };
        let missing = |modules: &'l Patterns| {
            let larger = kinds.iter().filter(|kind| kind.is_superset(modules));
            let names = larger.flat_map(|kind| kind.difference(modules));
            names.filter(is_required).collect()
        };
        kinds.iter().map(|kind| (*kind, missing(kind))).collect()
    }
}
