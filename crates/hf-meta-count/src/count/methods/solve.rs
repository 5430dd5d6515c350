//! The count of a module: finds the layout, the bits and the group size that fit the shapes.
//!
//! A method declares how its writer stores a matrix of outputs × inputs. Here the declaration is read backwards: given the
//! stored shapes, which outputs and inputs lead to them? [`invert`](super::invert) turns each stored dimension into a range
//! of one side and intersects the ranges of all parts; an empty range refutes the attempt. What is left is the choice
//! between attempts: each number of bits that the layout allows, and each scheme of the configuration.
//!
//! A GPTQ module stores `qweight` [512, 4096], `qzeros` [32, 512] and `scales` [32, 4096], where a word has 32 bits.
//! The scales show 32 groups and 4,096 outputs.
//!
//! - With 4 bits, a word holds 8 values: the zeros show 512 × 8 = 4,096 outputs, as the scales do, and the weights
//!   512 × 8 = 4,096 inputs. The module has 4,096 × 4,096 = 16,777,216 weights in groups of 4,096 / 32 = 128.
//! - With 8 bits, the zeros show 512 × 4 = 2,048 outputs. The scales contradict that, so 8 bits are refuted.
//!
//! If several attempts are left, one whose size the configuration implies is preferred, then one that rounds no dimension,
//! because packers seldom pad. Attempts that are equal in this must agree about the size. Otherwise the module is
//! ambiguous, and it is counted as stored: a wrong count is worse than an uncertain one.

use super::METHODS;
use super::invert::{Attempt, Ranges, StoredParts};
use super::layout::{Flag, Method, Need, PackedLayout, Pad, Problem, only};
use super::names::methods_of;
use super::term::Side;
use crate::count::UnresolvedReason::{
    self, AmbiguousScheme, ConflictingComponents, ImplausibleSize, MissingComponents,
};
use crate::count::config::{Key, KnownSides, ModuleSchemes, Scheme};
use crate::count::module::{Component, Module, divide};
use crate::count::{Evidence, Packing};
use hf_meta_format::formats::TensorInfo;

/// The reason why a layout does not fit; `None` if the module may belong to another one.
type Failure = Option<UnresolvedReason>;

