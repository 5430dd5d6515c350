//! The classes of tensors.

use std::fmt;

use super::AuxiliaryTensor;

/// The class of a tensor, which determines the number of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CountedAs {
    /// Each element is a parameter.
    AsStored,
    /// The elements hold packed parameters, whose number follows from the parts of the module.
    Unpacked(Packing),
    /// The tensor is not counted, because it only serves to unpack others.
    AuxiliaryTensor(AuxiliaryTensor),
    /// The tensor is not counted, because one of shape `[]` is a constant.
    Scalar,
    /// The tensor looks packed, but its size could not be derived. Each element is counted.
    Unresolved,
}

impl CountedAs {
    /// Returns whether the tensor is counted at all.
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
            Self::Unresolved => f.write_str("as stored, because the packing is unresolved"),
        }
    }
}

/// The packing of a module's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Packing {
    /// The layout of the parts, such as `gptq`. It may differ from the `quant_method` of the configuration.
    pub layout: &'static str,
    /// The bits of a stored weight; `None` if they differ or are no whole number.
    pub bits: Option<u32>,
    /// The parts that gave the size.
    pub evidence: &'static str,
}

impl Packing {
    pub(super) const fn new(layout: &'static str, bits: u32, evidence: &'static str) -> Self {
        Self { layout, bits: Some(bits), evidence }
    }

    /// Creates a packing whose bits are no whole number.
    pub(super) const fn without_bits(layout: &'static str, evidence: &'static str) -> Self {
        Self { layout, bits: None, evidence }
    }

    /// Creates a packing with bits that were derived.
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
