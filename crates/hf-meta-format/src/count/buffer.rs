//! Tensors that are stored with a model but are not trained.

use std::fmt;

use crate::formats::TensorInfo;

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
