//! Compares the parts of packed modules with each other, which needs neither a recipe nor the architecture.
//!
//! Quantizers store the same parts for each module, so a module without its weight, or without a part that the same
//! module of all other layers has, is incomplete. Every loader then fails, or leaves the weight as it was initialized.

use std::collections::{BTreeMap, BTreeSet};

use super::{MismatchKind, Mismatches};
use crate::count::names::pattern::NamePattern;
use crate::count::{Component, NamePatterns, container_bits, packed_by, packed_with};
use hf_meta_format::formats::{Dtype, Headers, TensorInfo, all_tensors};

/// The number of modules with the same parts that is needed to see which one differs.
const MIN_MODULES: usize = 3;

/// The parts of a packed weight, with their dtypes and their numbers of sides.
type Parts = BTreeMap<&'static Component, (Dtype, usize)>;

/// The tensor that contains the weight of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PackedWeight {
    component: &'static Component,
    dtype: Dtype,
    shape: Vec<u64>,
}

impl PackedWeight {
    /// Returns whether the name or the dtype shows that the weight is packed. bitsandbytes packs into columns of any dtype.
    fn is_certain(&self) -> bool {
        let is_narrow = self.dtype.is_narrow_float() || container_bits(&self.dtype).is_some();
        let is_column = matches!(self.shape[..], [rows, 1] if rows > 1);
        !self.component.is_plain() || is_narrow || is_column
    }
}

/// The tensors of a module that is packed, or has parts of a packed weight.
#[derive(Default)]
struct PackedModule {
    weight: Option<PackedWeight>,
    parts: Parts,
    /// The states of quantizers, which show a weight, but may differ from module to module.
    states: BTreeSet<&'static Component>,
}

impl PackedModule {
    /// Returns the tensors that show a weight.
    fn evidence(&self) -> impl Iterator<Item = &'static Component> {
        self.parts.keys().chain(&self.states).copied()
    }

    /// Returns the weight, and a part that another module has, too.
    fn shown_by(&self, other: &Self) -> Option<Shown> {
        let weight = self.weight.as_ref()?.component;
        let part = other.evidence().find(|part| self.evidence().any(|own| own == *part))?;
        Some((weight.name_in_module(), part))
    }
}

