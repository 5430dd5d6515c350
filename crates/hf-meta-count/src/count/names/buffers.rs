//! Buffers, by their names. A new one is one line of [`Buffer::NAMES`].

use hf_meta_format::base::text::named_enum;

named_enum! {
    /// The kind of a tensor that is not a parameter of the `PyTorch` module, because it is computed rather than learned.
    ///
    /// A buffer is stored like a weight, and every documented count includes it, so it is counted here as well, in a
    /// separate group, except for copies of weights that are counted themselves. It is recognized by its name and, if a
    /// weight could have the same name, by its shape. The persistent buffers of `transformers` 5.23 and `diffusers` 0.42
    /// have these names.
    pub Buffer {
        /// The mask of an attention layer, such as `attn.bias` in gpt2.
        AttentionMask "attention mask",
        /// The decay of linear attention, as in `MiniMax`.
        AttentionDecay "attention decay",
        /// Position IDs and token type IDs, which a model can compute.
        Ids "position or token type IDs",
        /// A table from one kind of index to another one, such as the vocabulary of a draft model.
        IndexTable "table of indices",
        /// The frequencies of rotary embeddings, or their sines and cosines.
        RotaryFrequencies "rotary frequencies",
        /// The relative positions of all pairs within an attention window.
        RelativePositions "relative positions",
        /// Position embeddings that are not learned, as in SD3 and SAM.
        FixedPositions "fixed positions",
        /// The running statistics of a batch normalization layer.
        Statistics "batch-norm statistics",
        /// The codebook of a vector quantizer, as in `EnCodec` and Mimi, which follows a running mean.
        Codebook "codebook",
        /// The bias by which a router balances its experts, such as `e_score_correction_bias`.
        RouterBias "router bias",
        /// Other constants, such as the mean of the inputs, `layer_scalar` in Gemma 4 and `final_logits_bias` in BART.
        Constant "constant",
        /// A moving average of the weights (EMA).
        EmaCopy "EMA copy",
        /// The state of an optimizer, which is not counted.
        OptimizerState "optimizer state",
        /// A value of a training run, such as a hyperparameter, which is not counted.
        TrainingValue "value of the training run",
    }
}

impl Buffer {
    /// The last segments of names, and the segment before, which is empty if any is possible.
    const NAMES: &[(Self, &str, &[&str])] = &[
        (Self::AttentionMask, "", &["masked_bias", "attn_mask", "causal_mask"]),
        (Self::AttentionDecay, "", &["slope_rate", "query_decay", "key_decay", "diagonal_decay"]),
        (Self::Ids, "", &["position_ids", "token_type_ids"]),
        // The vocabulary of a draft model in EAGLE-3.
        (Self::IndexTable, "", &["d2t", "t2d"]),
        (Self::IndexTable, "", &["tid2eid", "summary_idxs"]),
        (Self::IndexTable, "", &["ngram_heads_offsets", "ngram_heads_vocab_sizes"]),
        (Self::RotaryFrequencies, "", &["inv_freq", "cos_cached", "sin_cached", "freqs_cis"]),
        (Self::RotaryFrequencies, "", &["original_inv_freq"]),
        (Self::RelativePositions, "", &["relative_position_index", "relative_coords_table"]),
        (Self::FixedPositions, "pos_embed", &["pos_embed"]),
        (Self::FixedPositions, "visual_temporal_embed", &["pos_idx_to_embed"]),
        (Self::Statistics, "", &["running_mean", "running_var", "num_batches_tracked"]),
        (Self::Codebook, "", &["embed_avg", "embed_sum", "cluster_size", "cluster_usage"]),
        (Self::Codebook, "", &["inited", "initialized"]),
        (Self::Codebook, "codebook", &["embed"]),
        (Self::RouterBias, "", &["e_score_correction_bias", "balancing_biases"]),
        (Self::RouterBias, "", &["expert_bias", "router_bias"]),
        // Scales of frequencies in Mistral Large 4, which are learned. Elsewhere, the name is that of an adapter.
        (Self::Constant, "rotary_emb", &["alpha"]),
        (Self::Constant, "lerope", &["alpha"]),
        (Self::Constant, "", &["layer_scalar", "final_logits_bias", "empty_weight"]),
        // The masks of `torch.nn.utils.prune`.
        (Self::Constant, "", &["weight_mask", "bias_mask"]),
        (Self::Constant, "", &["attn_mask_probs", "num_points_scale", "n_points_scale"]),
        // Means and deviations of inputs, and in Gemma 4 of outputs.
        (Self::Constant, "", &["latent_mean", "latent_std", "latent_stats_num_updates"]),
        (Self::Constant, "", &["std_bias", "std_scale"]),
        (Self::Constant, "", &["global_mean", "global_invstd", "norm_mean", "norm_std"]),
        (Self::Constant, "vocoder", &["mean", "scale"]),
        (Self::Constant, "act_fn", &["beta", "eps"]),
        (Self::Constant, "LayerNorm", &["shift"]),
        // The integers and ranges of quantization-aware training in I-BERT and Gemma 4.
        (Self::Constant, "", &["weight_integer", "bias_integer", "weight_scaling_factor"]),
        (Self::Constant, "", &["fc_scaling_factor", "act_scaling_factor", "x_min", "x_max"]),
        (Self::Constant, "", &["input_min", "input_max", "output_min", "output_max"]),
        (Self::OptimizerState, "", &["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg"]),
        (Self::OptimizerState, "", &["momentum_buffer", "exp_avg_sq_row", "exp_avg_sq_col"]),
    ];

