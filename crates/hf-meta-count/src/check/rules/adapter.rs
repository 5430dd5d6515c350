//! Compares the parts of an adapter with each other, with its configuration and with the adapted model.

use std::collections::{BTreeSet, HashSet};

use super::recipe::mismatch;
use super::{MismatchKind, Mismatches, sides_text};
use crate::count::DifferenceKind;
use crate::count::config::{ModuleEntries, Pattern};
use crate::results::Finding;
use crate::results::adapter::{
    AdaptedModule, AdapterConfig, AdapterModules, METHODS, PEFT_PREFIX, configs, decimal, is_kohya,
    metadata,
};
use hf_meta_format::base::json_object::{JsonObject, number, read, standard_json};
use hf_meta_format::formats::{Headers, all_tensors};

/// The rank and the `alpha` that PEFT uses if its configuration has none.
const PEFT_DEFAULT: u64 = 8;

/// The names that PEFT adds for classifiers, of which a model has one or none.
pub(super) const CLASSIFIERS: [&str; 2] = ["classifier", "score"];

/// The maximum number of regular expressions in a map of names.
const MAX_EXPRESSIONS: usize = 100;

/// Compares all parts of an adapter with each other and with `adapter_config.json`. Returns nothing for other weights.
pub(crate) fn check_adapter(json: Option<&[u8]>, headers: &Headers) -> Vec<Finding> {
    let json = json.map(standard_json);
    let Some(adapter) = AdapterModules::new(headers) else { return Vec::new() };
    let mut found = Mismatches::default();
    let has_tensors = headers.iter().any(|(_, header)| !header.tensors().is_empty());
    if !has_tensors
        && json.is_some()
        && let Some((path, _)) = headers.first()
    {
        let kind = MismatchKind::EmptyAdapter;
        found.add(kind, path.as_str(), "target_modules", "adapted modules", "none");
        return found.into_findings();
    }
    for ((name, _), module) in &adapter.modules {
        if !adapter.uncertain.contains(name) {
            check_parts(name, module, &mut found);
        }
    }
    for config in configs(json.as_deref(), headers) {
        check_config(&config, &adapter, &mut found);
        check_saved(&config, headers, &mut found);
        check_tokens(&config, headers, &mut found);
    }
    if json.is_none() {
        check_inner_names(&adapter, &mut found);
    }
    check_alphas(&adapter, headers, &mut found);
    found.into_findings()
}

/// Finds names of PEFT that contain the name of the adapter. Without a configuration, several programs read them.
fn check_inner_names(adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    let mut slots = adapter.modules.iter().filter(|((_, slot), module)| {
        slot.parse::<u32>().is_err() && module.parts.contains_key("lora_A")
    });
    if let Some(((module, slot), _)) = slots.find(|((_, slot), _)| !slot.is_empty()) {
        found.add(MismatchKind::NamedParts, module, "", "", slot);
    }
}

/// Checks that a module has all parts of its method, and that they agree on its rank and sides.
fn check_parts(name: &str, module: &AdaptedModule<'_>, found: &mut Mismatches) {
    let first = module.parts.keys().next().copied().unwrap_or_default();
    for part in &module.method.parts {
        let Some((tensor, info)) = module.parts.get(part.name) else {
            if part.is_required {
                let missing = format!("{name}.{}", part.name);
                found.add(MismatchKind::MissingPart, &missing, first, "stored", "missing");
            }
            continue;
        };
        let shape = &info.shape;
        let sides: Vec<_> = part.sides.chars().map(|side| module.sides.get(&side)).collect();
        let fits = |at: usize| {
            let (Some(found), Some((length, _))) = (shape.get(at), sides[at]) else { return false };
            // The parts of a convolution can be split into groups.
            found == length || shape.len() > 2 && *found > 0 && length % found == 0
        };
        let Some(wrong) = (0..sides.len()).find(|at| !fits(*at)) else { continue };
        // The first part with a side determines its length.
        let of_other = |at: usize| sides[at].filter(|(_, other)| *other != part.name);
        let expected = sides_text((0..sides.len()).map(|at| Some(of_other(at)?.0)));
        let key = of_other(wrong).map_or(first, |(_, other)| other);
        found.add(MismatchKind::ShapeMismatch, tensor, key, expected, format!("{shape:?}"));
    }
}

