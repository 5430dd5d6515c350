//! Terms: how a writer derives a dimension of a stored tensor from a side of the matrix.

use crate::count::config::Key;
use hf_meta_format::base::text::named_enum;

named_enum! {
    /// A length that several parts of a module share.
    pub(crate) Side {
        /// The rows of the matrix: the outputs of a linear layer.
        Outputs "outputs",
        /// The columns of the matrix.
        Inputs "inputs",
        /// The groups of inputs or of weights that share a scale or a code.
        Groups "groups",
        /// The weights of a group, if the writer reshapes the matrix to groups before packing.
        Members "group size",
        /// All weights of the tensor, in layouts without a matrix.
        Weights "weights",
        /// The groups of outputs that share a code.
        OutputGroups "groups of outputs",
        /// The groups of inputs that share a code.
        InputGroups "groups of inputs",
        /// The outputs in a group with a code.
        OutputsPerGroup "outputs per group",
        /// The inputs in a group with a code.
        InputsPerGroup "inputs per group",
        /// The codebooks that are added up.
        Codebooks "codebooks",
    }
}

impl Side {
    pub(super) const COUNT: usize = 10;
}

/// A dimension of a stored tensor, as a formula. `bits` is the number of bits per weight, and `word` the number of bits per
/// container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The side.
    Length(Side),
    /// `side · bits / word`. The writer requires whole words.
    Packed(Side),
    /// `⌈side · bits / word⌉`. The last word may be incomplete.
    PackedUp(Side),
    /// `⌈side / ⌊word / bits⌋⌉`. No value crosses words.
    Whole(Side),
    /// `rows · side · bits / word`. Some rows are interleaved.
    Tiled(Side, u64),
    /// `side / n`. The writer requires whole parts.
    Split(Side, u64),
    /// `side · n`.
    Times(Side, u64),
    /// `⌈side / n⌉`, for a number under this key of the recipe. The last block may be incomplete.
    Blocks(Side, Key),
    /// The bytes of GGUF blocks. The writer requires whole blocks.
    BlockBytes(Side),
    /// `n · ⌈side / n⌉`. Stored with padding.
    RoundUp(Side, u64),
    /// `side + n`.
    Plus(Side, u64),
    /// Words of values with 1 to 8 bits each.
    Mixed(Side),
    /// `side · word / stored`. The containers are viewed as a wider dtype.
    Viewed(Side),
    /// At most the side.
    AtMost(Side),
    /// `n · bits`.
    Bits(u64),
    /// `2 ^ n`, for a number under this key of the recipe.
    Entries(Key),
    /// A constant.
    Constant(u64),
    /// Anything.
    Anything,
}

/// The numbers that terms refer to.
pub(super) struct Units<'a> {
    /// The bits per weight.
    pub(super) bits: u64,
    /// The bits of the container.
    pub(super) word: u64,
    /// The bits of the dtype, which differ from the container if bytes are viewed as another dtype.
    pub(super) stored: u64,
    /// The numbers that the recipe states.
    pub(super) stated: &'a dyn Fn(Key) -> Option<u64>,
}

/// A range of lengths, both ends included. An unknown length is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Range {
    /// The range of an unknown length.
    pub(super) const ANY: Self = Self { low: 1, high: u64::MAX };

    pub(super) const fn exactly(length: u64) -> Self {
        Self { low: length, high: length }
    }

    /// Returns the length, if it is known.
    pub(super) fn point(self) -> Option<u64> {
        (self.low == self.high).then_some(self.low)
    }

    pub(super) fn is_bounded(self) -> bool {
        self.high < u64::MAX
    }

    /// Returns the lengths in both ranges; `None` if there are none.
    pub(super) fn intersect(self, other: Self) -> Option<Self> {
        let range = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (range.low <= range.high).then_some(range)
    }
}

impl Term {
    /// Returns the side that the dimension follows from.
    pub(super) fn side(self) -> Option<Side> {
        match self {
            Self::Length(side)
            | Self::Packed(side)
            | Self::PackedUp(side)
            | Self::Whole(side)
            | Self::Tiled(side, _)
            | Self::Split(side, _)
            | Self::Times(side, _)
            | Self::Blocks(side, _)
            | Self::BlockBytes(side)
            | Self::RoundUp(side, _)
            | Self::Plus(side, _)
            | Self::Mixed(side)
            | Self::Viewed(side)
            | Self::AtMost(side) => Some(side),
            Self::Bits(_) | Self::Entries(_) | Self::Constant(_) | Self::Anything => None,
        }
    }

    /// Returns whether the dimension depends on the bits per weight.
    pub(super) fn has_bits(self) -> bool {
        use Term::{Bits, Packed, PackedUp, Tiled, Whole};
        matches!(self, Packed(_) | PackedUp(_) | Tiled(..) | Whole(_) | Bits(_))
    }

    /// Returns the key of the recipe that the dimension depends on.
    pub(super) fn key(self) -> Option<Key> {
        match self {
            Self::Entries(key) | Self::Blocks(_, key) => Some(key),
            _ => None,
        }
    }

