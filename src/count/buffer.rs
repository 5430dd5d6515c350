//! Tensors that are stored with a model but were never trained.

use std::fmt;

use crate::formats::TensorInfo;

/// The kind of a tensor that is computed, not learned. Older versions of libraries saved such tensors.
///
/// A buffer is stored like a weight and is part of every documented count, so it is counted here too, in a
/// group of its own. It is recognized by its name, and by its shape if a weight could have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Buffer {
    /// The mask of an attention layer, such as `attn.bias` of gpt2.
    AttentionMask,
    /// The numbers of positions or of token types.
    Ids,
    /// The frequencies of rotary embeddings, or their sines and cosines.
    RotaryFrequencies,
    /// The relative positions of all pairs of places in a window.
    RelativePositions,
    /// The running statistics of a batch normalization.
    Statistics,
}

impl Buffer {
    /// Returns the kind of a buffer; `None` for any other tensor.
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

/// Returns whether a shape is that of a mask over positions, `[1, 1, n, n]`. The bias of a layer has one
/// dimension.
fn is_mask(shape: &[u64]) -> bool {
    matches!(shape, [1, 1, rows, columns] if rows == columns)
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttentionMask => "attention mask",
            Self::Ids => "position or token type ids",
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
