//! Compares an adapter with its base model: the sides of adapted modules, and the modules that PEFT adapts.
//!
//! PEFT creates the parts of an adapter for every module of the base model that the targets select, and initializes the ones
//! that are not stored (`set_peft_model_state_dict` in `peft/utils/save_and_load.py`, 0.21).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::adapter::{CLASSIFIERS, Targets};
use super::exceptions::other_names;
use super::stored_modules::is_expert;
use super::{MismatchKind, Mismatches, sides_text};
use crate::count::names::pattern::NamePattern;
use crate::count::{Embedding, NamePatterns, container_bits, split_name};
use crate::results::adapter::{Adapter, AdapterConfig, PEFT_PREFIX, StoredAdapter, configs};
use crate::results::diff::RenamedPrefix;
use crate::results::{Finding, VerifyReport, Weights};
use hf_meta_format::base::json_object::standard_json;
use hf_meta_format::base::sort::Ordered;

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
                    let (shape, sides) = (format!("{shape:?}"), sides_text(sides.iter().copied()));
                    found.add(MismatchKind::BaseShapeMismatch, module, "base", shape, sides);
                }
            } else if patterns.contains(&NamePattern::new(name).text) {
                // The same module of other layers exists, so that only its layer does not.
                found.add(MismatchKind::MissingBaseModule, module, "base", "stored", "missing");
            }
        }
        if matched == 0
            && let Some((module, _)) = modules.values().next()
        {
            // Loaders convert the names of other programs.
            let is_exact = self.format == "peft" && modules.len() > 1;
            let is_stored = |name: &String| contains(&stored, name) || is_in_memory(&stored, name);
            let is_missing = is_exact && !modules.keys().any(is_stored);
            let kind =
                if is_missing { MismatchKind::MissingBase } else { MismatchKind::UnmatchedBase };
            found.add(kind, module, "base", "a module of the base model", "none");
        }
        if let Some(stored) = &self.stored {
            stored.check_base(base, &mut found);
        }
        found.into_findings()
    }
}

/// The modules of a base model by name, with the shapes of plain weights.
type BaseModules = BTreeMap<String, Option<Vec<u64>>>;

impl StoredAdapter {
    /// Compares all tensors with the modules of the base model that the configuration selects.
    fn check_base(&self, base: &Weights, found: &mut Mismatches) {
        let json = standard_json(&self.json);
        let configs = configs(Some(&json), &[]);
        let [config] = &configs[..] else { return };
        let modules = stored_modules(base);
        let names = self.tensors.iter().map(|(name, _)| name.strip_prefix(PEFT_PREFIX));
        let names: BTreeSet<_> = names.flatten().ordered();
        let mut prefixes: BTreeMap<_, _> =
            names.iter().map(|name| (outermost(name, &modules), *name)).ordered();
        let renamed = RenamedPrefix::rename(&mut prefixes, &modules, |_, _| true);
        let check = BaseCheck { config, modules, renamed };
        check.check_saved(&self.tensors, found);
        if config.raw("layer_replication").is_none()
            && let Some(targets) = Targets::new(config)
        {
            check.check_layers(&names, &targets, found);
            check.check_targets(&names, &targets, found);
        }
    }
}

/// Returns the module of the base model in the name of a tensor, or the name up to the part of the adapter.
fn outermost(name: &str, modules: &BaseModules) -> String {
    let mut ends = name.match_indices('.').map(|(dot, _)| &name[..dot]).rev();
    let known = ends.clone().find(|end| modules.contains_key(*end));
    known.or_else(|| ends.nth(1)).unwrap_or(name).to_owned()
}

/// A comparison of an adapter with its base model.
struct BaseCheck<'a> {
    config: &'a AdapterConfig<'a>,
    modules: BaseModules,
    /// The prefix that distinguishes the names of the adapter from the ones of the base model.
    renamed: Option<RenamedPrefix>,
}

