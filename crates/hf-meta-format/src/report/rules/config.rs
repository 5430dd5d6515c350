//! Compares the tensors of a language model with its configuration.
//!
//! `layouts.txt` lists the modules of each architecture with formulas of their shapes.
//! `tests/oracles/layouts.py` derives it from `transformers` 5.23.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::MismatchKind;
use super::Mismatches;
use crate::base::json_object::{JsonObject, standard_json};
use crate::base::model_config::ModelConfig;
use crate::count::{TensorPosition, container_bits, split_name};
use crate::formats::{FileHeader, RepoPath, TensorInfo};
use crate::report::Finding;
use crate::tables::architecture::{ARCHITECTURES, Definitions, ModelNames};
use crate::tables::formula::FormulaError;

/// The keys of the number of layers that draft tokens, which follow all others.
const DRAFT_LAYERS: [&str; 4] =
    ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers"];

/// The output embedding, which is next to the language model or inside of it.
const HEAD: &str = "lm_head";

/// The names of vision towers, which are the first or second segment of a name.
const TOWERS: [&str; 3] = ["visual", "vision_model", "vision_tower"];

/// Parts of a configuration that describe images in some way, or a model with other code.
const IMAGE_KEYS: [&str; 6] = ["vis", "image", "img", "mm_", "clip", "auto_map"];

/// A module of a layout.
#[derive(Clone, Copy)]
struct Rule {
    /// The bit of this module in sets of modules.
    bit: u128,
    is_required: bool,
    shape: &'static str,
}

/// The bit of modules for which no other bit is left.
const UNKNOWN: u128 = 1 << 127;

/// The maximum number of different sets of modules in a list whose elements are compared.
const MAX_KINDS: usize = 64;

/// The modules of each element of a list, as bits. The modules of the layout have the lowest bits.
type List = BTreeMap<u64, u128>;

/// Compares all tensors of a model with the contents of `config.json`. Returns nothing for unknown layouts.
#[must_use]
pub fn check_model(config_json: &[u8], headers: &[(RepoPath, FileHeader)]) -> Vec<Finding> {
    find_mismatches(config_json, headers).unwrap_or_default().into_findings()
}

