//! Why a tensor counts as it does.

use std::fmt;

use super::{AuxiliaryTensor, Packing};

/// How the elements of a tensor became its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CountedAs {
    /// Each element is a parameter.
    AsStored,
    /// Several parameters are packed into an element.
    Unpacked(Packing),
    /// Not counted: it belongs to the quantization.
    AuxiliaryTensor(AuxiliaryTensor),
    /// Not counted: a tensor of shape `[]` is a constant.
    Scalar,
}

impl CountedAs {
    /// The parameters in that many elements; `None` when they do not fit in 64 bits.
    #[must_use]
    pub fn parameters(self, elements: u64) -> Option<u64> {
        match self {
            Self::AsStored => Some(elements),
            Self::Unpacked(packing) => packing.unpack(elements),
            Self::AuxiliaryTensor(_) | Self::Scalar => Some(0),
        }
    }

    /// Whether the tensor is counted at all.
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
