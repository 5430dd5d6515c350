//! The verification: evaluates a layout with the recipe of a model, and compares the result with the stored parts.

use std::collections::{BTreeMap, BTreeSet};

use super::METHODS;
use super::invert::{Described, Ranges};
use super::layout::{
    Condition, Flag, GROUPS, Grouping, LayoutPart, Method, Need, PackedLayout, PartShape, Stored,
};
use super::names::methods_of;
use super::problem::{Problem, first};
use super::term::{Range, Side, Term, Units};
use crate::count::config::{KnownSides, ModuleSchemes, Scheme};
use crate::count::module::{Component, ComponentTensor, Module, without_star};

/// The settings of a recipe that concern the parts of all packed modules.
#[derive(Debug, Default)]
pub(crate) struct Recipe {
    /// `quant_method`.
    pub(crate) method: String,
    /// The method with its format, such as `awq:gemm`.
    pub(crate) name: String,
    /// The numbers and flags, by their keys.
    pub(crate) numbers: BTreeMap<&'static str, u64>,
}

/// A part that contradicts the recipe.
pub(crate) struct Difference {
    /// The end of the tensor name, after the module.
    pub(crate) part: String,
    pub(crate) kind: DifferenceKind,
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
    let Ok(group_size) = schemes.group_size() else { return Vec::new() };
    let stated = Scheme { bits: schemes.bits(), group_size, ..Scheme::default() };
    // The scheme of a pattern overrides only what it states.
    let is_whole = !schemes.have_patterns();
    let whole = schemes.choose(1, |scheme| Some(*scheme).filter(|_| is_whole)).ok().flatten();
    let scheme = whole.filter(|whole| whole.bits == stated.bits).unwrap_or(stated);
    let configured = Some(&*recipe.method);
    let mut best: Option<Vec<Difference>> = None;
    for method in module.tensors.iter().flat_map(|(component, _)| methods_of(component)) {
        let is_configured = method.is_named(configured);
        let problem = &Problem { module, known, configured, is_configured };
        for layout in method.layouts.iter().filter(|layout| recipe.selects(method, layout)) {
            let holds = |condition: Condition| condition(problem, scheme.bits).unwrap_or(false);
            let Some(weights) = first(module, layout.weights().names) else { continue };
            if !(layout.weights().dtypes)(&weights.1.dtype) || !layout.condition.is_none_or(holds) {
                continue;
            }
            for evaluation in Evaluation::all(recipe, layout, weights, scheme) {
                let found = evaluation.compare(module);
                if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                    best = Some(found);
                }
            }
        }
    }
    best.unwrap_or_default()
}

impl Recipe {
    /// Returns whether modules of this recipe may have a layout.
    fn selects(&self, method: &Method, layout: &PackedLayout) -> bool {
        if !layout.recipes.is_empty() {
            return layout.recipes.split_ascii_whitespace().any(|name| name == self.name);
        }
        // Only the format distinguishes the layouts of methods with a common name.
        let is_named = |method: &&Method| method.is_named(Some(&self.method));
        is_named(&method) && METHODS.iter().filter(is_named).count() == 1
    }

    /// Returns whether the recipe demands a part, or excludes it; `None` if it does not say.
    fn demands(&self, part: &LayoutPart) -> Option<bool> {
        let flag = |key| self.numbers.get(key).map(|&number| number > 0);
        match (part.stored, part.need) {
            (Stored::By(name), _) => Some(true).filter(|_| self.name == name),
            (Stored::If(key), _) => flag(key),
            (Stored::Unless(key), _) => flag(key).map(|is_set| !is_set),
            (Stored::Always, _) | (Stored::AsNeeded, Need::Required | Need::Distinctive) => {
                Some(true)
            }
            (Stored::AsNeeded, Need::Absent) => Some(false),
            (Stored::AsNeeded, Need::Optional) => None,
        }
    }
}

impl PackedLayout {
    /// Returns whether the format states the size of groups, and not the recipe.
    fn has_fixed_groups(&self) -> bool {
        self.groups.is_some_and(|Grouping { of, sizes, .. }| {
            sizes.len() == 1 || !sizes.is_empty() && of != Side::Inputs
        })
    }
}

/// The evaluation of a layout with one number of bits, group size and scheme.
struct Evaluation<'a> {
    recipe: &'a Recipe,
    layout: &'static PackedLayout,
    weights: &'a ComponentTensor,
    scheme: Scheme,
    bits: u64,
    group: Option<u64>,
    is_transposed: bool,
}