impl StoredParts<'_> {
    /// Checks that the needed parts are stored with possible dtypes. Plain weights of unquantized models lack the other
    /// parts.
    fn check(&self) -> Result<(), Failure> {
        let layout = self.layout;
        // `qweight` alone shows that a module is packed; `weight` alone is that of any model.
        let is_certain = !layout.has(Flag::Shared)
            && (layout.has(Flag::NeedsMethod) || !self.weights.0.is_plain());
        let missing = if is_certain { Some(MissingComponents) } else { None };
        for (part, stored) in self.all() {
            let may_be = |dtype| part.need != Need::Absent && (part.dtypes)(dtype);
            match (stored, part.need) {
                (None, Need::Distinctive) => return Err(None),
                (None, Need::Required) => return Err(missing),
                (Some((_, tensor)), _) if !may_be(&tensor.dtype) => return Err(layout.conflict()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The lengths of all sides.
type Lengths = [u64; Side::COUNT];

/// The certainty of a length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    /// The side may be padded by an unknown amount.
    UpperBound,
    /// The side may have several lengths, which are dimensions of the model or sides of other matrices.
    Several,
    /// The side ends with a word and is a multiple of 32, as nearly all are.
    Plausible,
    /// The shapes determine the length, or a dimension of the model does.
    Known,
    /// The configuration implies the number of weights, and the shapes fit it.
    Expected,
}

/// The logical size of a module's weights.
#[derive(Clone, Copy)]
pub(in crate::count) struct Solved {
    pub(in crate::count) method: &'static Method,
    /// The component that contains the weights.
    pub(in crate::count) weights: &'static Component,
    /// The number of weights.
    pub(in crate::count) parameters: u64,
    pub(in crate::count) packing: Packing,
    pub(in crate::count) evidence: Evidence,
    /// True if the packer may have padded the weights by an unknown amount.
    pub(in crate::count) is_padded: bool,
    certainty: Certainty,
    /// True if no dimension was rounded.
    is_whole: bool,
}

impl Solved {
    /// Returns the more certain of two results, this one if they are equally certain. If the other has another size, the
    /// result is only certain if a dimension shows it, and none shows the other.
    fn compared_with(self, other: Self) -> Self {
        let is_other = self.certainty < other.certainty;
        let (best, worse) = if is_other { (other, self) } else { (self, other) };
        let is_possible = best.certainty == worse.certainty
            || best.certainty <= Certainty::Plausible
            || worse.certainty == Certainty::Several && best.certainty < Certainty::Expected;
        let is_doubtful = is_possible && best.parameters != worse.parameters;
        Self { is_padded: best.is_padded || is_doubtful, ..best }
    }

    /// Returns the order of preference: a size that the configuration implies, then one without rounding.
    fn preference(&self) -> (bool, bool) {
        (self.certainty == Certainty::Expected, self.is_whole)
    }
}

/// Schemes agree if they imply the same size and bits.
impl PartialEq for Solved {
    fn eq(&self, other: &Self) -> bool {
        (self.packing, self.parameters) == (other.packing, other.parameters)
    }
}

impl Attempt<'_> {
    /// Derives the number of weights, if the parts fit.
    fn solve(&self, method: &'static Method) -> Result<Solved, UnresolvedReason> {
        let StoredParts { layout, problem: Problem { module, known, .. }, .. } = self.parts;
        let ranges = self.invert().ok_or(ConflictingComponents)?;
        let (mut lengths, mut certainty) = ([1; Side::COUNT], Certainty::Known);
        for &side in layout.size {
            let (length, found) = self.settle(side, &ranges).ok_or(ConflictingComponents)?;
            lengths[side as usize] = length;
            certainty = certainty.min(found);
        }
        // Before the padding is removed, because the writer rounds what it has padded.
        let is_whole = self.is_whole(&lengths);
        let expected = known.expected.filter(|&weights| self.fits(weights, &ranges));
        for pad in layout.pads {
            let length = &mut lengths[pad.side as usize];
            let (unpadded, found) = self.unpadded(*length, pad, &ranges);
            *length = unpadded;
            certainty = certainty.min(found);
        }
        let parameters = self.product(&ranges, |side| lengths[side as usize]);
        let (weights, tensor) = self.parts.weights;
        let mut parameters =
            parameters.filter(|&size| is_plausible(size, tensor)).ok_or(ImplausibleSize)?;
        // torchao writes the original shape into the metadata of the file, which is more reliable than the configuration.
        if let Some(&stated) = known.shapes.elements.get(module.name) {
            // Padding only adds weights.
            if stated > parameters {
                return Err(ConflictingComponents);
            }
            (parameters, certainty) = (stated, Certainty::Known);
        } else if let Some(expected) = expected {
            (parameters, certainty) = (expected, Certainty::Expected);
        }
        let has_bits = !layout.has(Flag::WithoutBits);
        let bits = if has_bits { u32::try_from(self.bits).ok() } else { None };
        Ok(Solved {
            method,
            weights,
            parameters,
            packing: Packing { layout: layout.name, bits },
            evidence: layout.evidence(&ranges),
            is_padded: certainty <= Certainty::Several
                || certainty != Certainty::Expected && self.may_be_padded(&lengths, &ranges),
            certainty,
            is_whole,
        })
    }

    /// Returns the number of weights for the lengths of the sides; `None` if it overflows.
    fn product(&self, ranges: &Ranges, length: impl Fn(Side) -> u64) -> Option<u64> {
        let size = self.parts.layout.size;
        // The number of all weights includes those of a stack.
        let stack = if *size == [Side::Weights] { 1 } else { ranges.stack };
        let sides = size.iter().map(|&side| length(side));
        sides.chain([stack]).try_fold(1_u64, u64::checked_mul)
    }

    /// Returns whether the writer may have stored a number of weights in these shapes: the sides that are not exact
    /// have lengths for it.
    fn fits(&self, weights: u64, ranges: &Ranges) -> bool {
        let layout = self.parts.layout;
        // A padded side may have had any length that the writer pads to the stored one: 897 to 1,024, for a multiple of 128.
        let low = |side| {
            let pads = layout.pads.iter().filter(|pad| pad.side == side);
            let multiple = pads.filter_map(|pad| self.multiple(pad, ranges)).max();
            (ranges.get(side).low + 1).saturating_sub(multiple.unwrap_or(1)).max(1)
        };
        let high = |side| ranges.get(side).high;
        let exact = |side| if low(side) == high(side) { high(side) } else { 1 };
        let [least, exact, most] =
            [self.product(ranges, low), self.product(ranges, exact), self.product(ranges, high)];
        least <= Some(weights)
            && most.is_some_and(|most| weights <= most)
            && exact.is_some_and(|exact| weights.is_multiple_of(exact))
    }

    /// Returns the multiple to which the writer padded a side; `None` if it did not, or if the module states the length
    /// without padding.
    fn multiple(&self, pad: &Pad, ranges: &Ranges) -> Option<u64> {
        // One group covers the whole side, whatever the multiple was.
        let groups = || ranges.get(Side::Groups).point().filter(|&groups| groups > 1);
        let implied = || divide(ranges.get(pad.side).high, groups()?);
        let block = (self.stated)(Key::BlockElements);
        let multiple = pad.to.or(block).or(self.group).or_else(implied);
        let is_stated =
            pad.unless.is_some_and(|name| self.parts.problem.module.find(name).is_some());
        multiple
            .filter(|&multiple| !is_stated && ranges.get(pad.side).high.is_multiple_of(multiple))
    }

    /// Restricts the sides by all parts; `None` if they contradict each other.
    fn invert(&self) -> Option<Ranges> {
        let layout = self.parts.layout;
        let mut ranges = self.stated_sides()?;
        for (part, stored) in self.parts.all() {
            if let Some(stored) = stored {
                self.restrict(&mut ranges, part, stored)?;
            }
        }
        ranges.relate(layout, self.group)?;
        let is_valid = ranges.stack == 1 || !layout.has(Flag::NeverStacked);
        is_valid.then_some(ranges)
    }

    /// Returns the length of a side. The last word of a row may be incomplete.
    fn settle(&self, side: Side, ranges: &Ranges) -> Option<(u64, Certainty)> {
        let known = self.parts.problem.known;
        let range = Some(ranges.get(side)).filter(|range| range.is_bounded())?;
        if let Some(length) = range.point() {
            return Some((length, Certainty::Known));
        }
        // The longest one fills the last word, so it comes before other dimensions of the model.
        let longest = Some(range.high).filter(|&high| known.is_side(high));
        // A stated group size decides among the lengths.
        let is_doubtful =
            |length| self.group.is_none() && known.has_other_rows(range.low..=range.high, length);
        let shorter = known.dimensions(range.low..=range.high - 1);
        let mut candidates = longest.into_iter().chain(shorter);
        if let Some(length) = candidates.next() {
            let is_sole = candidates.next().is_none() && !is_doubtful(length);
            let certainty = if is_sole { Certainty::Known } else { Certainty::Several };
            return Some((length, certainty));
        }
        // No dimension of the model is in the range. The longest length is taken if it looks like one: sides of models are
        // multiples of 32, or the groups fill it.
        let is_grouped = self.parts.layout.groups.is_some_and(|grouping| grouping.of == side);
        let groups = ranges.get(Side::Groups).point().filter(|&groups| is_grouped && groups > 1);
        let whole = groups.zip(self.group).and_then(|(groups, group)| groups.checked_mul(group));
        let is_plausible =
            whole == Some(range.high) || range.high.is_multiple_of(32) && !is_doubtful(range.high);
        let certainty = if is_plausible { Certainty::Plausible } else { Certainty::UpperBound };
        Some((range.high, certainty))
    }

    /// Returns whether the lengths lead to the stored dimensions without rounding.
    fn is_whole(&self, lengths: &Lengths) -> bool {
        let layout = self.parts.layout;
        let mut groups = layout.groups.iter().zip(self.group);
        groups.all(|(grouping, group)| lengths[grouping.of as usize].is_multiple_of(group))
            && self.parts.all().all(|(part, stored)| {
                let Some((_, tensor)) = stored else { return true };
                let units = self.units(tensor);
                part.terms().all(|term| {
                    let side = term.side().filter(|side| layout.size.contains(side));
                    side.is_none_or(|side| !term.is_rounded(lengths[side as usize], &units))
                })
            })
    }

    /// Returns the length of a side before it was padded: its length if a bias or norm has the same, or the largest
    /// model dimension that would be padded to it. The outputs of the head are the vocabulary.
    fn unpadded(&self, length: u64, pad: &Pad, ranges: &Ranges) -> (u64, Certainty) {
        let Problem { module, known, .. } = *self.parts.problem;
        let Some(multiple) = self.multiple(pad, ranges) else { return (length, Certainty::Known) };
        let range = length.saturating_sub(multiple - 1)..=length;
        let vocabulary =
            if pad.side == Side::Outputs { known.vocabulary(module.name) } else { None };
        if let Some(vocabulary) = vocabulary.filter(|vocabulary| range.contains(vocabulary)) {
            return (vocabulary, Certainty::Known);
        }
        let mut listed = known.dimensions(range);
        let (first, is_sole) = (listed.next(), listed.next().is_none());
        let is_certain = match first {
            // No other part of HIGGS shows its inputs, which are padded to 1,024.
            Some(first) if pad.trusts_sole && is_sole => return (first, Certainty::Known),
            _ if pad.trusts_sole => return (length, Certainty::UpperBound),
            _ if known.is_stored(length) => return (length, Certainty::Known),
            Some(first) => first == length,
            // Without a configuration, the inputs may be any that fill the last group.
            None => {
                (!known.dimensions.lengths.is_empty() || pad.to.or(self.group).is_some())
                    && pad.plausible.is_some_and(|multiple| length.is_multiple_of(multiple))
            }
        };
        let certainty = if is_certain { Certainty::Known } else { Certainty::UpperBound };
        (first.unwrap_or(length), certainty)
    }

    /// Returns whether the sides suggest padding. Each group of inputs has a scale, so packers pad the inputs to whole
    /// groups. The configuration does not list the number of inputs, but lists a dimension that would be padded to it.
    fn may_be_padded(&self, lengths: &Lengths, ranges: &Ranges) -> bool {
        let known = self.parts.problem.known;
        let [outputs, inputs] = [Side::Outputs, Side::Inputs].map(|side| lengths[side as usize]);
        let is_matrix = self.parts.layout.size == [Side::Outputs, Side::Inputs];
        let groups = ranges.get(Side::Groups).point().filter(|&groups| is_matrix && groups > 1);
        let group = groups.and_then(|groups| divide(inputs, groups));
        // Other quotients are not group sizes: scales may cover blocks of rows, or the whole matrix.
        let Some(group) = group.filter(|group| (8..=1024).contains(group)) else { return false };
        let mut listed = known.dimensions(inputs.saturating_sub(group - 1)..=inputs);
        known.is_dimension(outputs)
            && !known.is_stored(inputs)
            && listed.next().is_some_and(|side| side < inputs)
    }
}

/// Returns whether a byte contains at most 32 weights. No method packs more densely.
fn is_plausible(parameters: u64, weights: &TensorInfo) -> bool {
    const MAX_WEIGHTS_PER_BIT: u64 = 4;

    let bits = weights.elements().zip(weights.dtype.bits());
    bits.is_some_and(|(elements, bits)| {
        parameters <= elements.saturating_mul(bits).saturating_mul(MAX_WEIGHTS_PER_BIT)
    })
}

/// The steps of an attempt to solve a layout, at about 2 ns each.
const STEPS: usize = 100;

/// Solves a layout: with the bits and the group size of the recipe, or else with those that fit.
fn solve_layout(
    method: &'static Method,
    layout: &'static PackedLayout,
    problem: &Problem<'_>,
    schemes: &mut ModuleSchemes<'_, '_>,
) -> Result<Solved, Failure> {
    if layout.has(Flag::NeedsMethod) && !problem.is_configured {
        return Err(None);
    }
    let parts = &StoredParts::find(layout, problem).ok_or(None)?;
    parts.check()?;
    // Solved modules are kept by their shapes, unless the result depends on the name: the head has another size, and the
    // metadata of a file lists modules.
    let is_padded = layout.pads.iter().any(|pad| pad.side == Side::Outputs);
    schemes.depend_on_name |= is_padded || problem.known.shapes.list_modules();
    if let Some(holds) = layout.condition
        && !holds(problem, schemes.bits())?
    {
        return Err(None);
    }
    let mut attempts = Attempts { method, parts, failed: layout.conflict() };
    // The recipe comes first, if the layout leaves it a choice. The shapes take precedence over a scheme that does
    // not fit them.
    let needs_recipe = layout.has(Flag::NeedsRecipe);
    if needs_recipe || layout.is_open() {
        let chosen = schemes.choose(STEPS, |scheme| {
            let (bits, group) = layout.numbers(scheme)?;
            attempts.solve(bits, group, scheme)
        });
        match chosen {
            Ok(Some(chosen)) => return Ok(chosen),
            _ if needs_recipe && layout.has(Flag::WithoutBits) => {
                return Err(Some(AmbiguousScheme));
            }
            _ => {}
        }
    }
    let (best, is_ambiguous) = attempts.solve_all_bits()?;
    // Two widths that round nothing both fit. If both round, each is doubtful, and the other failures say more.
    if needs_recipe && best.certainty != Certainty::Expected || is_ambiguous && best.is_whole {
        return Err(Some(AmbiguousScheme));
    }
    if is_ambiguous { Err(attempts.failed) } else { Ok(best) }
}

/// The attempts to solve a module with a layout.
struct Attempts<'a> {
    method: &'static Method,
    parts: &'a StoredParts<'a>,
    /// The reason of the last attempt that failed, except for a conflict, which says the least.
    failed: Failure,
}

impl Attempts<'_> {
    fn solve(&mut self, bits: u64, group: Option<u64>, scheme: &Scheme) -> Option<Solved> {
        let group = group.or(only(self.parts.layout.sizes()));
        let stated = |key| scheme.number(key);
        let attempt = Attempt { parts: self.parts, bits, group, stated: &stated };
        let solved = attempt.solve(self.method);
        let reason = solved.as_ref().err().copied();
        // Most attempts conflict, because they have the wrong width.
        self.failed = reason.filter(|reason| *reason != ConflictingComponents).or(self.failed);
        solved.ok()
    }

    /// Tries every number of bits of the layout. Results that the configuration implies or that round no dimension are
    /// preferred, and those that remain must agree. Returns the best result, and whether they do not.
    fn solve_all_bits(&mut self) -> Result<(Solved, bool), Failure> {
        let (mut best, mut is_ambiguous) = (None::<Solved>, false);
        for &bits in self.parts.layout.bits {
            let Some(new) = self.solve(bits, None, &Scheme::default()) else { continue };
            match &best {
                Some(best) if best.preference() > new.preference() => {}
                Some(best) if best.preference() == new.preference() => {
                    is_ambiguous |= best.parameters != new.parameters;
                }
                _ => (best, is_ambiguous) = (Some(new), false),
            }
        }
        Ok((best.ok_or(self.failed)?, is_ambiguous))
    }
}

