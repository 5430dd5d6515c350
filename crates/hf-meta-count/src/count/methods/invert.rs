//! The inversion of layouts: every stored dimension restricts a side to a range, and the ranges of all parts are
//! intersected.
//!
//! A range is needed because writers round up. A row of 4-bit values that is stored as 512 words of 32 bits has between
//! 4,089 and 4,096 values: the last word holds one to eight of them. 32 scales of groups of 128 restrict the same side to
//! 3,969 to 4,096. The intersection is 4,089 to 4,096, and the dimensions of the model decide between these lengths.

use super::layout::{GROUPS, Grouping, LayoutPart, MAX_PARTS, PackedLayout, PartShape, Problem};
use super::term::{Range, Side, Units};
use crate::count::config::Key;
use crate::count::module::ComponentTensor;
use hf_meta_format::formats::{TensorInfo, product};

/// The tensors of a module that a layout describes.
pub(super) struct StoredParts<'a> {
    pub(super) layout: &'static PackedLayout,
    pub(super) problem: &'a Problem<'a>,
    pub(super) weights: &'a ComponentTensor,
    tensors: [StoredPart<'a>; MAX_PARTS],
}

impl<'a> StoredParts<'a> {
    /// Finds the parts of a layout in a module; `None` without weights of its dtypes.
    pub(super) fn find(layout: &'static PackedLayout, problem: &'a Problem<'a>) -> Option<Self> {
        let module = problem.module;
        let LayoutPart { names, dtypes, .. } = layout.weights();
        let weights = module.first(names).filter(|(_, tensor)| dtypes(&tensor.dtype))?;
        let mut tensors = [None; MAX_PARTS];
        for (part, found) in layout.parts().iter().zip(&mut tensors) {
            *found = module.first(part.names);
        }
        Some(Self { layout, problem, weights, tensors })
    }

    /// Returns all parts of the layout with their tensors, the weights first.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static LayoutPart, StoredPart<'a>)> {
        self.layout.parts().iter().zip(self.tensors)
    }
}

/// The tensor of a part, if it is stored.
type StoredPart<'a> = Option<&'a ComponentTensor>;

/// A layout with one number of bits and one group size, which the stored parts may fit.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) parts: &'a StoredParts<'a>,
    pub(super) bits: u64,
    pub(super) group: Option<u64>,
    /// The numbers that the recipe states, by their keys.
    pub(super) stated: &'a dyn Fn(Key) -> Option<u64>,
}

impl Attempt<'_> {
    /// Returns the numbers that the terms of a part refer to.
    pub(super) fn units(&self, tensor: &TensorInfo) -> Units<'_> {
        let stored = tensor.dtype.bits().unwrap_or(8);
        let word = self.parts.layout.word.unwrap_or(stored);
        Units { bits: self.bits, word, stored, stated: self.stated }
    }

    /// Returns the ranges of the sides that the recipe states; `None` if a side would have no length.
    pub(super) fn stated_sides(&self) -> Option<Ranges> {
        let mut ranges = Ranges::NEW;
        for (side, key) in self.parts.layout.stated {
            if let Some(length) = (self.stated)(*key) {
                ranges.restrict(*side, Range::exactly(length), key.name())?;
            }
        }
        Some(ranges)
    }

    /// Restricts the sides by the first shape of a part that fits. Returns `None`, and leaves the ranges as they are, if
    /// the part contradicts them.
    pub(super) fn restrict(
        &self,
        ranges: &mut Ranges,
        part: &'static LayoutPart,
        stored: &ComponentTensor,
    ) -> Option<()> {
        let shapes = part.shape.alternatives();
        // A stated group size excludes scales per block or tensor.
        let has_groups = |shape: &'static PartShape| shape.terms().contains(&GROUPS);
        let is_grouped = self.group.is_some() && shapes.iter().any(has_groups);
        let mut shapes = shapes.iter().filter(|shape| !is_grouped || has_groups(shape));
        let is_weights = part.kind.is_none();
        shapes.find_map(|shape| self.restrict_by(ranges, is_weights, shape, stored))
    }

    /// Restricts the sides by a shape, unless it does not fit. The stack follows from the weights.
    fn restrict_by(
        &self,
        ranges: &mut Ranges,
        is_weights: bool,
        shape: &'static PartShape,
        (component, tensor): &ComponentTensor,
    ) -> Option<()> {
        let (units, terms) = (self.units(tensor), shape.terms());
        let (dimensions, found) = shape.dimensions(tensor)?;
        let stack = if is_weights { found.unwrap_or(1) } else { ranges.stack };
        // All matrices may share a vector.
        if !found.is_none_or(|found| found == stack || found == 1 && terms.len() == 1) {
            return None;
        }
        // All sides are checked before any is restricted, so that the next alternative finds the ranges unchanged.
        let mut restricted = [None; MAX_TERMS];
        for ((term, dimension), restricted) in terms.iter().zip(dimensions).zip(&mut restricted) {
            let Range { low, high } = term.invert(dimension, &units)?;
            let Some(side) = term.side() else { continue };
            let known = ranges.get(side);
            // A stack of experts has one order of the inputs per expert.
            let may_be_order = found.is_none() && side == Side::Inputs;
            let orders = if may_be_order && low.is_multiple_of(stack) { stack } else { 1 };
            let range = Range { low: low / orders, high: high / orders };
            *restricted = Some((side, known.intersect(range)?));
        }
        ranges.stack = stack;
        let mut restricted = restricted.into_iter().flatten();
        restricted.try_for_each(|(side, range)| ranges.restrict(side, range, component.name))
    }
}

