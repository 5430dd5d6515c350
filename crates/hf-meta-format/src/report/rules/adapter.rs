//! Compares the parts of an adapter with each other, with its configuration and with the adapted model.

use std::collections::{BTreeMap, HashSet};

use super::MismatchKind;
use super::Mismatches;
use crate::base::json_object::{number, read, standard_json};
use crate::count::config::{ModuleEntries, Pattern};
use crate::count::name_pattern::NamePattern;
use crate::count::{container_bits, split_name};
use crate::formats::{FileHeader, RepoPath};
use crate::report::adapter::{
    AdaptedModule, Adapter, AdapterConfig, AdapterModules, configs, decimal, is_kohya, metadata,
};
use crate::report::diff::renamed_prefix;
use crate::report::{Finding, Weights};

/// The rank and the `alpha` that PEFT uses if its configuration has none.
const PEFT_DEFAULT: u64 = 8;

/// The maximum number of regular expressions in a map of names.
const MAX_EXPRESSIONS: usize = 100;

/// Compares all parts of an adapter with each other and with `adapter_config.json`. Returns nothing for other weights.
#[must_use]
pub fn check_adapter(json: Option<&[u8]>, headers: &[(RepoPath, FileHeader)]) -> Vec<Finding> {
    let json = json.map(standard_json);
    let Some(adapter) = AdapterModules::new(headers) else { return Vec::new() };
    let mut found = Mismatches::default();
    let configs = configs(json.as_deref(), headers);
    let has_tensors = headers.iter().any(|(_, header)| !header.tensors().is_empty());
    if let Some((path, _)) = headers.first().filter(|_| !has_tensors && json.is_some()) {
        let values = ("adapted modules", "none");
        found.add(MismatchKind::EmptyAdapter, (path.as_str(), ""), "target_modules", values);
        return found.into_findings();
    }
    for ((name, _), module) in &adapter.modules {
        if !adapter.uncertain.contains(name) {
            check_parts(name, module, &mut found);
        }
    }
    for config in &configs {
        check_config(config, &adapter, &mut found);
        check_saved(config, headers, &mut found);
    }
    check_alphas(&adapter, headers, &mut found);
    found.into_findings()
}

/// Checks that a module has all parts of its method, and that they agree on its rank and sides.
fn check_parts(name: &str, module: &AdaptedModule<'_>, found: &mut Mismatches) {
    let group = NamePattern::new(name).text;
    let stored = module.parts.keys().next().copied().unwrap_or_default();
    for part in &module.method.parts {
        let group = format!("{group}.{}", part.name);
        let Some((tensor, info)) = module.parts.get(part.name) else {
            if part.is_required {
                let missing = format!("{name}.{}", part.name);
                let values = ("stored", "missing");
                found.add(MismatchKind::MissingPart, (&missing, &group), stored, values);
            }
            continue;
        };
        let (mut expected, mut key) = (Vec::new(), None);
        for (at, side) in part.sides.chars().enumerate() {
            let Some((length, other)) = module.sides.get(&side) else { continue };
            let is_own = *other == part.name;
            expected.push(if is_own { "_".to_owned() } else { length.to_string() });
            let fits = info.shape.get(at).is_some_and(|found| {
                // The parts of a convolution can be split into groups.
                let has_groups = info.shape.len() > 2 && *found > 0 && length % found == 0;
                found == length || has_groups
            });
            if !fits {
                key.get_or_insert(if is_own { stored } else { *other });
            }
        }
        if info.shape.len() < part.sides.len() {
            expected.resize(part.sides.len(), "_".to_owned());
            key.get_or_insert(stored);
        }
        if let Some(key) = key {
            let values = (format!("[{}]", expected.join(", ")), format!("{:?}", info.shape));
            found.add(MismatchKind::ShapeMismatch, (tensor, &group), key, values);
        }
    }
}

/// Returns the positions of names in a configuration of PEFT.
fn name_entries<'a>(names: impl Iterator<Item = &'a str>) -> ModuleEntries<usize> {
    let mut entries = ModuleEntries::default();
    names.zip(0..).for_each(|(name, at)| entries.add_name(name, at));
    entries
}

