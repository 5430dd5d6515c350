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
    /// What a tensor is by the end of its name in any quantized model. A bare `scale` is not among
    /// them: some architectures learn parameters of that name.
    pub(super) fn of_suffix(suffix: &str) -> Option<Self> {
        match suffix {
            "weight_scale"
            | "weight_scale_inv"
            | "weight_scale_2"
            | "weight_global_scale"
            | "input_scale"
            | "input_global_scale" => Some(Self::Scale),
            "weight_zero_point" | "input_zero_point" | "zero_point" => Some(Self::ZeroPoint),
            "weight_shape" => Some(Self::Shape),
            "weight_g_idx" => Some(Self::ColumnOrder),
            _ => None,
        }
    }

    /// What a tensor is by its dtype, quantized or not: exponents without a mantissa only scale others.
    pub(super) fn of_dtype(dtype: &Dtype) -> Option<Self> {
        matches!(dtype, Dtype::F8_E8M0 | Dtype::E8M0 | Dtype::UE8).then_some(Self::Scale)
    }
}
