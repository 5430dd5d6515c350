//! The classes of tensors, which determine how their parameters are counted.

use std::fmt;

use crate::formats::TensorInfo;

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
    pub(super) fn new(layout: &'static str, bits: u64, evidence: &'static str) -> Self {
        Self { layout, bits: bits.try_into().ok(), evidence }
    }

    /// Creates a packing with a number of bits that varies or is not an integer.
    pub(super) const fn without_bits(layout: &'static str, evidence: &'static str) -> Self {
        Self { layout, bits: None, evidence }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout)?;
        self.bits.map_or(Ok(()), |bits| write!(f, " {bits}-bit"))
    }
}

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

/// The kind of a tensor that is computed rather than learned. Older library versions saved such tensors.
///
/// A buffer is stored like a weight, and every documented count includes it, so it is counted here as well, in a
/// separate group. It is recognized by its name and, if a weight could have the same name, by its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Buffer {
    /// The mask of an attention layer, such as `attn.bias` in gpt2.
    AttentionMask,
    /// Position IDs or token type IDs.
    Ids,
    /// The frequencies of rotary embeddings, or their sines and cosines.
    RotaryFrequencies,
    /// The relative positions of all pairs within an attention window.
    RelativePositions,
    /// The running statistics of a batch normalization layer.
    Statistics,
}

impl Buffer {
    /// Returns the kind of buffer, or `None` if the tensor is not a buffer.
    #[must_use]
    pub fn from_tensor(name: &str, info: &TensorInfo) -> Option<Self> {
        let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
        match last {
            "bias"
                if is_mask(&info.shape)
                    && module.rsplit('.').next().unwrap_or_default().starts_with("att") =>
            {
                Some(Self::AttentionMask)
            }
            "masked_bias" | "attn_mask" | "causal_mask" => Some(Self::AttentionMask),
            "position_ids" | "token_type_ids" => Some(Self::Ids),
            "inv_freq" | "cos_cached" | "sin_cached" | "freqs_cis" => Some(Self::RotaryFrequencies),
            "relative_position_index" | "relative_coords_table" => Some(Self::RelativePositions),
            "running_mean" | "running_var" | "num_batches_tracked" => Some(Self::Statistics),
            _ => None,
        }
    }
}

/// Returns whether a shape is `[1, 1, n, n]`, the shape of a mask over positions. The bias of a layer has one
/// dimension.
fn is_mask(shape: &[u64]) -> bool {
    matches!(shape, [1, 1, rows, columns] if rows == columns)
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttentionMask => "attention mask",
            Self::Ids => "position or token type IDs",
            Self::RotaryFrequencies => "rotary frequencies",
            Self::RelativePositions => "relative positions",
            Self::Statistics => "batch-norm statistics",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    #[test]
    fn buffers_are_recognized_by_name_and_shape() {
        let cases: [(&str, &[u64], Option<Buffer>); 16] = [
            ("h.0.attn.bias", &[1, 1, 1024, 1024], Some(Buffer::AttentionMask)),
            ("gpt_neox.layers.7.attention.bias", &[1, 1, 64, 64], Some(Buffer::AttentionMask)),
            ("h.0.attn.bias", &[2304], None),
            ("h.0.attn.bias", &[1, 1, 8, 16], None),
            ("h.0.attn.c_attn.bias", &[1, 1, 8, 8], None),
            ("conv.bias", &[1, 1, 8, 8], None),
            ("h.0.attention.masked_bias", &[], Some(Buffer::AttentionMask)),
            ("roberta.embeddings.position_ids", &[1, 514], Some(Buffer::Ids)),
            ("position_ids", &[1, 514], Some(Buffer::Ids)),
            ("model.rotary_emb.inv_freq", &[64], Some(Buffer::RotaryFrequencies)),
            ("attn.relative_position_index", &[49, 49], Some(Buffer::RelativePositions)),
            ("attn.relative_position_bias_table", &[169, 3], None),
            ("bn1.running_mean", &[64], Some(Buffer::Statistics)),
            ("bn1.weight", &[64], None),
            ("h.0.mlp.gate.e_score_correction_bias", &[256], None),
            ("", &[1], None),
        ];
        for (name, shape, expected) in cases {
            let info =
                TensorInfo { dtype: Dtype::F32, shape: shape.to_vec(), data_offsets: (0, 0) };
            assert_eq!(Buffer::from_tensor(name, &info), expected, "{name} {shape:?}");
        }
    }
}