impl BaseCheck<'_> {
    /// Returns the module of the base model that a tensor adapts, and the rest of its name.
    fn place<'n>(&self, name: &'n str) -> Option<(String, &'n str)> {
        let mut ends = name.match_indices('.').map(|(dot, _)| dot).rev();
        ends.find_map(|dot| Some((self.stored_name(&name[..dot])?, &name[dot..])))
    }

    /// Returns the name of a module in the files of the base model.
    fn stored_name(&self, module: &str) -> Option<String> {
        if self.modules.contains_key(module) {
            return Some(module.to_owned());
        }
        let RenamedPrefix { before, after, .. } = self.renamed.as_ref()?;
        let name = format!("{after}{}", module.strip_prefix(&**before)?);
        self.modules.contains_key(&name).then_some(name)
    }

    /// Returns the name of a stored module in memory, as the configuration names it.
    fn name_in_memory(&self, module: &str) -> String {
        let renamed = self.renamed.as_ref().and_then(|RenamedPrefix { before, after, .. }| {
            Some(format!("{before}{}", module.strip_prefix(&**after)?))
        });
        renamed.unwrap_or_else(|| module.to_owned())
    }

    /// Finds modules that the targets select, and that have no tensors, unlike the same module of other layers.
    fn check_layers(&self, names: &BTreeSet<&str>, targets: &Targets, found: &mut Mismatches) {
        const KEY: &str = "target_modules";

        let mut groups = BTreeMap::<_, BTreeSet<_>>::new();
        for (module, rest) in names.iter().filter_map(|name| self.place(name)) {
            // A bias, and a module that is saved in full.
            if ![".weight", ".bias"].contains(&rest) {
                groups.entry(NamePattern::new(&module).text).or_default().insert(module);
            }
        }
        for module in self.modules.keys() {
            let adapted = groups.get(&NamePattern::new(module).text);
            let name = self.name_in_memory(module);
            let is_missing = adapted.is_some_and(|adapted| !adapted.contains(module));
            if is_missing && targets.selects(&name) {
                found.add(MismatchKind::MissingAdapterPart, &name, KEY, "stored", "");
            }
        }
    }

    /// Finds targets that select modules of the base model, of which none is adapted.
    fn check_targets(&self, names: &BTreeSet<&str>, targets: &Targets, found: &mut Mismatches) {
        const KEY: &str = "target_modules";

        let saved = self.config.list("modules_to_save").unwrap_or_default();
        for target in targets.names.iter().flatten().filter(|name| !saved.contains(name)) {
            let ends = format!(".{target}");
            let is_target = |module: &str| module == target || module.ends_with(&ends);
            let inside = format!("{ends}.");
            if names.iter().any(|name| format!(".{name}").contains(&inside)) {
                continue;
            }
            let mut modules = self.modules.iter().filter(|(_, shape)| shape.is_some());
            let lacking = modules.find_map(|(module, _)| {
                let name = self.name_in_memory(module);
                (is_target(&name) && !is_expert(module) && targets.selects(&name)).then_some(name)
            });
            if let Some(name) = lacking {
                found.add(MismatchKind::MissingAdapterPart, &name, KEY, "stored", "");
            }
        }
    }

    /// Compares modules that the adapter stores in full, and tokens, with the shapes of the base model.
    fn check_saved(&self, tensors: &[(String, Vec<u64>)], found: &mut Mismatches) {
        const TOKENS: &str = ".trainable_tokens_delta";

        self.check_classifier(tensors, found);
        let input = self.input_embedding();
        for (tensor, shape) in tensors {
            let Some(name) = tensor.strip_prefix(PEFT_PREFIX) else { continue };
            if let Some(module) = name.strip_suffix(TOKENS) {
                let width = input.as_ref().and_then(|shape| shape.last());
                let is_wrong = width.zip(shape.last()).is_some_and(|(one, other)| one != other);
                if is_wrong && let Some(expected) = width {
                    let (expected, shape) = (format!("[_, {expected}]"), format!("{shape:?}"));
                    found.add(MismatchKind::BaseShapeMismatch, module, "base", expected, shape);
                }
                continue;
            }
            let Some(module) = name.strip_suffix(".weight") else { continue };
            // A head for other labels replaces the one of the base model.
            if module.rsplit('.').next().is_some_and(|name| CLASSIFIERS.contains(&name)) {
                continue;
            }
            let known = self.stored_name(module).and_then(|name| self.modules[&name].clone());
            // A tied output embedding is not stored.
            let is_head = module == "lm_head" && !self.modules.contains_key(module);
            let tied = if is_head { input.clone() } else { None };
            let Some(expected) = known.or(tied) else { continue };
            if expected != *shape {
                let (expected, shape) = (format!("{expected:?}"), format!("{shape:?}"));
                found.add(MismatchKind::BaseShapeMismatch, module, "base", expected, shape);
            }
        }
    }

    /// Finds the classifier of the base model, which PEFT saves with the adapter of a model with labels
    /// (`PeftModelForSequenceClassification` in `peft/peft_model.py`, 0.21).
    fn check_classifier(&self, tensors: &[(String, Vec<u64>)], found: &mut Mismatches) {
        const KEY: &str = "modules_to_save";

        let saved = self.config.list(KEY).unwrap_or_default();
        let is_saved = |name: &&str| saved.iter().any(|saved| saved == *name);
        let is_stored = |name: &str| {
            let part = format!(".{name}.");
            tensors.iter().any(|(tensor, _)| tensor.contains(&part))
        };
        let mut names = CLASSIFIERS.into_iter().filter(is_saved);
        let missing = names.find(|name| self.modules.contains_key(*name));
        if !CLASSIFIERS.into_iter().any(is_stored)
            && let Some(name) = missing
        {
            found.add(MismatchKind::MissingPart, name, KEY, "stored", "missing");
        }
    }

    /// Returns the shape of the input embedding.
    fn input_embedding(&self) -> Option<Vec<u64>> {
        let mut names = NamePatterns::default();
        let mut is_input = |name: &str| {
            names.read(&format!("{name}.weight")).embedding() == Some(Embedding::Input)
        };
        let tables = self.modules.iter().filter(|(name, _)| is_input(name));
        let tables = tables.filter_map(|(_, shape)| shape.clone()).filter(|shape| shape.len() == 2);
        tables.max()
    }
}