/// Returns the positions of entries that select modules. `expression` returns the regular expression of an entry, or
/// `None` for a name. Returns `None` if an expression is not supported.
fn module_entries<'a>(
    entries: impl Iterator<Item = &'a str>,
    expression: impl Fn(&str) -> Option<String>,
) -> Option<ModuleEntries<usize>> {
    let mut found = ModuleEntries::default();
    for (entry, at) in entries.zip(0..) {
        if let Some(text) = expression(entry) {
            found.patterns.push((Pattern::of_entry(&format!("re:{text}$")), at));
        } else {
            found.names.insert(entry.into(), at);
        }
    }
    let expressions = &found.patterns;
    let is_bounded = expressions.len() <= MAX_EXPRESSIONS;
    let is_sure = is_bounded && expressions.iter().all(|(entry, _)| entry.is_supported());
    is_sure.then_some(found)
}

/// Compares modules with the configuration of PEFT, or of MLX.
fn check_config(config: &AdapterConfig<'_>, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    let method = config.method();
    let modules = adapter.modules.iter().filter_map(|((name, _), module)| {
        let family = module.method.family.to_ascii_lowercase();
        let has_family = method.as_ref().is_none_or(|method| *method == family);
        has_family.then_some((config.module(name)?, module))
    });
    let modules: Vec<_> = modules.collect();
    let Some(method) = method else {
        check_missing_method(config, adapter, found);
        let rank = config.get("lora_parameters").and_then(|mlx: JsonObject<'_>| mlx.number("rank"));
        return check_ranks(&modules, |_| Some((rank?, "rank")), found);
    };
    check_method(&method, adapter, found);
    check_slots(config, adapter, found);
    check_statements(config, found);
    check_prefix(config, adapter, found);
    if method == "lora" {
        check_dora(config, adapter, found);
    }
    let targets = check_targets(config, &modules, found);
    let Some((key, rank)) = stated_rank(config, &method, found) else { return };
    let pattern = config.get::<JsonObject<'_>>("rank_pattern").unwrap_or_default();
    // AdaLoRA lists the parts of each rank that it keeps.
    if method == "adalora" && pattern.entries().next().is_some() {
        return;
    }
    let entries: Vec<_> = pattern.entries().collect();
    let rules = module_entries(entries.iter().map(|(name, _)| *name), |entry| {
        let is_expression = entry.contains(['*', '+', '?', '\\', '[', '(', '^', '$', '|', '{']);
        is_expression.then(|| format!("(?:.*\\.)?(?:{entry})"))
    });
    // The ranks of stacked experts are multiplied by their number, and a block-diagonal part has several ranks.
    let has_parameters = config.list("target_parameters").is_some_and(|list| !list.is_empty());
    let (Some(rules), None) = (rules, config.raw("use_bdlora")) else { return };
    let rank = |module: &str| {
        if has_parameters && targets.as_ref()?.matching(module).next().is_none() {
            return None;
        }
        match rules.matching(module).min() {
            Some(at) => Some((number(entries[*at].1)?, "rank_pattern")),
            None => Some((rank, key)),
        }
    };
    check_ranks(&modules, rank, found);
}

/// Returns the rank that the configuration of a method states for all modules, with its key; `None` if it states none, or
/// one that is invalid.
fn stated_rank(
    config: &AdapterConfig<'_>,
    method: &str,
    found: &mut Mismatches,
) -> Option<(&'static str, u64)> {
    let has_default = matches!(method, "lora" | "loha" | "lokr");
    let key = if method == "adalora" { "init_r" } else { "r" };
    match config.raw(key).map(|value| (value, number(value))) {
        None if has_default => Some((key, PEFT_DEFAULT)),
        None => None,
        Some((_, Some(rank @ 1..))) => Some((key, rank)),
        // The method has no rank.
        Some((_, Some(0))) if !has_default => None,
        Some((value, _)) => {
            found.add_invalid(key, value.get());
            None
        }
    }
}

/// Finds a configuration without the method, next to names that PEFT writes. `PeftModel.from_pretrained` looks it up first.
fn check_missing_method(
    config: &AdapterConfig<'_>,
    adapter: &AdapterModules<'_>,
    found: &mut Mismatches,
) {
    const KEY: &str = "peft_type";

    let mut names = adapter.modules.keys().map(|(name, _)| *name);
    if config.prefix.is_empty() && names.any(|name| name.starts_with(PEFT_PREFIX)) {
        found.add(MismatchKind::MissingConfigKey, KEY, KEY, "a method", "missing");
    }
}

/// Finds modules of another method than the configuration states. PEFT loads the tensors of one method.
fn check_method(method: &str, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let is_same = |family: &str| family == "-" || plain(family) == plain(method);
    if !METHODS.iter().any(|known| plain(known.family) == plain(method)) {
        return;
    }
    let mut modules = adapter.modules.iter().peekable();
    if let Some(((name, _), module)) = modules.peek()
        && let family = module.method.family
        && modules.clone().all(|(_, module)| !is_same(module.method.family))
    {
        found.add(MismatchKind::OtherMethod, name, "peft_type", method, family);
    }
}

/// Finds names that contain the name of the adapter, which PEFT adds when it loads them: it then finds none of them
/// (`_insert_adapter_name_into_state_dict` in `peft/utils/save_and_load.py`, 0.21).
fn check_slots(config: &AdapterConfig<'_>, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    let mut slots = adapter.modules.keys().filter(|(_, slot)| slot.parse::<u32>().is_err());
    if config.prefix.is_empty()
        && let Some((module, slot)) = slots.find(|(_, slot)| !slot.is_empty())
    {
        found.add(MismatchKind::NamedAdapter, module, "", "", slot);
    }
}

/// Checks the values of a configuration of PEFT that concern no module: `alpha` and the name of the base model.
fn check_statements(config: &AdapterConfig<'_>, found: &mut Mismatches) {
    const BASE: &str = "base_model_name_or_path";

    if let Some(key) = config.alpha_key() {
        match config.raw(key) {
            None => found.add(MismatchKind::MissingAlpha, key, key, "a number", PEFT_DEFAULT),
            Some(value) if decimal(value).is_none() => found.add_invalid(key, value.get()),
            Some(_) => {}
        }
    }
    let base = config.get::<String>(BASE).unwrap_or_default();
    let is_path = base.starts_with(['/', '.', '~']) || base.contains('\\');
    if config.prefix.is_empty() && (base.is_empty() || is_path) {
        found.add(MismatchKind::UnnamedBaseModel, BASE, BASE, "a repository", base);
    }
}

/// Checks that names begin as PEFT writes them. PEFT ignores tensors with other names.
fn check_prefix(config: &AdapterConfig<'_>, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    if !config.prefix.is_empty() {
        return;
    }
    // Prompts have no module.
    let mut names = adapter.modules.keys().map(|(name, _)| *name).filter(|name| !name.is_empty());
    let twice = PEFT_PREFIX.repeat(2);
    let is_wrong = |name: &&str| !name.starts_with(PEFT_PREFIX) || name.starts_with(&twice);
    if let Some(name) = names.find(is_wrong) {
        let first = name.split_inclusive('.').next().unwrap_or_default();
        if name.starts_with(&twice) {
            return found.add(MismatchKind::IgnoredNames, &twice, "peft_type", PEFT_PREFIX, "");
        }
        found.add_prefix(MismatchKind::WrappedNames, first, "peft_type", PEFT_PREFIX);
    }
}