    /// Returns the ratio of the dimension to the side, as numerator and denominator. `None` if the ratio is not constant.
    fn fraction(self, units: &Units<'_>) -> Option<[u64; 2]> {
        let Units { bits, word, stored, stated } = *units;
        let [numerator, denominator] = match self {
            Self::Length(_) => [1, 1],
            Self::Packed(_) | Self::PackedUp(_) => [bits, word],
            Self::Whole(_) => [1, word.checked_div(bits)?],
            Self::Tiled(_, rows) => [rows * bits, word],
            Self::Split(_, parts) => [1, parts],
            Self::Times(_, number) => [number, 1],
            Self::Blocks(_, key) => [1, stated(key)?],
            Self::BlockBytes(_) => [stated(Key::BlockBytes)?, stated(Key::BlockElements)?],
            Self::Viewed(_) => [word, stored],
            _ => return None,
        };
        (numerator > 0 && denominator > 0).then_some([numerator, denominator])
    }

    /// Returns the dimension if no side affects it; `None` for any dimension.
    fn number(self, units: &Units<'_>) -> Option<u64> {
        match self {
            Self::Constant(number) => Some(number),
            Self::Bits(number) => Some(number * units.bits),
            Self::Entries(key) => 1_u64.checked_shl((units.stated)(key)?.try_into().ok()?),
            _ => None,
        }
    }

    /// Returns whether the dimension is rounded up.
    fn rounds_up(self) -> bool {
        matches!(self, Self::PackedUp(_) | Self::Whole(_) | Self::Blocks(..))
    }

    /// Returns whether the dimension of a side is rounded up.
    pub(super) fn is_rounded(self, side: u64, units: &Units<'_>) -> bool {
        let fraction = if self.rounds_up() { self.fraction(units) } else { None };
        fraction.is_some_and(|[numerator, denominator]| {
            let product = side.checked_mul(numerator);
            product.is_some_and(|product| !product.is_multiple_of(denominator))
        })
    }

    /// Returns the lengths of the side that result in a dimension; `None` if there are none.
    pub(super) fn invert(self, dimension: u64, units: &Units<'_>) -> Option<Range> {
        match self {
            _ if self.side().is_none() => {
                let fits = self.number(units).is_none_or(|number| number == dimension);
                return fits.then_some(Range::ANY);
            }
            Self::AtMost(_) => return Some(Range { low: dimension, ..Range::ANY }),
            Self::Plus(_, number) => return dimension.checked_sub(number).map(Range::exactly),
            Self::RoundUp(_, number) => {
                let low = dimension.checked_sub(number)? + 1;
                return dimension.is_multiple_of(number).then_some(Range { low, high: dimension });
            }
            Self::Mixed(_) => {
                let high = dimension.checked_mul(units.word)?;
                return Some(Range { low: high.div_ceil(8), high });
            }
            _ => {}
        }
        let [numerator, denominator] = self.fraction(units)?;
        let end = dimension.checked_mul(denominator)?;
        let high = end / numerator;
        if self.rounds_up() {
            let low = end.checked_sub(denominator)? / numerator + 1;
            return Some(Range { low, high });
        }
        (high * numerator == end).then_some(Range::exactly(high))
    }

    /// Returns the dimension of a side, rounded up; `None` if the side does not determine it. The inverse of
    /// [`invert`](Self::invert).
    pub(super) fn evaluate(self, side: u64, units: &Units<'_>) -> Option<u64> {
        match (self, self.fraction(units)) {
            (Self::Plus(_, number), _) => side.checked_add(number),
            (Self::RoundUp(_, number), _) => side.checked_next_multiple_of(number),
            (_, Some([numerator, denominator])) => {
                Some(side.checked_mul(numerator)?.div_ceil(denominator))
            }
            _ => self.number(units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length is in the range of its dimension, and the dimension follows from both ends of the range.
    #[test]
    fn terms_are_inverted() {
        let units = |bits| Units { bits, word: 32, stored: 32, stated: &|_| Some(3) };
        let terms = [
            Term::Length(Side::Inputs),
            Term::PackedUp(Side::Inputs),
            Term::Whole(Side::Inputs),
            Term::Blocks(Side::Inputs, Key::VectorLength),
            Term::Times(Side::Inputs, 2),
        ];
        for (bits, side) in (1..=8).flat_map(|bits| (1..200).map(move |side| (bits, side))) {
            for term in terms {
                let dimension = term.evaluate(side, &units(bits)).unwrap();
                let Range { low, high } = term.invert(dimension, &units(bits)).unwrap();
                assert!((low..=high).contains(&side), "{term:?} {bits} {side}");
                let ends = [low, high].map(|end| term.evaluate(end, &units(bits)).unwrap());
                assert_eq!(ends, [dimension; 2], "{term:?} {bits} {side}");
            }
        }
        assert_eq!(Term::Packed(Side::Inputs).invert(5, &units(3)), None);
        let last_word = Term::PackedUp(Side::Inputs).invert(1, &units(3));
        assert_eq!(last_word, Some(Range { low: 1, high: 10 }));
    }
}
