//! The verification: evaluates a layout with the recipe of a model, and compares the result with the stored parts.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem;

use super::METHODS;
use super::invert::{Attempt, Ranges, StoredParts};
use super::layout::{Condition, LayoutPart, Method, Need, PackedLayout, Problem, Stored, only};
use super::names::methods_of;
use super::term::{Range, Side, Term};
use crate::count::config::{Key, KnownSides, ModuleSchemes, Scheme};
use crate::count::module::{ComponentTensor, Module, PartName};
use hf_meta_format::base::sort::Ordered;

/// The key that a finding names if no other implies a part.
const METHOD: &str = "quant_method";

/// The key that implies the number of weights of a module.
const MODEL: &str = "model_type";

/// The settings of a recipe that concern the parts of all packed modules.
#[derive(Debug, Default)]
pub(crate) struct Recipe {
    /// `quant_method`.
    pub(crate) method: String,
    /// The method with its format, such as `awq:gemm`.
    pub(crate) name: String,
    /// The numbers and flags, by their keys.
    pub(crate) numbers: BTreeMap<Key, u64>,
}

/// A part that contradicts the recipe.
pub(crate) struct Difference {
    pub(crate) kind: DifferenceKind,
    /// The end of the tensor name, after the module.
    pub(crate) part: String,
    /// The keys of the recipe that imply the part, joined by commas.
    pub(crate) keys: String,
}

pub(crate) enum DifferenceKind {
    /// The recipe demands the part.
    Missing,
    /// The recipe excludes the part.
    Spare,
    /// The recipe implies other dimensions.
    Shape { expected: Vec<u64>, stored: Vec<u64> },
}