/// Returns the positions of names and regular expressions, which PEFT matches as `(.*\.)?(entry)$`. Returns `None` if an
/// expression is not supported.
fn rank_entries<'a>(ranks: impl Iterator<Item = &'a str>) -> Option<ModuleEntries<usize>> {
    let mut entries = ModuleEntries::default();
    for (entry, at) in ranks.zip(0..) {
        if entry.contains(['*', '+', '?', '\\', '[', '(', '^', '$', '|', '{']) {
            let expression = Pattern::of_entry(&format!("re:(?:.*\\.)?(?:{entry})$"));
            entries.add_pattern(expression, at);
        } else {
            entries.add_name(entry, at);
        }
    }
    let expressions = entries.patterns();
    let is_bounded = expressions.len() <= MAX_EXPRESSIONS;
    let is_sure = is_bounded && expressions.iter().all(|(rule, _)| rule.is_supported());
    is_sure.then_some(entries)
}

/// Compares modules with the configuration of PEFT, or of MLX.
fn check_config(config: &AdapterConfig<'_>, adapter: &AdapterModules<'_>, found: &mut Mismatches) {
    let method = config.method();
    let modules = adapter.modules.iter().filter_map(|((name, _), module)| {
        let family = module.method.family.to_lowercase();
        let has_family = method.as_ref().is_none_or(|method| *method == family);
        has_family.then_some((config.module(name)?, module))
    });
    let modules: Vec<_> = modules.collect();
    let Some(method) = method else {
        let rank = config.object("lora_parameters").number("rank");
        return check_ranks(&modules, |_| Some((rank?, "rank")), found);
    };
    check_statements(config, found);
    if !matches!(&*method, "lora" | "loha" | "lokr") {
        return;
    }
    let targets = check_targets(config, &modules, found);
    let rank = match config.raw("r") {
        None => PEFT_DEFAULT,
        Some(value) => match number(value) {
            Some(rank @ 1..) => rank,
            _ => return found.add_invalid("r", value.get()),
        },
    };
    let pattern = config.object("rank_pattern");
    let entries: Vec<_> = pattern.entries().collect();
    let rules = rank_entries(entries.iter().map(|(name, _)| *name));
    // The ranks of stacked experts are multiplied by their number, and a block-diagonal part has several ranks.
    let has_parameters = config.list("target_parameters").is_some_and(|list| !list.is_empty());
    let (Some(rules), None) = (rules, config.raw("use_bdlora")) else { return };
    let rank = |module: &str| {
        if has_parameters && !targets.as_ref()?.contains(module) {
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
            None => {
                let values = ("a number", PEFT_DEFAULT);
                found.add(MismatchKind::MissingAlpha, (key, ""), key, values);
            }
            Some(value) if decimal(value).is_none() => found.add_invalid(key, value.get()),
            Some(_) => {}
        }
    }
    let base = config.text(BASE).unwrap_or_default();
    let is_path = base.starts_with(['/', '.', '~']) || base.contains('\\');
    if config.prefix.is_empty() && (base.is_empty() || is_path) {
        found.add(MismatchKind::UnnamedBaseModel, (BASE, ""), BASE, ("a repository", base));
    }
}

/// Checks that the modules which PEFT trains in full are stored.
fn check_saved(
    config: &AdapterConfig<'_>,
    headers: &[(RepoPath, FileHeader)],
    found: &mut Mismatches,
) {
    /// The names that PEFT adds for classifiers, of which a model has one or none.
    const CLASSIFIERS: [&str; 2] = ["classifier", "score"];

    let names = config.list("modules_to_save").unwrap_or_default();
    let Some(name) = names.iter().find(|name| !CLASSIFIERS.contains(&name.as_str())) else {
        return;
    };
    let parts: Vec<_> = names.iter().map(|name| format!(".{name}.")).collect();
    let mut tensors = headers.iter().flat_map(|(_, header)| header.tensors().names());
    if !tensors.any(|tensor| parts.iter().any(|part| tensor.contains(part.as_str()))) {
        found.add(MismatchKind::MissingPart, (name, ""), "modules_to_save", ("stored", "missing"));
    }
}