/// Checks that modules have magnitudes if the configuration states `DoRA`, and only then.
fn check_dora(config: &AdapterConfig<'_>, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    const KEY: &str = "use_dora";
    const PART: &str = "lora_magnitude_vector";

    let is_dora = config.get(KEY).unwrap_or_default();
    let kind = if is_dora { DifferenceKind::Missing } else { DifferenceKind::Spare };
    let (kind, expected, stored) = mismatch(kind);
    for ((name, _), module) in &adapter.modules {
        let is_possible = module.method.parts.iter().any(|part| part.name == PART);
        let is_other = !is_possible || config.module(name).is_none();
        if module.parts.contains_key(PART) != is_dora && !is_other {
            found.add(kind, &format!("{name}.{PART}"), KEY, &expected, &stored);
        }
    }
}

/// Checks that the modules which PEFT trains in full are stored.
fn check_saved(config: &AdapterConfig<'_>, headers: &Headers, found: &mut Mismatches) {
    /// The modules that may be tied to each other, so that one of them is stored.
    const TIED: [&str; 2] = ["lm_head", "embed_tokens"];

    let names = config.list("modules_to_save").unwrap_or_default();
    let is_stored = |name: &str| {
        let part = format!(".{name}.");
        all_tensors(headers).any(|(tensor, _)| tensor.contains(&*part))
    };
    let missing = names.iter().filter(|name| !CLASSIFIERS.contains(&name.as_str()));
    for name in missing.filter(|name| !is_stored(name)) {
        let others =
            TIED.iter().filter(|other| TIED.contains(&name.as_str()) && **other != name.as_str());
        if !others.copied().any(is_stored) {
            found.add(MismatchKind::MissingPart, name, "modules_to_save", "stored", "missing");
        }
    }
}