/// The maximum number of terms of a shape.
const MAX_TERMS: usize = 4;

impl PartShape {
    /// Returns the dimensions of a tensor that the terms describe, and the number of matrices in front, or `None` if the
    /// shape does not distinguish them. Returns `None` if the tensor has too few dimensions.
    fn dimensions(&self, tensor: &TensorInfo) -> Option<([u64; MAX_TERMS], Option<u64>)> {
        let mut dimensions = [0; MAX_TERMS];
        let stack = match self {
            Self::OneOf(_) => None,
            Self::Elements(_) => {
                dimensions[0] = tensor.elements()?;
                None
            }
            Self::Rows(_) => {
                let (rows, rest) =
                    tensor.shape.split_first().filter(|(_, rest)| !rest.is_empty())?;
                dimensions[..2].copy_from_slice(&[*rows, product(rest)?]);
                Some(1)
            }
            Self::Sides(terms) => {
                let start = tensor.shape.len().checked_sub(terms.len())?;
                dimensions[..terms.len()].copy_from_slice(&tensor.shape[start..]);
                Some(product(&tensor.shape[..start])?)
            }
        };
        Some((dimensions, stack))
    }
}

/// The known ranges of the sides of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Ranges {
    /// The number of stacked matrices.
    pub(super) stack: u64,
    sides: [Range; Side::COUNT],
    /// The part that restricted each side last, or the key of the recipe.
    sources: [&'static str; Side::COUNT],
}

impl Ranges {
    const NEW: Self =
        Self { stack: 1, sides: [Range::ANY; Side::COUNT], sources: [""; Side::COUNT] };

    pub(super) fn get(&self, side: Side) -> Range {
        self.sides[side as usize]
    }

