//! Compares the parts of packed modules with each other, which needs neither a recipe nor the architecture.
//!
//! Quantizers store the same parts for each module, so a module without its weight, or without a part that the same
//! module of all other layers has, is incomplete. Every loader then fails, or leaves the weight as it was initialized.

use std::collections::{BTreeMap, BTreeSet};

use super::{MismatchKind, Mismatches};
use crate::count::names::pattern::NamePattern;
use crate::count::{Component, NamePatterns};
use hf_meta_format::base::sort::Ordered;
use hf_meta_format::formats::{Headers, all_tensors};

/// The number of modules with the same parts that is needed to see which one differs.
const MIN_MODULES: usize = 3;

/// The name of a weight, its dtype and its shape.
type PackedWeight = (&'static Component, String, Vec<u64>);

/// The tensors of a module that is packed, or has parts of a packed weight.
#[derive(Default)]
struct PackedModule {
    weight: Option<PackedWeight>,
    parts: BTreeSet<&'static Component>,
    /// The states of quantizers, which show a weight, but may differ from module to module.
    states: BTreeSet<&'static Component>,
}

impl PackedModule {
    /// Returns the tensors that show a weight.
    fn evidence(&self) -> impl Iterator<Item = &'static Component> {
        self.parts.iter().chain(&self.states).copied()
    }
}

/// The packed modules with the same name but for its numbers.
type Modules<'h> = BTreeMap<&'h str, PackedModule>;

/// Finds packed modules without their weight, and modules without a part that all others of their kind have.
pub(super) fn check_parts(headers: &Headers, found: &mut Mismatches) {
    let kinds = packed_modules(headers);
    let modules = || kinds.values().flat_map(Modules::values);
    let is_complete = |module: &&PackedModule| module.weight.is_some();
    let of_weights = modules().filter(is_complete).flat_map(PackedModule::evidence);
    let of_weights: BTreeSet<_> = of_weights.ordered();
    for modules in kinds.values() {
        for (name, module) in modules.iter().filter(|(_, module)| module.weight.is_none()) {
            if let Some((weight, part)) = missing_weight(module, modules, &of_weights, &kinds) {
                let mut tensor = String::new();
                weight.write_tensor_name(name, &mut tensor);
                found.add(MismatchKind::MissingWeight, &tensor, "", "", part.name);
            }
        }
        check_kind(modules, found);
    }
}

/// Returns the packed modules by the patterns of their names.
fn packed_modules(headers: &Headers) -> BTreeMap<String, Modules<'_>> {
    let mut names = NamePatterns::default();
    let mut is_part = |name: &str| !names.read(name).split().1.is_weights();
    // Most models are not quantized.
    if !all_tensors(headers).any(|(name, _)| is_part(name)) {
        return BTreeMap::new();
    }
    let mut modules = Modules::new();
    for (name, tensor) in all_tensors(headers) {
        let (module, component) = names.read(name).split();
        // A module is the start of a name, which lives longer than its facts.
        let module = &name[..module.len()];
        // FP-Quant stores the other form of its weights as an empty tensor.
        let is_empty = tensor.shape.contains(&0);
        if component.is_weights() && !is_empty {
            modules.entry(module).or_default().weight =
                Some((component, tensor.dtype.as_str().to_owned(), tensor.shape));
        } else if component.is_stored_for_each_weight() {
            modules.entry(module).or_default().parts.insert(component);
        } else if component.is_state_of_weight() {
            modules.entry(module).or_default().states.insert(component);
        }
    }
    modules.retain(|_, module| module.evidence().next().is_some());
    let mut kinds = BTreeMap::<_, Modules<'_>>::new();
    for (name, module) in modules {
        kinds.entry(NamePattern::new(name).text).or_default().insert(name, module);
    }
    kinds
}

/// Returns the weight that a module lacks, and the part that shows it: another module of the same kind has both, or the
/// part belongs to weights in every method that uses its name. `of_weights` are the parts of modules with a weight.
fn missing_weight(
    module: &PackedModule,
    modules: &Modules<'_>,
    of_weights: &BTreeSet<&'static Component>,
    kinds: &BTreeMap<String, Modules<'_>>,
) -> Option<(&'static Component, &'static Component)> {
    let weight_of = |part: &'static Component, module: &PackedModule| {
        let (weight, ..) =
            module.weight.as_ref().filter(|_| module.evidence().any(|other| other == part))?;
        Some((*weight, part))
    };
    let mut parts = module.evidence().filter(|part| of_weights.contains(part));
    parts.find_map(|part| {
        let sibling = modules.values().find_map(|other| weight_of(part, other));
        let other = || kinds.values().flat_map(Modules::values);
        sibling.or_else(|| {
            let is_certain = part.is_part_of_weights();
            other().filter(|_| is_certain).find_map(|other| weight_of(part, other))
        })
    })
}

/// Finds the modules without a part that all other modules of their kind have.
fn check_kind(modules: &Modules<'_>, found: &mut Mismatches) {
    let mut kinds = BTreeMap::<_, BTreeMap<_, Vec<&str>>>::new();
    for (name, module) in modules {
        if let Some(weight) = &module.weight {
            kinds.entry(weight).or_default().entry(&module.parts).or_default().push(name);
        }
    }
    for kinds in kinds.values() {
        let usual = kinds.iter().max_by_key(|(_, modules)| modules.len());
        let Some((usual, _)) = usual.filter(|(_, modules)| modules.len() >= MIN_MODULES) else {
            continue;
        };
        for (parts, modules) in kinds.iter().filter(|(parts, _)| parts.is_subset(usual)) {
            let [module] = modules[..] else { continue };
            for part in usual.difference(parts) {
                let mut tensor = String::new();
                part.write_tensor_name(module, &mut tensor);
                found.add(MismatchKind::MissingSibling, &tensor, "", "", part.name);
            }
        }
    }
}