    /// Returns the kind of buffer that a name shows, and the shapes that such a buffer has; `None` if no buffer has this
    /// name.
    pub(in crate::count) fn from_name(name: &str) -> Option<(Self, HasShape)> {
        let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
        let parent = module.rsplit('.').next().unwrap_or_default();
        let is_named = |(_, above, names): &&(_, &str, &[&str])| {
            names.contains(&last) && (above.is_empty() || *above == parent)
        };
        let named = || Self::NAMES.iter().find(is_named).map(|(kind, ..)| *kind);
        if let Some(kind) = Self::training_state(name).or_else(named) {
            return Some((kind, |_| true));
        }
        Some(match last {
            // A mask over positions. The bias of a layer has one dimension.
            "bias" if parent.starts_with("att") => (
                Self::AttentionMask,
                |shape| matches!(shape, [1, 1, rows, columns] if rows == columns),
            ),
            // The rows of embeddings that tokens share, in `model2vec`.
            "mapping" if module.is_empty() => (Self::IndexTable, |shape| shape.len() == 1),
            // A frequency for each type of layer, as in Gemma 3. Source: `modeling_rope_utils.py` in transformers 5.24.
            _ if last.ends_with("_inv_freq") => (Self::RotaryFrequencies, |shape| shape.len() == 1),
            // Learned embeddings have a row per position, or a third dimension.
            "positional_embedding" => (Self::FixedPositions, |shape| matches!(shape, [2, _])),
            // VideoPrism. Other models learn embeddings with this name.
            "position_embedding" if module.ends_with("text_model.embeddings") => {
                (Self::FixedPositions, |shape| shape.len() == 2)
            }
            "freqs" if module.contains("timestep_embeddings") => {
                (Self::RotaryFrequencies, |_| true)
            }
            _ => return None,
        })
    }

    /// Returns the kind of training state if a name begins like the names of EMA copies or optimizer states. Source:
    /// CompVis/latent-diffusion, `ema_pytorch`, `timm`, Lightning, `BasicSR`, diffusers, `stylegan2-pytorch`.
    fn training_state(name: &str) -> Option<Self> {
        let name = name.strip_prefix("state_dict.").unwrap_or(name);
        let group = name.split_once('.')?.0;
        let is_average = |word: &str| {
            ["ema", "avg", "averaged"].iter().any(|name| word.eq_ignore_ascii_case(name))
        };
        match group {
            "shadow_params" => Some(Self::EmaCopy),
            _ if group.split('_').any(is_average) => Some(Self::EmaCopy),
            "optimizer" | "optimizers" | "optimizer_states" | "optimizer_state_dict" => {
                Some(Self::OptimizerState)
            }
            _ => None,
        }
    }
}

/// Returns whether a buffer may have a shape. A weight with the same name has another one.
pub(in crate::count) type HasShape = fn(&[u64]) -> bool;