impl<'a> Evaluation<'a> {
    /// Returns the evaluations with all numbers that the recipe leaves open.
    fn all(
        recipe: &'a Recipe,
        layout: &'static PackedLayout,
        weights: &'a ComponentTensor,
        scheme: Scheme,
    ) -> Vec<Self> {
        let bits = if let [only] = layout.bits { Some(*only) } else { scheme.bits };
        let Some(bits) = bits else { return Vec::new() };
        let sizes = layout.groups.map_or(&[][..], |grouping| grouping.sizes);
        let groups: Vec<_> = if layout.has_fixed_groups() {
            sizes.iter().copied().map(Some).collect()
        } else {
            vec![scheme.group_size]
        };
        let orders = if layout.has(Flag::MayBeTransposed) { &[false, true][..] } else { &[false] };
        let mut all = Vec::new();
        for group in groups {
            all.extend(orders.iter().map(|&is_transposed| Self {
                recipe,
                layout,
                weights,
                scheme,
                bits,
                group,
                is_transposed,
            }));
        }
        all
    }

    /// Derives the sides from the weights alone, and compares all other parts.
    fn compare(&self, module: &Module<'_>) -> Vec<Difference> {
        let stated =
            |key: &str| self.recipe.numbers.get(key).copied().or_else(|| self.scheme.number(key));
        let weights = self.layout.weights();
        let (mut ranges, mut found) = (Ranges::NEW, Vec::new());
        for (side, key) in self.layout.stated {
            if let Some(length) = stated(key).filter(|&length| length > 0) {
                ranges.set(*side, Range::exactly(length), key);
            }
        }
        let (_, tensor) = self.weights;
        let units = weights.units(tensor, self.bits, &stated);
        let inverted = weights.shape.alternatives().iter().find_map(|shape| {
            let (mut ranges, shape) = (ranges, Described::new(tensor, shape, self.is_transposed)?);
            ranges.restrict_by(weights, &shape, &units, "")?;
            Some(ranges)
        });
        let Some(mut ranges) = inverted else {
            return self.differ(weights, self.weights, &ranges, &units).into_iter().collect();
        };
        if ranges.relate_size(self.layout.size).is_none() {
            return found;
        }
        self.divide(&mut ranges);
        for part in &self.layout.parts()[1..] {
            let stored = first(module, part.names);
            let kind = match (self.recipe.demands(part), stored) {
                (Some(true), None) => Some(DifferenceKind::Missing),
                (Some(false), Some(_)) => Some(DifferenceKind::Spare),
                _ => None,
            };
            if let Some(kind) = kind {
                let keys = match part.stored {
                    Stored::If(key) | Stored::Unless(key) => key.to_owned(),
                    _ => "quant_method".to_owned(),
                };
                let part =
                    stored.map_or_else(|| self.missing_name(part), |(found, _)| end_of(found));
                found.push(Difference { part, kind, keys });
            }
            let Some(stored) = stored.filter(|_| part.need != Need::Absent) else { continue };
            let units = part.units(&stored.1, self.bits, &stated);
            found.extend(self.compare_part(part, stored, &mut ranges, &units));
        }
        let mut parts = BTreeSet::new();
        found.retain(|Difference { part, kind, .. }| {
            parts.insert((part.clone(), matches!(kind, DifferenceKind::Shape { .. })))
        });
        found
    }

    /// Returns the name of a missing part. The names of parts of stacked experts are in the same order as those of the
    /// weights.
    fn missing_name(&self, part: &LayoutPart) -> String {
        let names = self.layout.weights().names;
        let at = names.iter().position(|name| without_star(name) == self.weights.0.name);
        let at = at.filter(|_| names.len() == part.names.len());
        let name = part.names[at.unwrap_or_default()];
        name.strip_prefix('*').map_or_else(|| format!(".{name}"), str::to_owned)
    }

    /// Derives the number of groups.
    fn divide(&self, ranges: &mut Ranges) {
        let Some((grouping, group)) = self.layout.groups.zip(self.group) else { return };
        let Range { low, high } = ranges.get(grouping.of);
        if ranges.get(grouping.of).is_bounded() {
            let range = Range { low: low.div_ceil(group), high: high.div_ceil(group) };
            ranges.set(Side::Groups, range, "group_size");
        }
    }

    fn compare_part(
        &self,
        part: &'static LayoutPart,
        stored: &ComponentTensor,
        ranges: &mut Ranges,
        units: &Units<'_>,
    ) -> Option<Difference> {
        // A stated group size excludes scales per block or tensor.
        let has_groups = |shape: &&PartShape| matches!(shape, PartShape::Sides(terms) if terms.contains(&GROUPS));
        let shapes = part.shape.alternatives();
        let is_grouped = self.group.is_some() && shapes.iter().any(|shape| has_groups(&shape));
        let mut shapes = shapes.iter().filter(|shape| !is_grouped || has_groups(shape));
        let terms = part.shape.alternatives().iter().flat_map(PartShape::terms);
        if terms.filter_map(|term| term.key()).any(|key| (units.stated)(key).is_none()) {
            return None;
        }
        let fitting = shapes.find_map(|shape| {
            let shape = Described::new(&stored.1, shape, self.is_transposed)?;
            let mut pairs = shape.pairs();
            let fits = |(dimension, term): (u64, Term)| {
                let range = expected(term, ranges, units);
                range.is_none_or(|range| (range.low..=range.high).contains(&dimension))
            };
            (shape.is_stacked(ranges.stack) && pairs.all(fits)).then_some(shape)
        });
        let Some(shape) = fitting else { return self.differ(part, stored, ranges, units) };
        // A side that only this part shows, such as the groups of a recipe without a group size.
        for (dimension, term) in shape.pairs() {
            let side = term.side().filter(|side| !ranges.get(*side).is_bounded());
            if let Some((side, range)) = side.zip(term.invert(dimension, units)) {
                ranges.set(side, range, stored.0.name);
            }
        }
        None
    }

