//! The inversion of layouts: every stored dimension restricts a side to a range, and the ranges of all parts are
//! intersected.

use super::layout::{Grouping, LayoutPart, PackedLayout, PartShape};
use super::term::{Range, Side, Term, Units};
use crate::count::module::product;
use crate::formats::TensorInfo;

impl LayoutPart {
    /// Returns the units of a tensor of this part.
    pub(super) fn units<'a>(
        &self,
        tensor: &TensorInfo,
        bits: u64,
        stated: &'a dyn Fn(&str) -> Option<u64>,
    ) -> Units<'a> {
        let stored = tensor.dtype.bits().unwrap_or(8);
        Units { bits, word: self.word.unwrap_or(stored), stored, stated }
    }
}

/// The maximum number of terms of a shape.
const MAX_TERMS: usize = 4;

/// The dimensions of a tensor that a shape describes, with their terms.
#[derive(Clone, Copy)]
pub(super) struct Described {
    dimensions: [u64; MAX_TERMS],
    terms: &'static [Term],
    is_transposed: bool,
    /// The number of matrices in front; `None` if the shape does not distinguish them.
    stack: Option<u64>,
}

impl Described {
    /// Matches a tensor with a shape; `None` if it has too few dimensions.
    pub(super) fn new(
        tensor: &TensorInfo,
        shape: &'static PartShape,
        is_transposed: bool,
    ) -> Option<Self> {
        let (mut dimensions, terms) = ([0; MAX_TERMS], shape.terms());
        let stack = match shape {
            PartShape::Unchecked | PartShape::OneOf(_) => None,
            PartShape::Elements(_) => {
                dimensions[0] = tensor.elements()?;
                None
            }
            PartShape::Rows(_) => {
                let (rows, rest) =
                    tensor.shape.split_first().filter(|(_, rest)| !rest.is_empty())?;
                dimensions[..2].copy_from_slice(&[*rows, product(rest)?]);
                Some(1)
            }
            PartShape::Sides(_) => {
                let start = tensor.shape.len().checked_sub(terms.len())?;
                dimensions[..terms.len()].copy_from_slice(&tensor.shape[start..]);
                Some(product(&tensor.shape[..start])?)
            }
        };
        let is_transposed = is_transposed && matches!(shape, PartShape::Sides(_));
        Some(Self { dimensions, terms, is_transposed, stack })
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (u64, Term)> {
        let last = self.terms.len().saturating_sub(1);
        let term = move |at: usize| self.terms[if self.is_transposed { last - at } else { at }];
        (0..self.terms.len()).map(move |at| (self.dimensions[at], term(at)))
    }

    /// Returns whether there are as many matrices as in the weights. All matrices may share a vector.
    pub(super) fn is_stacked(&self, weights: u64) -> bool {
        self.stack.is_none_or(|stack| stack == weights || stack == 1 && self.terms.len() == 1)
    }
}

/// The known ranges of the sides of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Ranges {
    /// The number of stacked matrices.
    pub(super) stack: u64,
    sides: [Range; Side::COUNT],
    /// The part that restricted each side last.
    sources: [&'static str; Side::COUNT],
}

impl Ranges {
    pub(super) const NEW: Self =
        Self { stack: 1, sides: [Range::ANY; Side::COUNT], sources: [""; Side::COUNT] };

    pub(super) fn get(&self, side: Side) -> Range {
        self.sides[side as usize]
    }

    pub(super) fn source(&self, side: Side) -> &'static str {
        self.sources[side as usize]
    }

    /// Sets the range of a side.
    pub(super) fn set(&mut self, side: Side, range: Range, source: &'static str) {
        self.sides[side as usize] = range;
        self.sources[side as usize] = source;
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
            self.set(side, new, source);
        }
        Some(())
    }

    /// Restricts the sides by the dimensions of a part, unless they do not fit. The stack follows from the weights.
    pub(super) fn restrict_by(
        &mut self,
        part: &LayoutPart,
        described: &Described,
        units: &Units<'_>,
        name: &'static str,
    ) -> Option<()> {
        let is_weights = part.kind.is_none();
        if !is_weights && !described.is_stacked(self.stack) {
            return None;
        }
        let mut restricted = [None; MAX_TERMS];
        for ((dimension, term), restricted) in described.pairs().zip(&mut restricted) {
            let range = term.invert(dimension, units)?;
            let Some(side) = term.side() else { continue };
            let known = self.get(side);
            let is_divided = |known: u64| known.is_multiple_of(dimension);
            if matches!(term, Term::Divisor(_)) && !known.point().is_none_or(is_divided) {
                return None;
            }
            // A stack of experts has one order of the inputs per expert.
            let is_order = described.stack.is_none() && side == Side::Inputs;
            let range = match divide_range(range, self.stack) {
                Some(divided) if is_order => divided,
                _ => range,
            };
            *restricted = Some((side, known.intersect(range)?));
        }
        if is_weights {
            self.stack = described.stack.unwrap_or(1);
        }
        for (side, range) in restricted.into_iter().flatten() {
            if range != self.get(side) {
                self.set(side, range, name);
            }
        }
        Some(())
    }

    /// Restricts groups, the side that is divided into them, and the number of weights by each other.
    pub(super) fn relate(&mut self, layout: &PackedLayout, group: Option<u64>) -> Option<()> {
        if let Some((grouping, group)) = layout.groups.zip(group) {
            self.relate_groups(grouping, group)?;
        }
        self.relate_size(layout.size)?;
        let Some(grouping) = layout.groups.filter(|_| group.is_none()) else { return Some(()) };
        let groups = self.get(Side::Groups);
        let source = self.source(Side::Groups);
        self.restrict(grouping.of, Range::at_least(groups.low), source)?;
        let sides = self.get(grouping.of).point().zip(groups.point());
        let is_whole = |(side, groups): (u64, u64)| {
            let is_size = grouping.sizes.is_empty() || grouping.sizes.contains(&(side / groups));
            side.is_multiple_of(groups) && is_size
        };
        (grouping.rounds_up || sides.is_none_or(is_whole)).then_some(())
    }

    fn relate_groups(&mut self, grouping: Grouping, group: u64) -> Option<()> {
        let groups = self.get(Side::Groups);
        if !groups.is_bounded() {
            // A stated group size needs groups.
            return (!grouping.sizes.is_empty()).then_some(());
        }
        let whole = groups.low.saturating_mul(group);
        let low = if grouping.rounds_up { (whole - group).saturating_add(1) } else { whole };
        let high = groups.high.saturating_mul(group);
        self.restrict(grouping.of, Range { low, high }, self.source(Side::Groups))?;
        let side = self.get(grouping.of);
        if !grouping.rounds_up && side.point().is_some_and(|side| !side.is_multiple_of(group)) {
            return None;
        }
        let range = Range { low: side.low.div_ceil(group), high: side.high.div_ceil(group) };
        self.restrict(Side::Groups, range, self.source(grouping.of))
    }

    pub(super) fn relate_size(&mut self, sides: &[Side]) -> Option<()> {
        if sides == [Side::Weights] {
            return Some(());
        }
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

fn divide_range(range: Range, number: u64) -> Option<Range> {
    let is_multiple = number > 1 && range.low.is_multiple_of(number);
    is_multiple.then(|| Range { low: range.low / number, high: range.high / number })
}
