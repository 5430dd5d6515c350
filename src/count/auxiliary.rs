//! Tensors that quantizers store next to the weights.

use std::fmt;

/// The kind of a tensor that is needed to unpack quantized weights and holds no weights itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AuxiliaryTensor {
    /// The factors of the values in a block.
    Scale,
    /// The offsets of the values in a block.
    ZeroPoint,
    /// The shape of a weight before it was packed.
    Shape,
    /// The order of the columns during quantization.
    ColumnOrder,
    /// The values that the codes of a weight are mapped to.
    LookupTable,
    /// The serialized state of the quantizer.
    State,
    /// A rotation or a flip of signs that spreads outliers before quantization.
    Rotation,
    /// A low-rank branch that corrects the error of the quantization.
    LowRank,
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
            Self::Rotation => "rotation",
            Self::LowRank => "low-rank correction",
        })
    }
}