    /// Describes the difference between the shape of a part and the first shape of its declaration.
    fn differ(
        &self,
        part: &'static LayoutPart,
        (component, tensor): &ComponentTensor,
        ranges: &Ranges,
        units: &Units<'_>,
    ) -> Option<Difference> {
        let shape = part.shape.alternatives().first()?;
        let mut terms = shape.terms().to_vec();
        if self.is_transposed {
            terms.reverse();
        }
        let start = tensor.shape.len().saturating_sub(terms.len());
        let stored = tensor.shape[start..].iter().copied().map(Some).chain(std::iter::repeat(None));
        let expected = terms.iter().zip(stored).map(|(term, stored)| {
            expected(*term, ranges, units).map(|range| range.high).or(stored).unwrap_or_default()
        });
        let mut keys: BTreeSet<_> = self.layout.keys.iter().copied().collect();
        keys.extend(terms.iter().flat_map(|term| self.keys(*term, ranges, part)));
        let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
        let keys = if keys.is_empty() { "quant_method".to_owned() } else { keys };
        let kind =
            DifferenceKind::Shape { expected: expected.collect(), stored: tensor.shape.clone() };
        Some(Difference { part: end_of(component), kind, keys })
    }

    /// Returns the keys of the recipe that imply a dimension.
    fn keys(&self, term: Term, ranges: &Ranges, part: &LayoutPart) -> Vec<&'static str> {
        let of_side = |side: Side| {
            let shapes = self.layout.weights().shape.alternatives().iter();
            let mut terms = shapes.flat_map(PartShape::terms).copied();
            terms.find(|term| term.side() == Some(side))
        };
        let has_choice = self.layout.bits.len() > 1;
        let bits = |term: Term| Some("bits").filter(|_| has_choice && term.has_bits());
        let own = term.key().into_iter().chain(bits(term));
        let Some(side) = term.side() else { return own.collect() };
        let source = Some(ranges.source(side)).filter(|source| !source.is_empty());
        // The dimension is the same as that of the weights.
        if part.kind.is_some() && source.is_none() && of_side(side) == Some(term) {
            return Vec::new();
        }
        let mut keys: Vec<_> = own.chain(source).collect();
        let mut side = side;
        if source == Some("group_size")
            && let Some(grouping) = self.layout.groups
        {
            side = grouping.of;
            if self.layout.has_fixed_groups() {
                keys.retain(|key| *key != "group_size");
            }
        }
        keys.extend(of_side(side).and_then(bits));
        keys
    }
}

/// Returns the end of the name of a tensor, after its module.
fn end_of(component: &Component) -> String {
    let dot = if component.is_suffix || component.is_bare() { "" } else { "." };
    format!("{dot}{}", component.name)
}

/// Returns the dimensions that a term allows; `None` for all.
fn expected(term: Term, ranges: &Ranges, units: &Units<'_>) -> Option<Range> {
    let side = term.side().map_or(Range::exactly(0), |side| ranges.get(side));
    let [low, high] = [side.low, side.high].map(|length| term.evaluate(length, units));
    let range = Range { low: low?.0, high: high?.0 };
    side.is_bounded().then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::config::{Dimensions, MetadataShapes, QuantizationConfig, Schemes};
    use crate::count::methods::{ConfiguredMethod, solve};
    use crate::count::names::components;
    use crate::formats::TensorInfo;

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
        let known = KnownSides { dimensions: &dimensions, shapes: &shapes };
        for round in 0..50_000 {
            let mut tensors: Vec<_> = (0..=random(4))
                .map(|_| {
                    let shape = (0..random(5)).map(|_| lengths[random(lengths.len())]).collect();
                    let tensor =
                        TensorInfo::new(dtypes[random(dtypes.len())].into(), shape, (0, 0));
                    (&components()[random(components().len())], tensor)
                })
                .collect();
            tensors.sort_by_key(|(component, _)| *component);
            let method = METHODS[random(METHODS.len())].names.split_ascii_whitespace().next();
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
            let names = [
                "block_rows",
                "num_codebooks",
                "nbits_per_codebook",
                "out_group_size",
                "symmetric",
            ];
            let numbers = names.map(|key| (key, lengths[random(lengths.len())]));
            let method = method.unwrap_or_default().to_owned();
            let recipe = Recipe { name: method.clone(), method, numbers: numbers.into() };
            evaluate(&recipe, &module, known, &mut schemes.of_module(name));
        }
    }
}
