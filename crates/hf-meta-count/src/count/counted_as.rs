//! The classes of tensors, which determine how their parameters are counted.

use std::fmt;

use super::names::Buffer;
use hf_meta_format::base::text::named_enum;
use hf_meta_format::formats::{TensorInfo, TrainingEntry};

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
    /// The tensor is not counted, because it repeats the input embedding, to which `config.json` ties it.
    TiedCopy,
    /// The tensor is not counted, because it is a moving average (EMA) of weights that are counted.
    EmaCopy,
    /// The tensor is not counted, because it is the state of an optimizer, which no model contains.
    OptimizerState,
    /// The tensor is not counted, because it is a value of a training run, such as a hyperparameter.
    TrainingValue,
    /// The tensor looks packed, but its size could not be derived. Each element is counted as a parameter.
    Unresolved,
}

impl CountedAs {
    /// Returns whether the tensor contributes to the count.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::AsStored | Self::Unpacked(_) | Self::Unresolved)
    }
}

/// The use of a tensor in the model, which determines its class.
#[derive(Clone, Copy, Debug)]
pub(super) enum TensorUse {
    /// A tensor outside of quantized modules.
    Stored(Option<Buffer>),
    /// The weights of a module, and their number.
    Weights(u64, Packing),
    /// A tensor that is needed to unpack weights.
    Auxiliary(AuxiliaryTensor),
    /// Packed weights of an unknown number.
    Unresolved,
    /// A copy of weights that are counted.
    Copy,
}

impl TensorUse {
    /// Returns the use of a tensor in an entry of a training checkpoint.
    pub(super) fn of_entry(entry: TrainingEntry) -> Self {
        match entry {
            TrainingEntry::Copy => Self::Copy,
            TrainingEntry::OptimizerState => Self::Stored(Some(Buffer::OptimizerState)),
            TrainingEntry::Value => Self::Stored(Some(Buffer::TrainingValue)),
        }
    }

    /// Returns the kind of buffer.
    pub(super) fn buffer(self) -> Option<Buffer> {
        match self {
            Self::Stored(buffer) => buffer,
            Self::Copy => Some(Buffer::EmaCopy),
            _ => None,
        }
    }

    /// Returns the class of a tensor with this use.
    pub(super) fn class(self, tensor: &TensorInfo) -> CountedAs {
        match self {
            Self::Weights(parameters, _) if tensor.elements() == Some(parameters) => {
                CountedAs::AsStored
            }
            Self::Weights(_, packing) => CountedAs::Unpacked(packing),
            Self::Auxiliary(kind) if !tensor.is_scalar() => CountedAs::AuxiliaryTensor(kind),
            // Exponents without a mantissa can only scale other values.
            Self::Stored(_) | Self::Unresolved if tensor.dtype.is_exponent() => {
                CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale)
            }
            _ if tensor.is_scalar() => CountedAs::Scalar,
            Self::Copy => CountedAs::EmaCopy,
            Self::Stored(Some(Buffer::OptimizerState)) => CountedAs::OptimizerState,
            Self::Stored(Some(Buffer::TrainingValue)) => CountedAs::TrainingValue,
            Self::Unresolved => CountedAs::Unresolved,
            Self::Stored(_) | Self::Auxiliary(_) => CountedAs::AsStored,
        }
    }
}

impl fmt::Display for CountedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsStored => f.write_str("as stored"),
            Self::Unpacked(packing) => write!(f, "unpacked from {packing}"),
            Self::AuxiliaryTensor(kind) => write!(f, "{kind}, not counted"),
            Self::Scalar => f.write_str("scalar, not counted"),
            Self::TiedCopy => f.write_str("copy of a tied embedding, not counted"),
            Self::EmaCopy => f.write_str("EMA copy, not counted"),
            Self::OptimizerState => f.write_str("optimizer state, not counted"),
            Self::TrainingValue => f.write_str("value of the training run, not counted"),
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
}

/// The components that determined the sides of a weight matrix, such as `outputs from scales, inputs from g_idx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Evidence {
    /// The names of the sides, each with the component.
    sides: [Option<(&'static str, &'static str)>; Self::MAX_SIDES],
}

impl Evidence {
    const MAX_SIDES: usize = 4;

    pub(super) fn new(found: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        let mut sides = [None; Self::MAX_SIDES];
        sides.iter_mut().zip(found).for_each(|(side, found)| *side = Some(found));
        Self { sides }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<_> = self.sides.iter().flatten().collect();
        for (at, sides) in sides.chunk_by(|(_, one), (_, other)| one == other).enumerate() {
            let names: Vec<_> = sides.iter().map(|(side, _)| *side).collect();
            let comma = if at > 0 { ", " } else { "" };
            let component = Some(sides[0].1).filter(|name| !name.is_empty());
            write!(f, "{comma}{} from {}", names.join(" and "), component.unwrap_or("the tensor"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout)?;
        self.bits.map_or(Ok(()), |bits| write!(f, " {bits}-bit"))
    }
}

named_enum! {
    /// The kind of a tensor that is needed to unpack quantized weights but contains no weights itself.
    pub AuxiliaryTensor {
        /// The scaling factors of the values in a block.
        Scale "scale",
        /// The zero points of the values in a block.
        ZeroPoint "zero point",
        /// The shape of a weight before packing.
        Shape "unpacked shape",
        /// The order in which columns were quantized.
        ColumnOrder "column order",
        /// The values that quantization codes map to.
        LookupTable "lookup table",
        /// The serialized state of the quantizer.
        State "quantization state",
        /// A rotation or sign flip that spreads outliers before quantization.
        Rotation "rotation",
        /// A low-rank branch that corrects quantization errors.
        LowRank "low-rank correction",
        /// A bias that the quantizer added, although the module has none.
        Bias "added bias",
    }
}