fn find_mismatches(config_json: &[u8], headers: &[(RepoPath, FileHeader)]) -> Option<Mismatches> {
    let json = standard_json(config_json);
    let config: ModelConfig<'_> = serde_json::from_slice(&json).ok()?;
    let (outer, model) = (config.outermost(), config.text_model());
    let is_tied = config.is_tied() == Some(true);
    let has_vision = outer.get::<JsonObject<'_>>("vision_config").is_some();
    let whole = outer.get::<String>("model_type");
    let architecture = config.architecture()?;
    let definitions = Definitions::of_cache(&architecture).or_else(Definitions::root)?;
    let mut check = ConfigCheck {
        rules: rules(&architecture)?,
        names: ModelNames::new(definitions, model),
        values: HashMap::new(),
        mismatches: Mismatches::default(),
    };
    let embedding = check.rules.get("@")?.shape;
    let prefix = prefix(headers, embedding)?;
    // Training programs wrap models, and loaders do not know their names.
    let is_wrapper = |(at, part): &(usize, &str)| {
        *part == "module" && *at == 0 || ["_orig_mod", "_fsdp_wrapped_module"].contains(part)
    };
    if let Some((_, wrapper)) = prefix.split('.').enumerate().find(is_wrapper) {
        let kind = MismatchKind::WrappedNames;
        check.mismatches.add(kind, (wrapper, ""), "model_type", ("no prefix", prefix));
    }
    let mut lists = BTreeMap::<_, List>::new();
    let mut unknown = HashMap::<String, u128>::new();
    let (mut rows, mut is_language_model, mut has_drafts) = ([None; 2], true, false);
    let mut tower = None;
    for (name, tensor) in headers.iter().flat_map(|(_, header)| header.tensors()) {
        has_drafts |= TensorPosition::new(name).is_draft;
        tower = tower
            .or_else(|| name.split('.').take(2).any(|part| TOWERS.contains(&part)).then_some(name));
        let (module, component) = split_name(name);
        let (module, is_bias) =
            module.strip_suffix(".bias").map_or((module, false), |module| (module, true));
        let is_head = module == HEAD || module.ends_with(".lm_head");
        let inside = if is_head { Some(HEAD) } else { module.strip_prefix(prefix) };
        let Some(inside) = inside else {
            is_language_model = false;
            continue;
        };
        let place = Place::new(inside);
        let rule = check.rules.get(&*place.pattern).copied();
        is_language_model &= rule.is_some();
        let known = rule.map(|rule| rule.bit).or_else(|| unknown.get(&place.pattern).copied());
        let bit = known.unwrap_or_else(|| {
            let used = check.rules.len() + unknown.len();
            let bit = UNKNOWN >> 127_usize.saturating_sub(used);
            if bit != UNKNOWN {
                unknown.insert(place.pattern.clone(), bit);
            }
            bit
        });
        for (at, &(end, start, number)) in place.numbers.iter().enumerate() {
            let layer = if at == 0 { 0 } else { place.layer() };
            if let Some((list, _)) = check.rules.get_key_value(&place.pattern[..end]) {
                let path = &module[..module.len() - inside.len() + start];
                let list = lists.entry((*list, layer, path.trim_end_matches('.'))).or_default();
                *list.entry(number).or_default() |= bit;
            }
        }
        if let Some(rule) =
            rule.filter(|_| component.is_plain() && !is_bias && is_unpacked(&tensor))
        {
            check.check_shape(name, &place, rule, &tensor);
            if is_head || inside == embedding {
                rows[usize::from(is_head)] = tensor.shape.first().copied();
            }
        }
    }
    let mut has_spares = false;
    for (&(list, layer, path), found) in &lists {
        has_spares |= check.check_list(list, layer, path, found);
    }
    let mut add = |kind, module, key, expected: u64, found: u64| {
        check.mismatches.add(kind, (module, ""), key, (expected, found));
    };
    if let [Some(input), Some(output)] = rows
        && is_tied
        && input != output
    {
        add(MismatchKind::TiedShapeMismatch, HEAD, "tie_word_embeddings", input, output);
    }
    if has_vision && is_language_model {
        add(MismatchKind::MissingVisionTower, "", "vision_config", 1, 0);
    }
    let text = std::str::from_utf8(&json).unwrap_or_default();
    let has_images = IMAGE_KEYS.iter().any(|key| text.contains(key));
    if let Some(tower) = tower.filter(|_| !has_images && whole == Some(architecture)) {
        add(MismatchKind::SpareVisionTower, tower, "model_type", 0, 1);
    }
    let drafts = DRAFT_LAYERS.iter().find_map(|key| Some((key, model.number(key)?)));
    if let Some((key, layers @ 1..)) = drafts
        && !has_drafts
        && !has_spares
    {
        add(MismatchKind::MissingDraftLayers, "", key, layers, 0);
    }
    Some(check.mismatches)
}

/// Returns the modules of an architecture by name.
fn rules(architecture: &str) -> Option<HashMap<&'static str, Rule>> {
    let modules = ARCHITECTURES.find("modules", architecture)?;
    let bits = (0..127).map(|bit| 1_u128 << bit);
    let rules = modules.entries().zip(bits).map(|((name, shape), bit)| {
        let is_required = shape.starts_with('!');
        (name, Rule { bit, is_required, shape: shape.trim_start_matches('!') })
    });
    Some(rules.collect())
}

/// Returns the start of the names of a language model, if it has exactly one input embedding.
fn prefix<'a>(headers: &'a [(RepoPath, FileHeader)], embedding: &str) -> Option<&'a str> {
    let names = headers.iter().flat_map(|(_, header)| header.tensors()).map(|(name, _)| name);
    let modules = names.map(split_name).filter(|(_, component)| component.is_weights());
    let prefixes = modules.filter_map(|(module, _)| module.strip_suffix(embedding));
    let mut prefixes = prefixes.filter(|prefix| prefix.is_empty() || prefix.ends_with('.'));
    prefixes.next().filter(|_| prefixes.next().is_none())
}

/// Returns whether a tensor has the shape of its weights. bitsandbytes packs into columns, and quantizers may transpose
/// stacks.
fn is_unpacked(tensor: &TensorInfo) -> bool {
    let is_stack = tensor.shape.len() > 2;
    let least = if is_stack { 16 } else { 8 };
    let is_float = container_bits(&tensor.dtype).is_none() && tensor.dtype.bits() >= Some(least);
    is_float && !matches!(tensor.shape[..], [_, 1])
}

/// The name of a module with `#` in place of numbers.
pub(super) struct Place {
    pub(super) pattern: String,
    /// The end of each `#` in the pattern, the start of the number in the name, and the number.
    numbers: Vec<(usize, usize, u64)>,
}

