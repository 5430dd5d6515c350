//! The types of declarations: methods, layouts and parts.

use std::slice;

use super::term::{Side, Term};
use crate::count::config::{Key, KnownSides};
use crate::count::module::{AuxiliaryNames, Module, Names, container_bits};
use crate::count::{AuxiliaryTensor, UnresolvedReason};
use hf_meta_format::formats::{Dtype, TensorInfo};

/// A quantization method, or a family with common names.
pub(in crate::count) struct Method {
    /// The values of `quant_method` that select this method.
    pub(in crate::count) names: Words,
    /// The layouts, the most common first.
    pub(super) layouts: &'static [PackedLayout],
    /// The auxiliary tensors that no layout describes, by kind.
    pub(super) others: AuxiliaryNames,
}

/// Names of methods or recipes.
pub(super) type Words = &'static [&'static str];

/// The maximum number of parts of a layout.
pub(super) const MAX_PARTS: usize = 6;

/// The shapes of the tensors that a writer stores for a matrix of `outputs × inputs`.
#[derive(Clone, Copy)]
pub(super) struct PackedLayout {
    /// The name in explanations.
    pub(super) name: &'static str,
    /// The possible bits per weight.
    pub(super) bits: BitChoices,
    parts: [LayoutPart; MAX_PARTS],
    length: usize,
    /// The members of a group of weights with a common scale.
    pub(super) groups: Option<Grouping>,
    /// The sides whose product is the number of weights.
    pub(super) size: &'static [Side],
    /// The sides that the writer pads before packing.
    pub(super) pads: &'static [Pad],
    /// The sides that the recipe may state, with their keys.
    pub(super) stated: &'static [(Side, Key)],
    /// A condition that shapes do not express. It gets the bits that the recipe states for the module.
    pub(super) condition: Option<Condition>,
    pub(super) flags: &'static [Flag],
    /// The number of bits of an element that contain weights, if it differs from the bits of the dtype. HQQ stores bytes as
    /// floats.
    pub(super) word: Option<u64>,
    /// The recipes with this layout: the method, or the method and its format. Empty for all recipes of the method.
    pub(super) recipes: Words,
    /// The keys of the recipe that distinguish this layout from others of the method.
    pub(super) keys: &'static [Key],
}

/// A property of a layout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// Only the recipe distinguishes the weights from those of other methods.
    NeedsMethod,
    /// Other layouts have the same shapes, so that only the recipe can state the bits. Without it, the count is a bound.
    NeedsRecipe,
    /// Experts are never stacked in one tensor.
    NeverStacked,
    /// Other methods have parts of the same names, so that shapes that do not fit prove nothing.
    Shared,
    /// The number of bits varies or is not an integer.
    WithoutBits,
}

pub(super) type Condition = fn(&Problem<'_>, Option<u64>) -> Result<bool, UnresolvedReason>;

/// A module whose number of weights is wanted, and everything that is known about it besides its shapes and schemes.
pub(in crate::count) struct Problem<'a> {
    pub(super) module: &'a Module<'a>,
    pub(super) known: KnownSides<'a>,
    /// `quant_method` of the configuration.
    pub(super) configured: Option<&'a str>,
    /// True if `quant_method` selects the method whose layouts are tried.
    pub(super) is_configured: bool,
}

impl<'a> Problem<'a> {
    /// Returns whether the configuration names one of `methods`.
    pub(super) fn is_method(&self, methods: &[&str]) -> bool {
        self.configured.is_some_and(|method| methods.contains(&method))
    }

    /// Returns the first of the named components that is stored.
    pub(super) fn first(&self, names: Names) -> Option<&'a TensorInfo> {
        self.module.first(names).map(|(_, tensor)| tensor)
    }
}

/// Groups of weights that share a scale.
#[derive(Clone, Copy)]
pub(super) struct Grouping {
    /// The side that is divided into groups.
    pub(super) of: Side,
    /// The group sizes of the format; empty if the recipe states any.
    pub(super) sizes: &'static [u64],
    /// True if the last group may be incomplete.
    pub(super) rounds_up: bool,
}

/// A side that the writer pads before packing.
#[derive(Clone, Copy)]
pub(super) struct Pad {
    pub(super) side: Side,
    /// The writer pads to a multiple of this; `None` for the size of a block or a group.
    pub(super) to: Option<u64>,
    /// A component that states the length without padding.
    pub(super) unless: Option<&'static str>,
    /// A length that is a multiple of this is taken as not padded; `None` if no length is.
    pub(super) plausible: Option<u64>,
    /// True if a sole dimension of the model that would be padded to the length is certain.
    pub(super) trusts_sole: bool,
}

impl Method {
    /// Returns whether the configuration names the method.
    pub(in crate::count) fn is_named(&self, configured: Option<&str>) -> bool {
        configured.is_some_and(|configured| self.names.contains(&configured))
    }
}

