//! Tensors that quantizers store next to the weights.

use std::fmt;

/// The kind of a tensor that is needed to unpack quantized weights but contains no weights itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AuxiliaryTensor {
    /// The scaling factors of the values in a block.
    Scale,
    /// The zero points of the values in a block.
    ZeroPoint,
    /// The shape of a weight before packing.
    Shape,
    /// The order in which columns were quantized.
    ColumnOrder,
    /// The values that quantization codes map to.
    LookupTable,
    /// The serialized state of the quantizer.
    State,
    /// A rotation or sign flip that spreads outliers before quantization.
    Rotation,
    /// A low-rank branch that corrects quantization errors.
    LowRank,
}

impl fmt::Display for AuxiliaryTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scale => "scale",
            Self::ZeroPoint => "zero point",
            Self::Shape => "unpacked shape",
            Self::ColumnOrder => "column order",
            Self::LookupTable => "lookup table",
            Self::State => "quantization state",
            Self::Rotation => "rotation",
            Self::LowRank => "low-rank correction",
        })
    }
}