/// Compares the ranks of modules with the ranks that the configuration states.
fn check_ranks(
    modules: &[(&str, &AdaptedModule<'_>)],
    expected: impl Fn(&str) -> Option<(u64, &'static str)>,
    found: &mut Mismatches,
) {
    for (name, module) in modules {
        let (Some(rank), Some((expected, key))) = (module.rank(), expected(name)) else { continue };
        if rank != expected {
            let group = NamePattern::new(name).text;
            let values = (expected, rank);
            found.add(MismatchKind::RankMismatch, (name, &group), key, values);
        }
    }
}

/// The modules that `target_modules` selects.
struct Targets<'a> {
    selected: HashSet<&'a str>,
    /// The entries that select none.
    unmatched: Vec<String>,
}

impl<'a> Targets<'a> {
    /// Returns `None` if the selection is uncertain.
    fn new(config: &AdapterConfig<'_>, modules: &[(&'a str, &AdaptedModule<'_>)]) -> Option<Self> {
        let modules = modules.iter().map(|(name, _)| *name);
        if let Some(list) = config.list("target_modules") {
            let rules = name_entries(list.iter().map(String::as_str));
            let found = modules.filter_map(|name| Some((name, *rules.matching(name).min()?)));
            let (selected, used): (_, HashSet<_>) = found.unzip();
            let unmatched = (0..).zip(&list).filter(|(at, _)| !used.contains(at));
            let unmatched = unmatched.map(|(_, name)| name.clone()).collect();
            return Some(Self { selected, unmatched });
        }
        let expression = config.text("target_modules").filter(|text| text != "all-linear")?;
        let expression = Pattern::of_entry(&format!("re:(?:{expression})$"));
        let selected = modules.filter(|name| expression.matches(name).is_some()).collect();
        expression.is_supported().then_some(Self { selected, unmatched: Vec::new() })
    }
}

/// Compares modules with the names of targets. Returns the selected modules, if the targets are certain.
fn check_targets<'a>(
    config: &AdapterConfig<'_>,
    modules: &[(&'a str, &AdaptedModule<'_>)],
    found: &mut Mismatches,
) -> Option<HashSet<&'a str>> {
    let Targets { selected, unmatched } = Targets::new(config, modules)?;
    let parameters = config.list("target_parameters").unwrap_or_default();
    let parents = parameters.iter().filter_map(|name| Some(name.rsplit_once('.')?.0));
    let parents = name_entries(parents);
    let layers =
        config.raw("layers_to_transform").filter(|_| config.raw("layers_pattern").is_none());
    let layers =
        layers.and_then(|value| read::<Vec<u64>>(value).or_else(|| Some(vec![number(value)?])));
    for (name, _) in modules {
        let place = NamePattern::new(name);
        let layer = place.only_number();
        let key = if !selected.contains(name) && parents.matching(name).next().is_none() {
            "target_modules"
        } else if layers.as_ref().zip(layer).is_some_and(|(layers, at)| !layers.contains(&at)) {
            "layers_to_transform"
        } else {
            continue;
        };
        let values = ("a target", "stored");
        found.add(MismatchKind::UntargetedModule, (name, &place.text), key, values);
    }
    for name in &unmatched {
        let values = ("a module", "none");
        found.add(MismatchKind::UnmatchedTarget, (name, ""), "target_modules", values);
    }
    Some(selected)
}

