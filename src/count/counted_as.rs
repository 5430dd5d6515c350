//! The classes of tensors.

use std::fmt;

use super::{AuxiliaryTensor, Packing};

/// The class of a tensor, which determines the number of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CountedAs {
    /// Each element is a parameter.
    AsStored,
    /// Elements hold several packed parameters.
    Unpacked(Packing),
    /// The tensor is not counted, because it only serves to unpack others.
    AuxiliaryTensor(AuxiliaryTensor),
    /// The tensor is not counted, because one of shape `[]` is a constant.
    Scalar,
}

impl CountedAs {
    /// Returns the number of parameters in a number of elements; `None` if it does not fit in 64 bits.
    #[must_use]
    pub fn parameters(self, elements: u64) -> Option<u64> {
        match self {
            Self::AsStored => Some(elements),
            Self::Unpacked(packing) => packing.unpack(elements),
            Self::AuxiliaryTensor(_) | Self::Scalar => Some(0),
        }
    }

    /// Returns whether the tensor is counted at all.
    #[must_use]
    pub fn is_counted(self) -> bool {
        matches!(self, Self::AsStored | Self::Unpacked(_))
    }
}

impl fmt::Display for CountedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsStored => f.write_str("as stored"),
            Self::Unpacked(packing) => write!(f, "unpacked {packing}"),
            Self::AuxiliaryTensor(kind) => write!(f, "{kind}, not counted"),
            Self::Scalar => f.write_str("scalar, not counted"),
        }
    }
}