/// Returns whether a tensor is a buffer that old versions stored and loaders ignore, because models compute it again.
///
/// Source, in transformers 5.24: `_adjust_missing_and_unexpected_keys` in `modeling_utils.py` (`rotary_emb.inv_freq`,
/// `position_ids`), and `_keys_to_ignore_on_load_unexpected` of the classes of GPT-2, GPT-J, GPT-NeoX (masks) and DETR
/// (`num_batches_tracked`).
pub(crate) fn is_leftover(name: &str) -> bool {
    const ENDS: [&str; 7] = [
        "inv_freq",
        "masked_bias",
        ".attn.bias",
        ".attention.bias",
        "position_ids",
        "token_type_ids",
        "num_batches_tracked",
    ];
    const ROTARY: &str = "rotary_emb";

    ENDS.iter().any(|end| name.ends_with(end)) || name.contains(ROTARY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;
    use hf_meta_format::formats::{Dtype, TensorInfo};

    /// Some of these names end with the name of a component of quantized modules, such as `_scale`.
    #[test]
    fn all_names_of_buffers_are_recognized_in_a_count() {
        let names = Buffer::NAMES.iter().flat_map(|(kind, above, names)| {
            names.iter().map(move |name| (*kind, format!("{above}.{name}")))
        });
        for (kind, name) in names {
            let mut counter = Counter::new();
            let tensor = TensorInfo::new(Dtype::F32, vec![2, 2], (0, 16));
            counter.add(&format!("m.{name}"), &tensor).unwrap();
            let groups = counter.finish().unwrap().1.groups;
            assert_eq!((groups.len(), groups[0].buffer), (1, Some(kind)), "{name}");
        }
    }

    #[test]
    fn buffers_are_recognized_by_name_and_shape() {
        let cases: [(&str, &[u64], Option<Buffer>); 45] = [
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
            ("rotary_emb.full_attention_inv_freq", &[64], Some(Buffer::RotaryFrequencies)),
            (
                "rotary_emb.sliding_attention_original_inv_freq",
                &[64],
                Some(Buffer::RotaryFrequencies),
            ),
            ("lerope.alpha", &[32], Some(Buffer::Constant)),
            ("text_model.embeddings.position_embedding", &[64, 768], Some(Buffer::FixedPositions)),
            ("visual.embeddings.position_embedding", &[1024, 1024], None),
            ("attn.relative_position_index", &[49, 49], Some(Buffer::RelativePositions)),
            ("attn.relative_position_bias_table", &[169, 3], None),
            ("bn1.running_mean", &[64], Some(Buffer::Statistics)),
            ("bn1.weight", &[64], None),
            ("h.0.mlp.gate.e_score_correction_bias", &[256], Some(Buffer::RouterBias)),
            ("h.1.self_attn.slope_rate", &[32, 1, 1], Some(Buffer::AttentionDecay)),
            ("pos_embed.pos_embed", &[1, 36_864, 1536], Some(Buffer::FixedPositions)),
            ("vit.pos_embed", &[1, 197, 768], None),
            ("sam.positional_embedding", &[2, 128], Some(Buffer::FixedPositions)),
            ("clip.positional_embedding", &[77, 512], None),
            ("quantizer.layers.0.codebook.embed", &[1024, 128], Some(Buffer::Codebook)),
            ("model.embed", &[1024, 128], None),
            ("model.layers.0.layer_scalar", &[1], Some(Buffer::Constant)),
            ("final_logits_bias", &[1, 50_265], Some(Buffer::Constant)),
            ("encoder.LayerNorm.shift", &[1], Some(Buffer::Constant)),
            ("encoder.shift", &[1], None),
            ("ema.blocks.0.weight", &[4, 4], Some(Buffer::EmaCopy)),
            ("state_dict.model_ema.blocks.0.weight", &[4, 4], Some(Buffer::EmaCopy)),
            ("params_ema.conv_first.weight", &[4, 4], Some(Buffer::EmaCopy)),
            ("g_ema.convs.0.weight", &[4, 4], Some(Buffer::EmaCopy)),
            ("d2t", &[32_000], Some(Buffer::IndexTable)),
            ("mapping", &[32_000], Some(Buffer::IndexTable)),
            ("style.mapping", &[32_000], None),
            ("model.rotary_emb.original_inv_freq", &[64], Some(Buffer::RotaryFrequencies)),
            ("state_dict_ema.blocks.0.weight", &[4, 4], Some(Buffer::EmaCopy)),
            ("model.layers.0.w.exp_avg", &[4, 4], Some(Buffer::OptimizerState)),
            ("optimizer_states.0.state.7.qmap1", &[4, 4], Some(Buffer::OptimizerState)),
            ("optimizer_head.weight", &[4, 4], None),
            ("schema.blocks.0.weight", &[4, 4], None),
            ("", &[1], None),
        ];
        for (name, shape, expected) in cases {
            let found = Buffer::from_name(name);
            let found = found.and_then(|(kind, has_shape)| has_shape(shape).then_some(kind));
            assert_eq!(found, expected, "{name} {shape:?}");
        }
    }
}