/// Returns the modules of a base model by name.
fn stored_modules(base: &Weights) -> BaseModules {
    let tensors = base.named_headers().flat_map(|(_, header)| header.tensors());
    let modules = tensors.filter_map(|(name, tensor)| {
        let (module, component) = split_name(name);
        let is_float = container_bits(&tensor.dtype).is_none() && tensor.dtype.bits() >= Some(8);
        let shape = (is_float && component.is_plain()).then_some(tensor.shape);
        component.is_weights().then(|| (module.to_owned(), shape))
    });
    modules.collect()
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
    other_names().any(|names| {
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
fn fits_base([outputs, inputs]: [Option<u64>; 2], shape: &[u64]) -> bool {
    // An empty tensor may have any other lengths.
    let kernel = shape[2..].iter().fold(1, |product: u64, length| product.saturating_mul(*length));
    let (rows, columns) = (shape[0], shape[1]);
    let fits = |side: Option<u64>, length: u64| side.is_none_or(|side| side == length);
    [(rows, columns), (columns, rows), (rows, columns.saturating_mul(kernel))]
        .iter()
        .any(|(rows, columns)| fits(outputs, *rows) && fits(inputs, *columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_kernels_of_any_lengths_fit_no_adapter() {
        assert!(!fits_base([Some(8), Some(4)], &[8, 0, 1 << 40, 1 << 40]));
        assert!(fits_base([Some(8), Some(18)], &[8, 2, 3, 3]));
    }
}
