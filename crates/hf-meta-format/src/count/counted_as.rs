//! The rules that tensors are counted by.

use std::fmt;

use super::AuxiliaryTensor;

/// The class of a tensor, which determines how its parameters are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CountedAs {
    /// Each element is a parameter.
    AsStored,
    /// The elements hold packed parameters, whose number is derived from the components of the module.
    Unpacked(Packing),
    /// The tensor is not counted, because it only serves to unpack other tensors.
    AuxiliaryTensor(AuxiliaryTensor),
    /// The tensor has shape `[]` and is not counted, because it is a constant.
    Scalar,
    /// The tensor looks packed, but its size could not be derived. Each element is counted as a parameter.
    Unresolved,
}

impl CountedAs {
    /// Returns whether the tensor contributes to the count.
    #[must_use]
    pub fn is_counted(self) -> bool {
        !matches!(self, Self::AuxiliaryTensor(_) | Self::Scalar)
    }
}

impl fmt::Display for CountedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsStored => f.write_str("as stored"),
            Self::Unpacked(packing) => write!(f, "unpacked from {packing}"),
            Self::AuxiliaryTensor(kind) => write!(f, "{kind}, not counted"),
            Self::Scalar => f.write_str("scalar, not counted"),
            Self::Unresolved => f.write_str("as stored, packing unresolved"),
        }
    }
}

/// The way in which the weights of a module are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Packing {
    /// The layout of the components, such as `gptq`. It may differ from `quant_method` in the configuration.
    pub layout: &'static str,
    /// The number of bits per weight, or `None` if it varies or is not an integer.
    pub bits: Option<u32>,
    /// The components from which the size was derived.
    pub evidence: &'static str,
}

impl Packing {
    pub(super) const fn new(layout: &'static str, bits: u32, evidence: &'static str) -> Self {
        Self { layout, bits: Some(bits), evidence }
    }

    /// Creates a packing with a fractional number of bits.
    pub(super) const fn without_bits(layout: &'static str, evidence: &'static str) -> Self {
        Self { layout, bits: None, evidence }
    }

    /// Creates a packing with a derived number of bits.
    pub(super) fn with_bits(layout: &'static str, bits: u64, evidence: &'static str) -> Self {
        Self { layout, bits: bits.try_into().ok(), evidence }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout)?;
        self.bits.map_or(Ok(()), |bits| write!(f, " {bits}-bit"))
    }
}