/// The quantization method of a configuration.
pub(in crate::count) struct ConfiguredMethod<'a> {
    /// `quant_method`.
    pub(in crate::count) name: Option<&'a str>,
    /// The methods that it selects.
    methods: Vec<&'static Method>,
}

impl<'a> ConfiguredMethod<'a> {
    pub(in crate::count) fn new(name: Option<&'a str>) -> Self {
        Self { name, methods: METHODS.iter().filter(|method| method.is_named(name)).collect() }
    }
}

/// Derives the number of weights of a module with the first method that recognizes its components. The method of the
/// configuration is tried first. Of the layouts of a method, the first with the highest certainty wins. Returns `None` if no
/// method recognizes the components.
///
/// # Errors
///
/// Returns the reason of the layout that came closest.
pub(in crate::count) fn solve(
    module: &Module<'_>,
    known: KnownSides<'_>,
    configured: &ConfiguredMethod<'_>,
    schemes: &mut ModuleSchemes<'_, '_>,
) -> Result<Option<Solved>, UnresolvedReason> {
    let others = module.tensors.iter().flat_map(|(component, _)| methods_of(component));
    let others =
        others.filter(|method| !method.is_named(configured.name)).map(|method| (method, false));
    let methods = configured.methods.iter().map(|method| (method, true)).chain(others);
    let (mut failed, mut solved) = (None, None);
    for (method, is_configured) in methods {
        let problem = Problem { module, known, configured: configured.name, is_configured };
        let mut best: Option<Solved> = None;
        for layout in method.layouts {
            match solve_layout(method, layout, &problem, schemes) {
                Ok(found) => best = Some(best.map_or(found, |best| best.compared_with(found))),
                Err(reason) => failed = failed.max(reason.map(|reason| (rank(reason), reason))),
            }
        }
        if let Some(best) = best {
            // If the configuration implies another number, a later method may reach it: two methods may have parts of the
            // same names.
            if known.expected.is_none() || best.certainty == Certainty::Expected {
                return Ok(Some(best));
            }
            solved.get_or_insert(best);
        }
    }
    match failed {
        Some((_, reason)) if solved.is_none() => Err(reason),
        _ => Ok(solved),
    }
}