/// Compares the parts of a module with the layouts of the recipe. Of several layouts, the one with the fewest
/// differences applies. Returns nothing if the recipe has no known layout, or leaves its numbers open.
pub(crate) fn evaluate(
    recipe: &Recipe,
    module: &Module<'_>,
    known: KnownSides<'_>,
    schemes: &mut ModuleSchemes<'_, '_>,
) -> Vec<Difference> {
    let Ok(scheme) = schemes.resolve() else { return Vec::new() };
    let configured = Some(&*recipe.method);
    let mut found = Vec::new();
    for method in module.tensors.iter().flat_map(|(component, _)| methods_of(component)) {
        let is_configured = method.is_named(configured);
        let problem = &Problem { module, known, configured, is_configured };
        for layout in method.layouts.iter().filter(|layout| recipe.selects(method, layout)) {
            let holds = |condition: Condition| condition(problem, scheme.bits).unwrap_or(false);
            if layout.condition.is_none_or(holds)
                && let Some(parts) = StoredParts::find(layout, problem)
            {
                found.extend(recipe.compare(&parts, scheme));
            }
        }
    }
    found.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

impl Recipe {
    /// Returns whether modules of this recipe may have a layout.
    fn selects(&self, method: &Method, layout: &PackedLayout) -> bool {
        if !layout.recipes.is_empty() {
            return layout.recipes.contains(&&*self.name);
        }
        // Only the format distinguishes the layouts of methods with a common name.
        let is_named = |method: &&Method| method.is_named(Some(&self.method));
        is_named(&method) && METHODS.iter().filter(is_named).count() == 1
    }

    /// Compares the parts of a module with a layout, with each combination of the numbers that the recipe leaves open.
    fn compare(&self, parts: &StoredParts<'_>, scheme: Scheme) -> Vec<Vec<Difference>> {
        let layout = parts.layout;
        let Some(bits) = only(layout.bits).or(scheme.bits) else { return Vec::new() };
        let stated = |key| self.numbers.get(&key).copied().or_else(|| scheme.number(key));
        let sizes = layout.fixed_sizes().map(|sizes| sizes.iter().copied().map(Some).collect());
        let sizes = sizes.unwrap_or_else(|| vec![scheme.group_size]);
        let attempts =
            sizes.into_iter().map(|group| Attempt { parts, bits, group, stated: &stated });
        attempts.map(|attempt| attempt.compare(self)).collect()
    }

    /// Returns whether the recipe demands a part, or excludes it; `None` if it does not say.
    fn demands(&self, part: &LayoutPart) -> Option<bool> {
        let flag = |key| self.numbers.get(&key).map(|&number| number > 0);
        match (part.stored, part.need) {
            (Stored::By(name), _) => (self.name == name).then_some(true),
            (Stored::If(key), _) => flag(key).filter(|is_set| *is_set),
            (Stored::Unless(key), _) => flag(key).map(|is_set| !is_set),
            (Stored::AsNeeded, Need::Absent) => Some(false),
            (Stored::AsNeeded, Need::Optional) => None,
            (Stored::AsNeeded, Need::Required | Need::Distinctive | Need::Written) => Some(true),
        }
    }
}

impl Attempt<'_> {
    /// Derives the sides from the weights alone, and compares all other parts.
    fn compare(&self, recipe: &Recipe) -> Vec<Difference> {
        let (layout, weights) = (self.parts.layout, self.parts.weights);
        let Some(mut ranges) = self.stated_sides() else { return Vec::new() };
        if self.restrict(&mut ranges, layout.weights(), weights).is_none() {
            self.restrict_by_groups(&mut ranges);
            return self.differ(layout.weights(), weights, &ranges).into_iter().collect();
        }
        let found = self.compare_others(recipe, ranges);
        if !found.is_empty() {
            return found;
        }
        self.implied_sides(ranges).map_or(found, |ranges| self.compare_others(recipe, ranges))
    }

    /// Returns the sides that have the number of weights of the architecture; `None` if the packed weights have another
    /// number.
    ///
    /// Sixteen rows of words with eight values each hold 121 to 128 inputs, and a `g_idx` of 127 fits. The module of the
    /// loader has 128 (`_register_gptq_buffers` in `nn_modules/qlinear/__init__.py` of GPTQModel), and transformers raises
    /// an error for parts of other shapes (`set_param_for_module` in `core_model_loading.py`, 5.23).
    fn implied_sides(&self, mut ranges: Ranges) -> Option<Ranges> {
        // A padded side is longer than the one of the module, unless a part states its length.
        let states_length = |name| self.parts.problem.module.find(name).is_some();
        let mut pads = self.parts.layout.pads.iter();
        if !pads.all(|pad| pad.unless.is_some_and(states_length)) {
            return None;
        }
        let weights = Range::exactly(self.parts.problem.known.expected?);
        ranges.restrict(Side::Weights, weights, MODEL)?;
        ranges.relate_size(self.parts.layout.size)?;
        Some(ranges)
    }

    /// Compares all parts but the weights with the ranges of the sides.
    fn compare_others(&self, recipe: &Recipe, mut ranges: Ranges) -> Vec<Difference> {
        let mut found = Vec::new();
        let layout = self.parts.layout;
        let groups = layout.groups.zip(self.group);
        let divided = ranges.relate_size(layout.size).and_then(|()| match groups {
            Some((grouping, group)) => ranges.divide(grouping.of, group, Key::GroupSize.name()),
            None => Some(()),
        });
        if divided.is_none() {
            return found;
        }
        for (part, stored) in self.parts.all().skip(1) {
            let kind = match (recipe.demands(part), stored) {
                (Some(true), None) => Some((DifferenceKind::Missing, self.missing_name(part))),
                (Some(false), Some((found, _))) => {
                    Some((DifferenceKind::Spare, found.name_in_module()))
                }
                _ => None,
            };
            let key = match part.stored {
                Stored::If(key) | Stored::Unless(key) => key.name(),
                _ => METHOD,
            };
            let difference = |(kind, part)| Difference { kind, part, keys: key.to_owned() };
            found.extend(kind.map(difference));
            let is_stated = |term: &Term| term.key().is_none_or(|key| (self.stated)(key).is_some());
            let is_known = part.need != Need::Absent && part.terms().all(is_stated);
            if is_known
                && let Some(stored) = stored
                && self.restrict(&mut ranges, part, stored).is_none()
            {
                found.extend(self.differ(part, stored, &ranges));
            }
        }
        let mut seen = HashSet::new();
        found.retain(|found| seen.insert((found.part.clone(), mem::discriminant(&found.kind))));
        found
    }

    /// Derives the inputs from the groups of the other parts: no number of inputs has the packed length of the weights.
    fn restrict_by_groups(&self, ranges: &mut Ranges) {
        let grouping = self.parts.layout.groups.filter(|grouping| !grouping.rounds_up);
        let Some((grouping, group)) = grouping.zip(self.group) else { return };
        let stored = self.parts.all().skip(1).filter_map(|(part, stored)| Some((part, stored?)));
        for (part, stored) in stored {
            self.restrict(ranges, part, stored);
        }
        ranges.relate_groups(grouping, group);
    }

    /// Returns the name of a missing part. Stacked experts list the names of each part in the order of the weights.
    fn missing_name(&self, part: &LayoutPart) -> String {
        let names = self.parts.layout.weights().names;
        let at =
            names.iter().position(|name| PartName::parse(name).text == self.parts.weights.0.name);
        let at = if names.len() == part.names.len() { at } else { None };
        let PartName { text, is_suffix, .. } = PartName::parse(part.names[at.unwrap_or_default()]);
        if is_suffix { text.to_owned() } else { format!(".{text}") }
    }

    /// Describes the difference between the shape of a part and the first shape of its declaration.
    fn differ(
        &self,
        part: &'static LayoutPart,
        (component, tensor): &ComponentTensor,
        ranges: &Ranges,
    ) -> Option<Difference> {
        let (units, terms) = (self.units(tensor), part.shape.alternatives().first()?.terms());
        let start = tensor.shape.len().saturating_sub(terms.len());
        let stored = tensor.shape[start..].iter().copied().map(Some).chain(std::iter::repeat(None));
        let expected = terms.iter().zip(stored).map(|(term, stored)| {
            let side = term.side().map_or(0, |side| ranges.get(side).high);
            let expected = if side < u64::MAX { term.evaluate(side, &units) } else { None };
            expected.or(stored).unwrap_or_default()
        });
        let expected: Vec<_> = expected.collect();
        let mut keys: BTreeSet<_> = self.parts.layout.keys.iter().map(|key| key.name()).ordered();
        keys.extend(terms.iter().flat_map(|term| self.keys(*term, ranges, part)));
        let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
        let keys = if keys.is_empty() { METHOD.to_owned() } else { keys };
        // The writer rounds a dimension that the layout does not round.
        let is_rounded = expected == tensor.shape;
        let kind = DifferenceKind::Shape { expected, stored: tensor.shape.clone() };
        (!is_rounded).then(|| Difference { kind, part: component.name_in_module(), keys })
    }

    /// Returns the keys of the recipe that imply a dimension.
    fn keys(&self, term: Term, ranges: &Ranges, part: &LayoutPart) -> Vec<&'static str> {
        let layout = self.parts.layout;
        let of_weights = |side| layout.weights().terms().find(|term| term.side() == Some(side));
        let source = term.side().and_then(|side| {
            let source = ranges.source(side);
            let is_key =
                [Key::GroupSize.name(), MODEL].contains(&source) || layout.is_stated(source);
            // Other parts may restrict a side that follows from the weights.
            let is_implied = is_key || of_weights(side).is_none() && !source.is_empty();
            is_implied.then_some(source)
        });
        let mut side = term.side();
        // The dimension is the same as that of the weights.
        if part.kind.is_some() && source.is_none() && side.and_then(of_weights) == Some(&term) {
            return Vec::new();
        }
        let is_group_size = source == Some(Key::GroupSize.name());
        if is_group_size {
            side = layout.groups.map(|grouping| grouping.of);
        }
        let has_choice = layout.bits.len() > 1;
        let mut terms = [Some(&term), side.and_then(of_weights)].into_iter().flatten();
        let has_bits = has_choice && terms.any(|term| term.has_bits());
        let bits = has_bits.then_some(Key::Bits);
        let is_fixed = is_group_size && layout.fixed_sizes().is_some();
        let source = if is_fixed { None } else { source };
        let keys = [term.key(), bits].into_iter().flatten().map(Key::name);
        keys.chain(source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::config::{Dimensions, MetadataShapes, QuantizationConfig, Schemes};
    use crate::count::methods::{ConfiguredMethod, solve};
    use crate::count::names::COMPONENTS;
    use hf_meta_format::formats::TensorInfo;

    /// No shape may overflow, divide by zero or take long.
    #[test]
    fn hostile_shapes_are_solved_and_evaluated() {
        let lengths = [0, 1, 2, 3, 64, u64::MAX, u64::MAX / 2, 1 << 32, 1 << 63];
        let dtypes = ["U8", "I8", "I16", "I32", "I64", "F16", "F32", "F8_E4M3", "F8_E8M0", "F4"];
        let mut state = 1_u64;
        let mut random = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % end
        };
        let (dimensions, shapes) = (Dimensions::default(), MetadataShapes::default());
        let known = KnownSides { dimensions: &dimensions, shapes: &shapes, expected: None };
        for round in 0..50_000 {
            let mut tensors: Vec<_> = (0..=random(4))
                .map(|_| {
                    let shape = (0..random(5)).map(|_| lengths[random(lengths.len())]).collect();
                    let tensor =
                        TensorInfo::new(dtypes[random(dtypes.len())].into(), shape, (0, 0));
                    (&COMPONENTS[random(COMPONENTS.len())], tensor)
                })
                .collect();
            tensors.sort_by_key(|(component, _)| *component);
            let method = METHODS[random(METHODS.len())].names.first().copied();
            let (bits, group) = (1 + random(8), lengths[random(lengths.len())]);
            let json = format!(
                r#"{{"quant_method":"{}","bits":{bits},"group_size":{group}}}"#,
                method.unwrap_or_default()
            );
            let config =
                QuantizationConfig::from_section(&serde_json::from_str(&json).unwrap()).unwrap();
            let mut schemes = Schemes::new(&config);
            let name = &*format!("m{round}");
            let module = Module { name, tensors: &tensors };
            let _ =
                solve(&module, known, &ConfiguredMethod::new(method), &mut schemes.of_module(name));
            let keys = [
                Key::BlockRows,
                Key::Codebooks,
                Key::CodebookBits,
                Key::OutGroupSize,
                Key::Symmetric,
            ];
            let numbers = keys.map(|key| (key, lengths[random(lengths.len())]));
            let method = method.unwrap_or_default().to_owned();
            let recipe = Recipe { name: method.clone(), method, numbers: numbers.into() };
            evaluate(&recipe, &module, known, &mut schemes.of_module(name));
        }
    }
}
