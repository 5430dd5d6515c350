//! Compares the parts of an adapter with each other, with its configuration and with the adapted model.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::recipe::mismatch;
use super::stored_modules::OTHER_NAMES;
use super::{MismatchKind, Mismatches, sides_text};
use crate::base::json_object::{JsonObject, number, read, standard_json};
use crate::base::sort::Ordered;
use crate::count::config::{ModuleEntries, Pattern};
use crate::count::name_pattern::NamePattern;
use crate::count::{DifferenceKind, container_bits, split_name};
use crate::formats::Headers;
use crate::results::adapter::{
    AdaptedModule, Adapter, AdapterConfig, AdapterModules, PEFT_PREFIX, configs, decimal, is_kohya,
    metadata,
};
use crate::results::diff::RenamedPrefix;
use crate::results::{Finding, VerifyReport, Weights};

/// The rank and the `alpha` that PEFT uses if its configuration has none.
const PEFT_DEFAULT: u64 = 8;

/// The maximum number of regular expressions in a map of names.
const MAX_EXPRESSIONS: usize = 100;

/// Compares all parts of an adapter with each other and with `adapter_config.json`. Returns nothing for other weights.
pub(crate) fn check_adapter(json: Option<&[u8]>, headers: &Headers) -> Vec<Finding> {
    let json = json.map(standard_json);
    let Some(adapter) = AdapterModules::new(headers) else { return Vec::new() };
    let mut found = Mismatches::default();
    let has_tensors = headers.iter().any(|(_, header)| !header.tensors().is_empty());
    if let Some((path, _)) = headers.first().filter(|_| !has_tensors && json.is_some()) {
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
    }
    check_alphas(&adapter, headers, &mut found);
    found.into_findings()
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
        let rank = config.get("lora_parameters").and_then(|mlx: JsonObject<'_>| mlx.number("rank"));
        return check_ranks(&modules, |_| Some((rank?, "rank")), found);
    };
    check_statements(config, found);
    check_prefix(config, adapter, found);
    if method == "lora" {
        check_dora(config, adapter, found);
    }
    if !matches!(&*method, "lora" | "loha" | "lokr") {
        return;
    }
    let targets = check_targets(config, &modules, found);
    let rank = match config.raw("r").map(|value| (value, number(value))) {
        None => PEFT_DEFAULT,
        Some((_, Some(rank @ 1..))) => rank,
        Some((value, _)) => return found.add_invalid("r", value.get()),
    };
    let pattern = config.get::<JsonObject<'_>>("rank_pattern").unwrap_or_default();
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
            None => Some((rank, "r")),
        }
    };
    check_ranks(&modules, rank, found);
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
        let prefix = if name.starts_with(&twice) { &twice } else { first };
        found.add_prefix(prefix, "peft_type", PEFT_PREFIX);
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
    /// The names that PEFT adds for classifiers, of which a model has one or none.
    const CLASSIFIERS: [&str; 2] = ["classifier", "score"];

    let names = config.list("modules_to_save").unwrap_or_default();
    let Some(name) = names.iter().find(|name| !CLASSIFIERS.contains(&name.as_str())) else {
        return;
    };
    let parts: Vec<_> = names.iter().map(|name| format!(".{name}.")).collect();
    let mut tensors = headers.iter().flat_map(|(_, header)| header.tensors().names());
    if !tensors.any(|tensor| parts.iter().any(|part| tensor.contains(part.as_str()))) {
        found.add(MismatchKind::MissingPart, name, "modules_to_save", "stored", "missing");
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

/// Compares modules with the names of targets. Returns the targets, if they are certain.
fn check_targets(
    config: &AdapterConfig<'_>,
    modules: &[(&str, &AdaptedModule<'_>)],
    found: &mut Mismatches,
) -> Option<ModuleEntries<usize>> {
    let names = config.list("target_modules");
    let targets = if let Some(names) = &names {
        module_entries(names.iter().map(String::as_str), |_| None)?
    } else {
        let text = config.get::<String>("target_modules").filter(|text| text != "all-linear")?;
        module_entries([&*text].into_iter(), |text| Some(format!("(?:{text})")))?
    };
    let parameters = config.list("target_parameters").unwrap_or_default();
    // A parameter without its module, and tied embeddings, may be in any module.
    let is_tied = config.get("ensure_weight_tying").unwrap_or_default();
    if is_tied || parameters.iter().any(|name| !name.contains('.')) {
        return None;
    }
    let parents = parameters.iter().filter_map(|name| Some(name.rsplit_once('.')?.0));
    let parents = module_entries(parents, |_| None)?;
    let layers =
        config.raw("layers_to_transform").filter(|_| config.raw("layers_pattern").is_none());
    let layers =
        layers.and_then(|value| read(value).or_else(|| Some(BTreeSet::from([number(value)?]))));
    let mut used = HashSet::<usize>::new();
    for (name, _) in modules {
        let target = targets.matching(name).min();
        used.extend(target);
        let layer = NamePattern::new(name).only_number();
        let key = if target.is_none() && parents.matching(name).next().is_none() {
            "target_modules"
        } else if layers.as_ref().zip(layer).is_some_and(|(layers, at)| !layers.contains(&at)) {
            "layers_to_transform"
        } else {
            continue;
        };
        found.add(MismatchKind::UntargetedModule, name, key, "a target", "stored");
    }
    for (name, _) in names.iter().flatten().zip(0..).filter(|(_, at)| !used.contains(at)) {
        found.add(MismatchKind::UnmatchedTarget, name, "target_modules", "a module", "none");
    }
    Some(targets)
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

impl VerifyReport {
    /// Compares the adapter with the tensors of its base model, and adds the findings to the first set. Does nothing if
    /// the weights are not an adapter.
    pub fn check_base(&mut self, base: &Weights) {
        let found = self.adapter.as_ref().map(|adapter| adapter.check_base(base));
        found.into_iter().flatten().for_each(|finding| self.push(finding));
    }
}

impl Adapter {
    /// Compares the sides of all adapted modules with the tensors of the base model. Names may differ in a prefix, and in
    /// dots and underscores.
    pub(crate) fn check_base(&self, base: &Weights) -> Vec<Finding> {
        let mut found = Mismatches::default();
        let stored = base_modules(base);
        let modules =
            self.shapes.iter().map(|(name, sides)| (name.replace('_', "."), (name, sides)));
        let mut modules: BTreeMap<_, _> = modules.ordered();
        RenamedPrefix::rename(&mut modules, &stored, |_, _| true);
        let patterns: HashSet<_> = stored.keys().map(|name| NamePattern::new(name).text).collect();
        let mut matched = 0;
        for (name, (module, sides)) in &modules {
            if let Some(shape) = stored.get(name) {
                matched += 1;
                // Packed weights have other shapes.
                if let Some(shape) = shape.as_ref().filter(|shape| !fits_base(**sides, shape)) {
                    let (shape, sides) = (format!("{shape:?}"), format!("{sides:?}"));
                    found.add(MismatchKind::ShapeMismatch, module, "base", shape, sides);
                }
            } else if patterns.contains(&NamePattern::new(name).text) {
                // The same module of other layers exists, so that only its layer does not.
                found.add(MismatchKind::MissingBaseModule, module, "base", "stored", "missing");
            }
        }
        if let Some((module, _)) = modules.values().next().filter(|_| matched == 0) {
            // Loaders convert the names of other programs.
            let is_exact = self.format == "peft" && modules.len() > 1;
            let is_stored = |name: &String| contains(&stored, name) || is_in_memory(&stored, name);
            let is_missing = is_exact && !modules.keys().any(is_stored);
            let kind =
                if is_missing { MismatchKind::MissingBase } else { MismatchKind::UnmatchedBase };
            found.add(kind, module, "base", "a module of the base model", "none");
        }
        found.into_findings()
    }
}

/// Returns the modules of a base model by name, with dots for underscores, and the shapes of plain weights.
fn base_modules(base: &Weights) -> BTreeMap<String, Option<Vec<u64>>> {
    let tensors = base.named_headers().flat_map(|(_, header)| header.tensors());
    let modules = tensors.filter_map(|(name, tensor)| {
        let (module, component) = split_name(name);
        let is_float = container_bits(&tensor.dtype).is_none() && tensor.dtype.bits() >= Some(8);
        let is_plain = component.is_plain() && (2..=4).contains(&tensor.shape.len());
        let shape = (is_float && is_plain).then_some(tensor.shape);
        component.is_weights().then(|| (module.replace('_', "."), shape))
    });
    modules.collect()
}

/// Returns whether a module is stored under another name than the one that it has in memory.
fn is_in_memory<T>(modules: &BTreeMap<String, T>, name: &str) -> bool {
    OTHER_NAMES.iter().any(|names| {
        let [other, known] = [names.0, names.1].map(|part| part.replace('_', "."));
        modules.contains_key(&name.replace(&other, &known))
    })
}

/// Returns whether any module is inside of a path, which experts that are stored as a stack share.
fn contains<T>(modules: &BTreeMap<String, T>, name: &str) -> bool {
    const EXPERTS: &str = ".experts";

    let end = name.find(EXPERTS).map_or(name.len(), |at| at + EXPERTS.len());
    let path = format!("{}.", &name[..end]);
    modules.range(path.clone()..).next().is_some_and(|(module, _)| module.starts_with(&path))
}

/// Returns whether an adapter of these outputs and inputs fits weights. Embeddings, and the linear modules of GPT-2, are
/// transposed.
fn fits_base([outputs, inputs]: [u64; 2], shape: &[u64]) -> bool {
    // An empty tensor may have any other lengths.
    let kernel = shape[2..].iter().fold(1, |product: u64, length| product.saturating_mul(*length));
    let (rows, columns) = (shape[0], shape[1]);
    [(rows, columns), (columns, rows), (rows, columns.saturating_mul(kernel))]
        .contains(&(outputs, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_kernels_of_any_lengths_fit_no_adapter() {
        assert!(!fits_base([8, 4], &[8, 0, 1 << 40, 1 << 40]));
        assert!(fits_base([8, 18], &[8, 2, 3, 3]));
    }
}