/// Returns the rank of a reason, the least specific first.
fn rank(reason: UnresolvedReason) -> u8 {
    match reason {
        MissingComponents => 0,
        AmbiguousScheme => 2,
        _ => 1,
    }
}

impl PackedLayout {
    /// Returns the reason if the shapes of the parts contradict each other.
    fn conflict(&self) -> Failure {
        if self.has(Flag::Shared) { None } else { Some(ConflictingComponents) }
    }

    /// Returns whether the format leaves a number to the recipe.
    fn is_open(&self) -> bool {
        let has_choice = self.bits.len() > 1 || !self.stated.is_empty();
        has_choice || self.groups.is_some_and(|grouping| grouping.sizes.is_empty())
    }

    /// Returns the bits and the group size of a scheme; `None` if the layout does not allow them.
    fn numbers(&self, scheme: &Scheme) -> Option<(u64, Option<u64>)> {
        let stated = if self.has(Flag::WithoutBits) { None } else { scheme.bits };
        let bits = stated.or(only(self.bits))?;
        // `group_size` counts inputs, and says nothing about groups of all weights.
        let is_grouped = self.groups.is_some_and(|grouping| grouping.of == Side::Inputs);
        let group = if is_grouped { scheme.group_size } else { None };
        let sizes = self.sizes();
        let is_size = group.is_none_or(|group| sizes.is_empty() || sizes.contains(&group));
        (self.bits.contains(&bits) && is_size).then_some((bits, group))
    }