/// Compares the number of trained tokens with the configuration. An encoder and a decoder have their own ones.
fn check_tokens(config: &AdapterConfig<'_>, headers: &Headers, found: &mut Mismatches) {
    const KEYS: [(&str, &str, u64); 3] = [
        ("prompt_embeddings", "num_virtual_tokens", 2),
        ("trainable_tokens_delta", "trainable_token_indices", 1),
        ("trainable_tokens_delta", "token_indices", 1),
    ];

    if !config.prefix.is_empty() {
        return;
    }
    for (part, key, parts) in KEYS {
        let list = || config.get::<Vec<u64>>(key).map(|list| list.len() as u64);
        let Some(stated) = config.raw(key).and_then(number).or_else(list) else { continue };
        for (name, tensor) in all_tensors(headers).filter(|(name, _)| name.ends_with(part)) {
            let rows = tensor.shape.first().copied().unwrap_or_default();
            if !(1..=parts).any(|part| stated.checked_mul(part) == Some(rows)) {
                let (expected, shape) = (format!("[{stated}, _]"), format!("{:?}", tensor.shape));
                found.add(MismatchKind::ShapeMismatch, name, key, expected, shape);
            }
        }
    }
}

/// Compares the ranks of modules with the ranks that the configuration states.
fn check_ranks(
    modules: &[(&str, &AdaptedModule<'_>)],
    expected: impl Fn(&str) -> Option<(u64, &'static str)>,
    found: &mut Mismatches,
) {
    for (name, module) in modules {
        if let (Some(rank), Some((expected, key))) = (module.side('r'), expected(name))
            && rank != expected
        {
            found.add(MismatchKind::RankMismatch, name, key, expected, rank);
        }
    }
}

/// The modules that the configuration of PEFT selects.
pub(super) struct Targets {
    /// The names, or `None` if the configuration has an expression.
    pub(super) names: Option<Vec<String>>,
    selected: Option<ModuleEntries<usize>>,
    parents: ModuleEntries<usize>,
    excluded: ModuleEntries<usize>,
    layers: Option<BTreeSet<u64>>,
    /// True if the lists of the adapted layers are named, which are not compared.
    has_layers_pattern: bool,
}

impl Targets {
    /// Reads the targets of a configuration. Returns `None` if they are not certain: a parameter without its module and tied
    /// embeddings may be in any module, and some expressions of Python are not supported.
    pub(super) fn new(config: &AdapterConfig<'_>) -> Option<Self> {
        let names = config.list("target_modules");
        let entries = |names: &[String]| module_entries(names.iter().map(String::as_str), |_| None);
        let expression =
            |text: &str| module_entries([text].into_iter(), |text| Some(format!("(?:{text})")));
        let text = config.get::<String>("target_modules");
        let selected = match (&names, text.as_deref()) {
            (Some(names), _) => Some(entries(names)?),
            (None, Some("all-linear")) => None,
            (None, text) => Some(expression(text?)?),
        };
        let excluded =
            match (config.list("exclude_modules"), config.get::<String>("exclude_modules")) {
                (Some(names), _) => entries(&names)?,
                (None, Some(text)) => expression(&text)?,
                (None, None) => ModuleEntries::default(),
            };
        let parameters = config.list("target_parameters").unwrap_or_default();
        let is_tied = config.get("ensure_weight_tying").unwrap_or_default();
        if is_tied || parameters.iter().any(|name| !name.contains('.')) {
            return None;
        }
        let parents = parameters.iter().filter_map(|name| Some(name.rsplit_once('.')?.0));
        let parents = module_entries(parents, |_| None)?;
        let has_layers_pattern = config.raw("layers_pattern").is_some();
        let layers = if has_layers_pattern { None } else { config.raw("layers_to_transform") };
        let layers =
            layers.and_then(|value| read(value).or_else(|| Some(BTreeSet::from([number(value)?]))));
        Some(Self { names, selected, parents, excluded, layers, has_layers_pattern })
    }

    /// Returns the position of the first target that selects a module, whatever its layer.
    fn target(&self, module: &str) -> Option<usize> {
        self.selected.as_ref()?.matching(module).min().copied()
    }

    /// Returns whether the layer of a module is one that some version of PEFT adapts.
    fn has_layer(&self, module: &str) -> bool {
        let numbers = self.layers.as_ref().zip(layer_numbers(module));
        numbers.is_none_or(|(layers, numbers)| numbers.iter().any(|at| layers.contains(at)))
    }

    /// Returns whether PEFT certainly adapts a module of the base model, if it is one of a kind that it adapts.
    pub(super) fn selects(&self, module: &str) -> bool {
        let is_target = self.selected.is_none() || self.target(module).is_some();
        let is_in_layer = self.layers.as_ref().is_none_or(|layers| {
            let numbers = layer_numbers(module);
            numbers.is_some_and(|numbers| numbers.iter().all(|at| layers.contains(at)))
        });
        let is_adapted = is_target && is_in_layer && !self.has_layers_pattern;
        is_adapted && self.excluded.matching(module).next().is_none()
    }
}

/// Returns the first and the last number in the path of a module. PEFT takes the first for its layer, and older versions took
/// the last (`check_target_module_exists` in `peft/tuners/tuners_utils.py`, 0.21.2).
fn layer_numbers(module: &str) -> Option<[u64; 2]> {
    let (path, _) = module.rsplit_once('.')?;
    let first = path.split('.').find_map(|part| part.parse().ok())?;
    let last = path.rsplit('.').find_map(|part| part.parse().ok())?;
    Some([first, last])
}

/// Compares modules with the names of targets. Returns the targets, if they are certain.
fn check_targets(
    config: &AdapterConfig<'_>,
    modules: &[(&str, &AdaptedModule<'_>)],
    found: &mut Mismatches,
) -> Option<ModuleEntries<usize>> {
    const KEY: &str = "target_modules";

    let targets = Targets::new(config)?;
    targets.selected.as_ref()?;
    let mut used = HashSet::<usize>::new();
    let (mut untargeted, mut others) = (Vec::new(), Vec::new());
    for (name, _) in modules {
        let target = targets.target(name);
        used.extend(target);
        if target.is_none() && targets.parents.matching(name).next().is_none() {
            untargeted.push(*name);
        } else if !targets.has_layer(name) {
            others.push(*name);
        }
    }
    let is_none = untargeted.len() == modules.len();
    let kind = if is_none { MismatchKind::NoTarget } else { MismatchKind::UntargetedModule };
    for name in &untargeted {
        found.add(kind, name, KEY, "a target", "stored");
    }
    for name in &others {
        let kind = MismatchKind::UntargetedModule;
        found.add(kind, name, "layers_to_transform", "a target", "stored");
    }
    for (name, _) in targets.names.iter().flatten().zip(0..).filter(|(_, at)| !used.contains(at)) {
        found.add(MismatchKind::UnmatchedTarget, name, KEY, "a module", "none");
    }
    targets.selected
}

/// Checks the `alpha` of modules in the names of kohya. Loaders use the rank where it is missing.
fn check_alphas(adapter: &AdapterModules<'_>, headers: &Headers, found: &mut Mismatches) {
    let modules = adapter.modules.iter().filter_map(|((name, _), module)| {
        let mut parts = module.method.parts.iter();
        let takes_alpha = is_kohya(name) && parts.any(|part| part.name == "alpha");
        takes_alpha.then_some((name, module.side('r')?, module.parts.contains_key("alpha")))
    });
    let modules: Vec<_> = modules.collect();
    let [dim, alpha] = ["ss_network_dim", "ss_network_alpha"]
        .map(|key| serde_json::from_str::<f64>(metadata(headers, key)?).ok());
    let is_needed = dim.is_some() && alpha.is_some() && dim != alpha;
    if is_needed || modules.iter().any(|(.., is_stored)| *is_stored) {
        for (name, rank, _) in modules.iter().filter(|(.., is_stored)| !is_stored) {
            let missing = format!("{name}.alpha");
            found.add(MismatchKind::MissingAlpha, &missing, "alpha", "stored", rank);
        }
    }
}