impl Grouping {
    /// Returns whether a side may have a number of groups.
    pub(super) fn allows(&self, side: u64, groups: u64) -> bool {
        let is_any = self.sizes.is_empty();
        if self.rounds_up {
            return is_any || self.sizes.iter().any(|&size| side.div_ceil(size) == groups);
        }
        side.is_multiple_of(groups) && (is_any || self.sizes.contains(&(side / groups)))
    }
}

impl Pad {
    pub(super) const fn new(side: Side, to: Option<u64>) -> Self {
        Self { side, to, unless: None, plausible: None, trusts_sole: false }
    }
}

/// A tensor of a module.
#[derive(Clone, Copy)]
pub(super) struct LayoutPart {
    pub(super) names: Names,
    pub(super) dtypes: Dtypes,
    pub(super) shape: PartShape,
    /// The kind of tensor; `None` for the weights.
    pub(super) kind: Option<AuxiliaryTensor>,
    pub(super) need: Need,
    pub(super) stored: Stored,
}

/// The shape of a part.
#[derive(Clone, Copy)]
pub(super) enum PartShape {
    /// The last dimensions. Stacked matrices have more dimensions in front.
    Sides(&'static [Term]),
    /// The number of elements.
    Elements(Term),
    /// The first dimension, and the product of the others.
    Rows(&'static [Term; 2]),
    /// The first of several shapes that fits.
    OneOf(&'static [PartShape]),
}

/// Rows of packed inputs.
pub(super) const ROWS: PartShape =
    PartShape::Sides(&[Term::Length(Side::Outputs), Term::Packed(Side::Inputs)]);

/// Any shape.
pub(super) const UNCHECKED: PartShape = PartShape::Elements(Term::Anything);

/// The data types of a part.
pub(super) type Dtypes = fn(&Dtype) -> bool;

pub(super) const ANY: Dtypes = |_| true;
pub(super) const INTEGER: Dtypes = |dtype| container_bits(dtype).is_some();
pub(super) const WORD: Dtypes = |dtype| container_bits(dtype) == Some(32);
pub(super) const HALF_WORD: Dtypes = |dtype| container_bits(dtype) == Some(16);
pub(super) const BYTE: Dtypes = |dtype| container_bits(dtype) == Some(8);
pub(super) const WORD_OR_BYTE: Dtypes = |dtype| WORD(dtype) || BYTE(dtype);
pub(super) const SIGNED_BYTE: Dtypes = |dtype| *dtype == Dtype::I8;
pub(super) const UNSIGNED_BYTE: Dtypes = |dtype| *dtype == Dtype::U8;
pub(super) const FLOAT: Dtypes = |dtype| matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32);
/// Floats of at most 8 bits.
pub(super) const NARROW: Dtypes = Dtype::is_narrow_float;
pub(super) const FLOAT_8: Dtypes = |dtype| *dtype == Dtype::F8_E4M3;
pub(super) const FLOAT_4: Dtypes = |dtype| NARROW(dtype) && dtype.bits() == Some(4);
/// Exponents without a mantissa.
pub(super) const EXPONENT: Dtypes = Dtype::is_exponent;
/// Exponents without a mantissa, or their bits as bytes.
pub(super) const EXPONENT_OR_BYTE: Dtypes = |dtype| EXPONENT(dtype) || UNSIGNED_BYTE(dtype);

/// The need of a layout for a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Required,
    /// Required, and without it the weights belong to something else.
    Distinctive,
    Optional,
    /// Optional, although every writer stores the part.
    Written,
    Absent,
}

/// When a recipe demands or excludes a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// As the layout requires.
    AsNeeded,
    /// Writers of this recipe store it.
    By(&'static str),
    /// If the recipe sets a flag. Without it, writers may store the part.
    If(Key),
    /// Unless the recipe sets a flag.
    Unless(Key),
}

impl PartShape {
    /// Returns the terms of a single shape.
    pub(super) fn terms(&'static self) -> &'static [Term] {
        match self {
            Self::OneOf(_) => &[],
            Self::Elements(term) => slice::from_ref(term),
            Self::Rows(terms) => &terms[..],
            Self::Sides(terms) => terms,
        }
    }

    /// Returns the shape, or its alternatives.
    pub(super) fn alternatives(&'static self) -> &'static [PartShape] {
        match self {
            Self::OneOf(shapes) => shapes,
            shape => slice::from_ref(shape),
        }
    }
}

/// Creates a required part.
pub(super) const fn part(kind: AuxiliaryTensor, names: Names, shape: PartShape) -> LayoutPart {
    let (need, stored) = (Need::Required, Stored::AsNeeded);
    LayoutPart { names, dtypes: ANY, shape, kind: Some(kind), need, stored }
}

/// Creates a part with the scales of groups.
pub(super) const fn scale(names: Names, shape: PartShape) -> LayoutPart {
    part(AuxiliaryTensor::Scale, names, shape)
}

/// Creates a part with the zero points of groups, which symmetric weights lack.
pub(super) const fn zeros(names: Names, shape: PartShape) -> LayoutPart {
    part(AuxiliaryTensor::ZeroPoint, names, shape).optional()
}

/// Creates a part that the layout does not have.
pub(super) const fn absent(names: Names) -> LayoutPart {
    part(AuxiliaryTensor::State, names, UNCHECKED).need(Need::Absent)
}

/// Defines functions that set a field of a declaration.
macro_rules! setters {
    ($($name:ident: $type:ty,)*) => {
        $(pub(super) const fn $name(self, $name: $type) -> Self {
            Self { $name, ..self }
        })*
    };
}

impl LayoutPart {
    setters! { dtypes: Dtypes, need: Need, stored: Stored, }

    /// Returns the terms of all shapes.
    pub(super) fn terms(&'static self) -> impl Iterator<Item = &'static Term> {
        self.shape.alternatives().iter().flat_map(PartShape::terms)
    }

    pub(super) const fn optional(self) -> Self {
        self.need(Need::Optional)
    }
}

/// Creates the layout of a matrix of outputs × inputs whose only part are the weights.
pub(super) const fn layout(
    name: &'static str,
    bits: BitChoices,
    names: Names,
    dtypes: Dtypes,
    shape: PartShape,
) -> PackedLayout {
    let weights = LayoutPart { kind: None, dtypes, ..part(AuxiliaryTensor::State, names, shape) };
    PackedLayout {
        name,
        bits,
        parts: [weights; MAX_PARTS],
        length: 1,
        groups: None,
        size: &[Side::Outputs, Side::Inputs],
        pads: &[],
        stated: &[],
        condition: None,
        flags: &[],
        word: None,
        recipes: &[],
        keys: &[],
    }
}

impl PackedLayout {
    /// Adds a part.
    pub(super) const fn with(mut self, part: LayoutPart) -> Self {
        self.parts[self.length] = part;
        self.length += 1;
        self
    }

    pub(super) fn parts(&'static self) -> &'static [LayoutPart] {
        &self.parts[..self.length]
    }

    pub(super) fn weights(&'static self) -> &'static LayoutPart {
        &self.parts[0]
    }

    /// Returns the group sizes of the format.
    pub(super) fn sizes(&self) -> &'static [u64] {
        self.groups.map_or(&[], |grouping| grouping.sizes)
    }

    /// Returns the group sizes if the format states them, and not the recipe.
    pub(super) fn fixed_sizes(&self) -> Option<&'static [u64]> {
        let (sizes, of) = (self.sizes(), self.groups?.of);
        (sizes.len() == 1 || !sizes.is_empty() && of != Side::Inputs).then_some(sizes)
    }

    /// Returns whether the recipe may state a side under the key with a name.
    pub(super) fn is_stated(&self, key: &str) -> bool {
        self.stated.iter().any(|(_, stated)| stated.name() == key)
    }

    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Divides a side into groups; the last one may be incomplete.
    pub(super) const fn grouped(self, of: Side, sizes: &'static [u64]) -> Self {
        Self { groups: Some(Grouping { of, sizes, rounds_up: true }), ..self }
    }

    /// Divides a side into complete groups.
    pub(super) const fn in_whole_groups(self, of: Side, sizes: &'static [u64]) -> Self {
        Self { groups: Some(Grouping { of, sizes, rounds_up: false }), ..self }
    }

    pub(super) const fn only_if(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    setters! {
        size: &'static [Side],
        pads: &'static [Pad],
        stated: &'static [(Side, Key)],
        flags: &'static [Flag],
        word: Option<u64>,
        recipes: Words,
        keys: &'static [Key],
    }
}

/// The terms of whole sides.
pub(super) const OUTPUTS: Term = Term::Length(Side::Outputs);
pub(super) const INPUTS: Term = Term::Length(Side::Inputs);
pub(super) const GROUPS: Term = Term::Length(Side::Groups);
pub(super) const MEMBERS: Term = Term::Length(Side::Members);
pub(super) const WEIGHTS: Term = Term::Length(Side::Weights);

/// Returns the number in a list of one.
pub(super) fn only(numbers: &[u64]) -> Option<u64> {
    if let [only] = numbers { Some(*only) } else { None }
}

/// The possible numbers of bits per weight.
pub(super) type BitChoices = &'static [u64];

pub(super) const ALL_BITS: BitChoices = &[1, 2, 3, 4, 5, 6, 7, 8];

/// The recipe of layouts that no recipe describes.
pub(super) const NONE: Words = &["none"];