    /// Returns the parts that restricted the sides last.
    fn evidence(&self, ranges: &Ranges) -> Evidence {
        Evidence::new(self.size.iter().map(|&side| {
            let source = ranges.source(side);
            (side.name(), if self.is_stated(source) { "config" } else { source })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::config::{Dimensions, MetadataShapes, QuantizationConfig, Schemes};
    use crate::count::names::split;
    use hf_meta_format::formats::Dtype;

    /// The densest packing in use is AQLM, at a quarter of a bit per weight.
    #[test]
    fn a_byte_holds_at_most_32_weights() {
        for (dtype, elements, most) in
            [(Dtype::U8, 3, 96), (Dtype::I32, 3, 4 * 96), (Dtype::F4, 2, 32)]
        {
            let tensor = TensorInfo::new(dtype, vec![elements], (0, 0));
            let fits = [most, most + 1].map(|parameters| is_plausible(parameters, &tensor));
            assert_eq!(fits, [true, false]);
        }
    }

    /// A head is padded by less than the multiple. Outputs of other modules may equal the vocabulary by chance.
    #[test]
    fn the_outputs_of_a_head_are_the_vocabulary() {
        let tensors: [(_, _, &[u64]); 2] =
            [("m.q_weight", Dtype::I32, &[4, 64]), ("m.q_invperm", Dtype::I32, &[32])];
        let tensors = tensors.map(|(name, dtype, shape)| {
            (split(name).1, TensorInfo::new(dtype, shape.to_vec(), (0, 0)))
        });
        let solved = |vocabulary: u64, name: &str| {
            let mut dimensions = Dimensions::default();
            let model = format!(r#"{{"vocab_size":{vocabulary}}}"#);
            dimensions.add_model(&serde_json::from_str(&model).unwrap());
            let (config, shapes) = (QuantizationConfig::default(), MetadataShapes::default());
            let known = KnownSides { dimensions: &dimensions, shapes: &shapes, expected: None };
            let (mut schemes, module) = (Schemes::new(&config), Module { name, tensors: &tensors });
            let mut schemes = schemes.of_module(name);
            let solved =
                solve(&module, known, &ConfiguredMethod::new(None), &mut schemes).unwrap().unwrap();
            assert!(schemes.depend_on_name);
            (solved.parameters / 32, solved.is_padded)
        };
        let lengths = [32, 33, 64, 65].map(|vocabulary| solved(vocabulary, "model.lm_head").0);
        assert_eq!(lengths, [64, 33, 64, 64]);
        let are_padded = ["lm_head", "output", "head", "q"].map(|name| solved(33, name).1);
        assert_eq!(are_padded, [false, false, false, true]);
    }
}