/// Checks the `alpha` of modules in the names of kohya. Loaders use the rank where it is missing.
fn check_alphas(
    adapter: &AdapterModules<'_>,
    headers: &[(RepoPath, FileHeader)],
    found: &mut Mismatches,
) {
    let takes_alpha = |module: &AdaptedModule<'_>| {
        module.rank().is_some() && module.method.parts.iter().any(|part| part.name == "alpha")
    };
    let modules = adapter.modules.iter();
    let modules: Vec<_> =
        modules.filter(|((name, _), module)| takes_alpha(module) && is_kohya(name)).collect();
    let [dim, alpha] = ["ss_network_dim", "ss_network_alpha"]
        .map(|key| metadata(headers, key)?.parse::<f64>().ok());
    let is_stored = |module: &AdaptedModule<'_>| module.parts.contains_key("alpha");
    let is_needed = dim.is_some() && alpha.is_some() && dim != alpha;
    if !is_needed && !modules.iter().any(|(_, module)| is_stored(module)) {
        return;
    }
    for ((name, _), module) in modules {
        if !is_stored(module) {
            let (missing, group) = (format!("{name}.alpha"), NamePattern::new(name).text);
            let values = ("stored", module.rank().unwrap_or_default());
            found.add(MismatchKind::MissingAlpha, (&missing, &group), "alpha", values);
        }
    }
}

impl Adapter {
    /// Compares the sides of all adapted modules with the tensors of the base model. Names may differ in a prefix, and in
    /// dots and underscores.
    #[must_use]
    pub fn check_base(&self, base: &Weights) -> Vec<Finding> {
        let mut found = Mismatches::default();
        let shapes = base_shapes(base);
        let modules = self.shapes.iter().map(|(name, shape)| (name.replace('_', "."), name, shape));
        let modules: BTreeMap<_, _> =
            modules.map(|(plain, name, shape)| (plain, (name, shape))).collect();
        let no_shape: &[u64] = &[];
        let unknown = modules.keys().filter(|name| !shapes.contains_key(*name));
        let unused = shapes.keys().filter(|name| !modules.contains_key(*name));
        let renamed = renamed_prefix(
            unknown.map(|name| (&**name, no_shape)),
            unused.map(|name| (&**name, no_shape)),
        );
        let base_name = |name: &str| match &renamed {
            Some(renamed) if !shapes.contains_key(name) => {
                let rest = name.strip_prefix(&*renamed.before)?;
                Some(format!("{}{rest}", renamed.after))
            }
            _ => Some(name.to_owned()),
        };
        let patterns: HashSet<_> = shapes.keys().map(|name| NamePattern::new(name).text).collect();
        let mut matched = 0;
        for (name, (module, sides)) in &modules {
            let Some(name) = base_name(name) else { continue };
            let group = NamePattern::new(module).text;
            if let Some((stored, shape)) = shapes.get(&name) {
                matched += 1;
                // Packed weights have other shapes.
                if let Some(shape) = shape.as_ref().filter(|shape| !fits_base(**sides, shape)) {
                    let values = (format!("{shape:?}"), format!("{sides:?}"));
                    found.add(MismatchKind::ShapeMismatch, (module, &group), stored, values);
                }
            } else if patterns.contains(&NamePattern::new(&name).text) {
                // The same module of other layers exists, so that only its layer does not.
                let values = ("stored", "missing");
                found.add(MismatchKind::MissingBaseModule, (module, &group), "base", values);
            }
        }
        if let Some((example, _)) = modules.values().next().filter(|_| matched == 0) {
            let values = ("a module of the base model", "none");
            found.add(MismatchKind::UnmatchedBase, (example, ""), "base", values);
        }
        found.into_findings()
    }
}

/// Returns the modules of a base model by name, with dots for underscores: the name, and the shape of plain weights.
fn base_shapes(base: &Weights) -> BTreeMap<String, (&str, Option<Vec<u64>>)> {
    let tensors = base.files().flat_map(|(_, header)| header.tensors());
    let shapes = tensors.filter_map(|(name, tensor)| {
        let (module, component) = split_name(name);
        let is_float = container_bits(&tensor.dtype).is_none() && tensor.dtype.bits() >= Some(8);
        let is_plain = component.is_plain() && (2..=4).contains(&tensor.shape.len());
        let shape = (is_float && is_plain).then_some(tensor.shape);
        component.is_weights().then(|| (module.replace('_', "."), (module, shape)))
    });
    shapes.collect()
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