    pub(super) fn source(&self, side: Side) -> &'static str {
        self.sources[side as usize]
    }

    /// Restricts a side; `None` if no length remains.
    pub(super) fn restrict(
        &mut self,
        side: Side,
        range: Range,
        source: &'static str,
    ) -> Option<()> {
        let new = self.get(side).intersect(range)?;
        if new != self.get(side) {
            self.sides[side as usize] = new;
            self.sources[side as usize] = source;
        }
        Some(())
    }

    /// Restricts groups, the side that is divided into them, and the number of weights by each other.
    pub(super) fn relate(&mut self, layout: &PackedLayout, group: Option<u64>) -> Option<()> {
        if let Some((grouping, group)) = layout.groups.zip(group) {
            self.relate_groups(grouping, group)?;
        }
        self.relate_size(layout.size)?;
        let (Some(grouping), None) = (layout.groups, group) else { return Some(()) };
        // The group size is unknown, but a side has at least one input per group.
        let groups = self.get(Side::Groups);
        let source = self.source(Side::Groups);
        self.restrict(grouping.of, Range { low: groups.low, ..Range::ANY }, source)?;
        if !grouping.rounds_up
            && let Some(groups) = groups.point()
        {
            self.restrict_to_multiples(grouping.of, groups)?;
        }
        let sides = self.get(grouping.of).point().zip(groups.point());
        sides.is_none_or(|(side, groups)| grouping.allows(side, groups)).then_some(())
    }

    /// Restricts a side to the multiples of a number that is at least 1: 240 bytes of 5 bits hold 383 or 384 inputs, of which
    /// 384 have 6 whole groups.
    fn restrict_to_multiples(&mut self, side: Side, number: u64) -> Option<()> {
        let Range { low, high } = self.get(side);
        if !self.get(side).is_bounded() {
            return Some(());
        }
        let range =
            Range { low: low.checked_next_multiple_of(number)?, high: high - high % number };
        self.restrict(side, range, self.source(side))
    }

    /// Restricts groups, and the side that is divided into them, by each other.
    pub(super) fn relate_groups(&mut self, grouping: Grouping, group: u64) -> Option<()> {
        let groups = self.get(Side::Groups);
        if !groups.is_bounded() {
            // A stated group size needs groups.
            return (!grouping.sizes.is_empty()).then_some(());
        }
        // 32 groups of 128 hold 3,969 to 4,096 inputs if the last one may be incomplete, and otherwise 4,096.
        let whole = groups.low.saturating_mul(group);
        let low = if grouping.rounds_up { (whole - group).saturating_add(1) } else { whole };
        let high = groups.high.saturating_mul(group);
        self.restrict(grouping.of, Range { low, high }, self.source(Side::Groups))?;
        let side = self.get(grouping.of);
        if !grouping.rounds_up && side.point().is_some_and(|side| !side.is_multiple_of(group)) {
            return None;
        }
        self.divide(grouping.of, group, self.source(grouping.of))
    }

    /// Restricts the groups by the side that is divided into them.
    pub(super) fn divide(&mut self, of: Side, group: u64, source: &'static str) -> Option<()> {
        let Range { low, high } = self.get(of);
        if !self.get(of).is_bounded() {
            return Some(());
        }
        let range = Range { low: low.div_ceil(group), high: high.div_ceil(group) };
        self.restrict(Side::Groups, range, source)
    }

    pub(super) fn relate_size(&mut self, sides: &[Side]) -> Option<()> {
        if sides == [Side::Weights] {
            return Some(());
        }
        // With one unknown side, the number of weights determines it; with two, it does not.
        let mut unknown = sides.iter().filter(|&&side| self.get(side).point().is_none());
        let (first, second) = (unknown.next(), unknown.next());
        let known = sides.iter().filter_map(|&side| self.get(side).point());
        let known = known.chain([self.stack]).try_fold(1_u64, u64::checked_mul);
        match (first, self.get(Side::Weights).point()) {
            _ if second.is_some() => Some(()),
            (None, _) => self.restrict(Side::Weights, Range::exactly(known?), ""),
            (Some(&side), Some(weights)) => {
                let known = known.filter(|known| weights.is_multiple_of(*known))?;
                let source = self.source(Side::Weights);
                self.restrict(side, Range::exactly(weights / known), source)
            }
            (Some(_), None) => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::prelude::*;
    use super::super::term::Range;
    use super::Ranges;

    /// 240 bytes of 5 bits hold 383 or 384 inputs, and 80 bytes 127 or 128.
    #[test]
    fn a_side_with_whole_groups_is_a_multiple_of_their_number() {
        let rows = Sides(&[OUTPUTS, PackedUp(Inputs)]);
        let layout = layout("bytes", &[5], &["codes"], BYTE, rows).in_whole_groups(Inputs, &[]);
        let related = |low, groups| {
            let mut ranges = Ranges::NEW;
            ranges.restrict(Inputs, Range { low, high: low + 1 }, "")?;
            ranges.restrict(Groups, Range::exactly(groups), "")?;
            ranges.relate(&layout, None)?;
            Some(ranges.get(Inputs))
        };
        assert_eq!(related(383, 6), Some(Range::exactly(384)));
        assert_eq!(related(127, 3), None);
    }
}