/// The end of the name of a missing weight, and the part that shows it.
type Shown = (String, &'static Component);

/// The packed modules with the same name but for its numbers.
type Modules<'h> = BTreeMap<&'h str, PackedModule>;

/// Finds packed modules without their weight, and modules without a part that all others of their kind have.
pub(super) fn check_parts(headers: &Headers, found: &mut Mismatches) {
    let kinds = packed_modules(headers);
    let known = KnownWeights::new(&kinds);
    let mut missing = BTreeMap::new();
    for modules in kinds.values() {
        for (name, module) in modules.iter().filter(|(_, module)| module.weight.is_none()) {
            let sibling = modules.values().find_map(|other| other.shown_by(module));
            if let Some((weight, part)) = sibling.or_else(|| known.of(module)) {
                let tensor = format!("{name}{weight}");
                found.add(MismatchKind::MissingWeight, &tensor, "", "", part.name);
            }
        }
        let complete = modules.iter().filter_map(|(name, module)| {
            Some((*name, &module.parts, (module.weight.as_ref()?, 0)))
        });
        missing.extend(missing_parts(complete));
    }
    // Quantizers store the same parts for modules of other names, too. Scales of inputs are not among them.
    let packed = kinds.values().flatten().filter_map(|(name, module)| {
        let weight = module.weight.as_ref().filter(|weight| weight.is_certain())?;
        let form = (weight.component, &weight.dtype, weight.shape.len());
        Some((*name, &module.parts, form))
    });
    missing.extend(missing_parts(packed));
    for (tensor, part) in missing {
        found.add(MismatchKind::MissingSibling, &tensor, "", "", part.name);
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
    for (name, TensorInfo { dtype, shape, .. }) in all_tensors(headers) {
        let (module, component) = names.read(name).split();
        // A module is the start of a name, which lives longer than its facts.
        let module = &name[..module.len()];
        // FP-Quant stores the other form of its weights as an empty tensor.
        let is_empty = shape.contains(&0);
        if component.is_weights() && !is_empty {
            modules.entry(module).or_default().weight =
                Some(PackedWeight { component, dtype, shape });
        } else if component.is_stored_for_each_weight() {
            let form = (dtype, shape.len());
            modules.entry(module).or_default().parts.insert(component, form);
        } else if component.is_state_of_weight() {
            modules.entry(module).or_default().states.insert(component);
        }
    }
    // A weight of which all parts are gone has only its dtype.
    let is_packed = |weight: &PackedWeight| weight.is_certain() && !weight.component.is_bare();
    modules.retain(|_, module| {
        module.evidence().next().is_some() || module.weight.as_ref().is_some_and(is_packed)
    });
    let mut kinds = BTreeMap::<_, Modules<'_>>::new();
    for (name, module) in modules {
        kinds.entry(NamePattern::new(name).text).or_default().insert(name, module);
    }
    kinds
}

/// The modules with a weight, which show what others lack.
struct KnownWeights<'m> {
    /// A weight next to each part.
    weights: BTreeMap<&'static Component, &'static Component>,
    /// The packed weight next to some parts.
    packed: BTreeMap<&'m Parts, &'static Component>,
}

impl<'m> KnownWeights<'m> {
    fn new(kinds: &'m BTreeMap<String, Modules<'_>>) -> Self {
        let mut found = Self { weights: BTreeMap::new(), packed: BTreeMap::new() };
        for module in kinds.values().flat_map(Modules::values) {
            let Some(weight) = &module.weight else { continue };
            for part in module.evidence() {
                found.weights.entry(part).or_insert(weight.component);
            }
            if weight.is_certain() {
                found.packed.entry(&module.parts).or_insert(weight.component);
            }
        }
        found
    }

    /// Returns the weight that a module lacks, and the part that shows it.
    fn of(&self, module: &PackedModule) -> Option<Shown> {
        let named = |weight: &&'static Component| weight.name_in_module();
        // The part belongs to weights in every method that uses its name.
        let certain = || module.evidence().filter(|part| part.is_part_of_weights());
        let next_to = certain().find_map(|part| Some((named(self.weights.get(part)?), part)));
        // Another module is packed with the same parts. A vector alone may be anything.
        let first = module.parts.iter().next();
        let is_telling = |part: &Component, sides: usize| sides > 1 || part.name.contains("weight");
        let are_telling = module.parts.len() > 1
            || first.is_some_and(|(part, (_, sides))| is_telling(part, *sides));
        let same = || {
            if !are_telling {
                return None;
            }
            let weight = self.packed.get(&module.parts)?;
            Some((named(weight), *first?.0))
        };
        // Another module is packed by a method that has the part.
        let by_method = || {
            certain().find_map(|part| {
                let packed = self.packed.values().copied();
                Some((packed_with(part, packed)?, part))
            })
        };
        // No module is packed, and a method has all of these parts.
        let alone = || {
            if !are_telling || !self.packed.is_empty() {
                return None;
            }
            let part = certain().next()?;
            let parts: Vec<_> = module.parts.keys().copied().collect();
            Some((packed_by(&parts)?, part))
        };
        next_to.or_else(same).or_else(by_method).or_else(alone)
    }
}

/// Returns the parts that one of several modules lacks and all others with a weight of the same form have.
fn missing_parts<'m, F: Ord>(
    modules: impl Iterator<Item = (&'m str, &'m Parts, F)>,
) -> BTreeMap<String, &'static Component> {
    let mut forms = BTreeMap::<_, BTreeMap<_, Vec<_>>>::new();
    for (name, parts, form) in modules {
        forms.entry(form).or_default().entry(parts).or_default().push(name);
    }
    let mut missing = BTreeMap::new();
    for kinds in forms.values() {
        let usual = kinds.iter().max_by_key(|(_, modules)| modules.len());
        let Some((usual, _)) = usual.filter(|(_, modules)| modules.len() >= MIN_MODULES) else {
            continue;
        };
        for (parts, modules) in kinds {
            let is_subset = parts.iter().all(|part| usual.get(part.0) == Some(part.1));
            let ([module], true) = (&modules[..], is_subset) else { continue };
            for part in usual.keys().filter(|part| !parts.contains_key(*part)) {
                missing.insert(format!("{module}{}", part.name_in_module()), *part);
            }
        }
    }
    missing
}
