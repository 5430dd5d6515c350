//! What quantizers store beside the weights.

use std::fmt;

use crate::formats::Dtype;

/// A tensor that quantized weights need to be read, and that holds no weight itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AuxiliaryTensor {
    /// What the values of a block are multiplied by.
    Scale,
    /// What is added to the values of a block.
    ZeroPoint,
    /// The shape that a weight had before it was packed.
    Shape,
    /// The order of the columns at quantization.
    ColumnOrder,
    /// The values that the codes of a weight stand for.
    LookupTable,
    /// The state of the quantizer, serialized.
    State,
}

impl fmt::Display for AuxiliaryTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scale => "scale",
            Self::ZeroPoint => "zero point",
            Self::Shape => "shape of a packed weight",
            Self::ColumnOrder => "column order",
            Self::LookupTable => "lookup table",
            Self::State => "quantization state",
        })
    }
}

impl AuxiliaryTensor {
    /// Returns the kind of a tensor whose dtype shows it in any model: exponents without a mantissa only
    /// scale other values.
    pub(super) fn from_dtype(dtype: &Dtype) -> Option<Self> {
        matches!(dtype, Dtype::F8_E8M0 | Dtype::E8M0 | Dtype::UE8).then_some(Self::Scale)
    }
}