impl Place {
    pub(super) fn new(name: &str) -> Self {
        let (mut pattern, mut numbers, mut start) = (String::new(), Vec::new(), 0);
        for segment in name.split('.') {
            if start > 0 {
                pattern.push('.');
            }
            if let Ok(number) = segment.parse() {
                pattern.push('#');
                numbers.push((pattern.len(), start, number));
            } else {
                pattern.push_str(segment);
            }
            start += segment.len() + 1;
        }
        Self { pattern, numbers }
    }

    /// Returns the number in the name, if there is exactly one.
    pub(super) fn only_number(&self) -> Option<u64> {
        if let [(_, _, number)] = self.numbers[..] { Some(number) } else { None }
    }

    /// Returns the number of the layer; 0 outside of layers.
    fn layer(&self) -> u64 {
        self.numbers.first().map_or(0, |(_, _, number)| *number)
    }
}

/// A comparison of a model with its configuration.
struct ConfigCheck<'a> {
    rules: HashMap<&'static str, Rule>,
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
            Ok((_, keys)) if keys.iter().any(|(key, _)| self.names.is_default(key)) => None,
            Ok((value, keys)) => {
                let keys: Vec<_> = keys.into_iter().map(|(key, _)| key).collect();
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

    fn check_shape(&mut self, name: &str, place: &Place, rule: Rule, tensor: &TensorInfo) {
        // Layers that draft tokens may have other shapes.
        if let Some(&(end, _, layer)) = place.numbers.first()
            && let Some(list) = self.rules.get(&place.pattern[..end])
            && self.evaluate(list.shape, 0).is_none_or(|(length, _)| layer >= length)
        {
            return;
        }
        let (mut expected, mut wrong) = (Vec::new(), None);
        let mut lengths = tensor.shape.iter();
        for formula in rule.shape.split(',') {
            let length = lengths.next().copied();
            let (least, formula) =
                formula.strip_prefix('>').map_or((false, formula), |formula| (true, formula));
            let value = if formula == "_" { None } else { self.evaluate(formula, place.layer()) };
            let Some((value, keys)) = value else {
                expected.push("_".to_owned());
                continue;
            };
            expected.push(format!("{}{value}", if least { "≥" } else { "" }));
            if length.is_none_or(|length| if least { length < value } else { length != value }) {
                wrong.get_or_insert(keys);
            }
        }
        if let Some(keys) = wrong {
            let (expected, found) =
                (format!("[{}]", expected.join(", ")), format!("{:?}", tensor.shape));
            let kind = MismatchKind::ShapeMismatch;
            self.mismatches.add(kind, (name, &place.pattern), &keys, (expected, found));
        }
    }

    /// Compares the length of a list with the configuration, and its elements with each other. Returns true if the
    /// list is longer.
    fn check_list(&mut self, list: &'static str, layer: u64, path: &str, found: &List) -> bool {
        let Some(rule) = self.rules.get(list).copied() else { return false };
        let Some((length, keys)) = self.evaluate(rule.shape, layer) else { return false };
        let inside = || found.range(..length).map(|(number, modules)| (*number, *modules));
        let stored = inside().count() as u64;
        let known = (1 << self.rules.len()) - 1;
        let spare =
            found.range(length..).filter(|(_, modules)| **modules & !known == 0).count() as u64;
        for (kind, count) in [
            (MismatchKind::MissingBlocks, stored),
            // Layers with unknown modules may draft tokens.
            (MismatchKind::SpareBlocks, stored + spare),
        ] {
            if (kind == MismatchKind::MissingBlocks && count < length) || count > length {
                self.mismatches.add(kind, (path, list), &keys, (length, count));
            }
        }
        let is_child = |name: &str| name.rfind('#').is_some_and(|end| name[..=end] == *list);
        let children = self.rules.iter().filter(|(name, rule)| rule.is_required && is_child(name));
        let required: Vec<_> = children.map(|(name, rule)| (*name, rule.bit)).collect();
        let kinds: BTreeSet<_> = inside().map(|(_, modules)| modules).collect();
        for (number, modules) in inside().filter(|_| kinds.len() <= MAX_KINDS) {
            // An element with a module that the others lack is of another kind, such as a dense layer between others
            // with experts, or a layer with a convolution in place of attention.
            let larger = kinds.iter().filter(|kind| *kind & modules == modules);
            let missing = larger.fold(0, |all, kind| all | kind) & !modules;
            for (name, _) in required.iter().filter(|(_, bit)| missing & bit != 0) {
                let module = format!("{path}.{number}{}", &name[list.len()..]);
                self.mismatches.add(MismatchKind::MissingModule, (&module, name), &keys, (1, 0));
            }
        }
        found.keys().any(|number| *number >= length)
    }
}
