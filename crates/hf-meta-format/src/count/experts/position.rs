//! Derives the position of a tensor in the model from its name.

use crate::formats::TensorInfo;

/// The position of a tensor in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TensorPosition<'a> {
    /// True if a segment starts with `mtp`. Some models store draft layers under such names.
    pub(crate) is_draft: bool,
    pub(crate) layer: Option<LayerPosition<'a>>,
    /// The routed expert, or all routed experts if the tensor contains them. `None` for shared experts and routers,
    /// which every token uses.
    pub(crate) expert: Option<ExpertPosition<'a>>,
    /// The kind of embedding; `None` inside a layer.
    pub(crate) embedding: Option<Embedding>,
}

/// The layer of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerPosition<'a> {
    /// The name up to the number, such as `model.layers.7`.
    pub(crate) key: &'a str,
    pub(crate) number: u64,
}

/// The position of routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertPosition<'a> {
    /// The name up to the list of experts, such as `model.layers.7.mlp.experts`.
    pub(crate) group: &'a str,
    kind: ExpertKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpertKind {
    /// One expert, such as `experts.3` or `expert_3`.
    Numbered(u64),
    /// All experts, such as `experts.gate_up_proj`.
    Stacked { is_bias: bool },
    /// A tensor in a block that contains experts and other tensors, such as `block_sparse_moe.input_linear`.
    Block,
}

/// The part of a group's routed experts that a tensor contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertPart {
    /// One expert, by its number.
    Numbered(u64),
    /// This number of experts, along the first dimension.
    Stacked(u64),
    /// All experts, with their rows concatenated.
    Rows,
}

impl ExpertPosition<'_> {
    /// Returns the part of the experts that a tensor contains; `None` if it is not routed, such as a norm.
    pub(crate) fn part(&self, tensor: &TensorInfo) -> Option<ExpertPart> {
        match (self.kind, &tensor.shape[..]) {
            (ExpertKind::Numbered(number), _) => Some(ExpertPart::Numbered(number)),
            (_, [experts, _, _, ..]) | (ExpertKind::Stacked { is_bias: true }, [experts, _])
                if *experts > 1 =>
            {
                Some(ExpertPart::Stacked(*experts))
            }
            (ExpertKind::Stacked { is_bias: false }, [_, _]) => Some(ExpertPart::Rows),
            _ => None,
        }
    }
}

/// A token embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Embedding {
    Input,
    Output,
}

impl Embedding {
    fn from_module(name: &str) -> Option<Self> {
        match name {
            "embed_tokens" | "embeddings" | "word_embeddings" | "tok_embeddings"
            | "token_embedding" | "token_embeddings" | "token_embd" | "wte" | "embed"
            | "embed_in" => Some(Self::Input),
            "lm_head" | "output" | "unembed" | "head" | "embed_out" => Some(Self::Output),
            _ => None,
        }
    }
}

impl<'a> TensorPosition<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        let mut found = Self::default();
        let mut is_router = false;
        let mut is_shared = false;
        let (mut start, mut kind) = (0, Segment::Other);
        let (mut module, mut last) = ("", "");
        // For such short segments, a loop over bytes is faster than `str::split`.
        while start <= name.len() {
            let rest = &name.as_bytes()[start..];
            let end =
                rest.iter().position(|&byte| byte == b'.').map_or(name.len(), |at| start + at);
            let segment = &name[start..end];
            let previous = std::mem::replace(&mut kind, Segment::new(segment));
            match kind {
                Segment::Other | Segment::Stack | Segment::FeedForward => {}
                Segment::Router => is_router = true,
                Segment::Shared => is_shared = true,
                Segment::Draft => found.is_draft = true,
                Segment::Number(number) => found.add_number(&name[..end], number, previous),
                _ => found.add_experts(name, (start, end), kind, previous),
            }
            start = end + 1;
            (module, last) = (last, segment);
        }
        if found.layer.is_none() {
            found.embedding = Embedding::from_module(module);
        }
        found.expert = found.expert.filter(|expert| {
            !is_shared && (!is_router || matches!(expert.kind, ExpertKind::Numbered(_)))
        });
        if let Some(ExpertPosition { kind: ExpertKind::Stacked { is_bias }, .. }) =
            &mut found.expert
        {
            *is_bias = last.ends_with("bias");
        }
        found
    }

    /// Handles a segment that is a number.
    fn add_number(&mut self, key: &'a str, number: u64, previous: Segment) {
        let is_in_gguf_layer = self.layer.is_some_and(|layer| layer.key.starts_with("blk."));
        match (previous, &mut self.expert) {
            (Segment::FeedForward, None) if is_in_gguf_layer => {
                let (group, _) = key.rsplit_once('.').unwrap_or_default();
                self.expert = Some(ExpertPosition { group, kind: ExpertKind::Numbered(number) });
            }
            (Segment::Experts, Some(expert)) => expert.kind = ExpertKind::Numbered(number),
            // A list with one tensor per expert, such as `experts.gate_up_projs.3`.
            (Segment::Other, Some(expert)) if matches!(expert.kind, ExpertKind::Stacked { .. }) => {
                expert.kind = ExpertKind::Numbered(number);
            }
            (Segment::Stack, None) if self.layer.is_none() => {
                self.layer = Some(LayerPosition { key, number });
            }
            _ => {}
        }
    }

    /// Handles a segment that names experts.
    fn add_experts(
        &mut self,
        name: &'a str,
        (start, end): (usize, usize),
        segment: Segment,
        previous: Segment,
    ) {
        let before = &name[..start.saturating_sub(1)];
        let is_in_list = matches!(previous, Segment::Experts);
        let (group, kind) = match (segment, self.expert) {
            (Segment::Expert(number), Some(list)) if is_in_list => {
                (list.group, ExpertKind::Numbered(number))
            }
            (Segment::Expert(number), None) => (before, ExpertKind::Numbered(number)),
            (Segment::Experts, _) => (&name[..end], ExpertKind::Stacked { is_bias: false }),
            (Segment::Block, None) => (&name[..end], ExpertKind::Block),
            (Segment::Linear, None) => (before, ExpertKind::Block),
            _ => return,
        };
        self.expert = Some(ExpertPosition { group, kind });
    }

    /// Returns whether the tensor contains parameters of routed experts.
    pub(crate) fn is_routed(&self, tensor: &TensorInfo) -> bool {
        !self.is_draft && self.expert.is_some_and(|expert| expert.part(tensor).is_some())
    }
}

/// The meaning of a segment of a name.
#[derive(Clone, Copy, Debug)]
enum Segment {
    Other,
    Number(u64),
    /// A list of layers.
    Stack,
    /// A list of experts, or tensors that contain all of them.
    Experts,
    /// An expert with its number.
    Expert(u64),
    /// A block with experts, a router and other tensors.
    Block,
    /// A linear layer in Granite and `JetMoE`. It has three dimensions if it contains experts.
    Linear,
    /// A linear layer of a feed-forward block in GGUF. Older files store one per expert.
    FeedForward,
    Shared,
    Router,
    Draft,
}

impl Segment {
    fn new(segment: &str) -> Self {
        match segment {
            "weight" | "model" | "mlp" | "self_attn" => Self::Other,
            // GGUF uses `blk` and `_exps`.
            "h" | "block" | "layer" | "layers" | "blocks" | "blk" => Self::Stack,
            "experts" | "switch_mlp" | "switch_glu" => Self::Experts,
            "moe" => Self::Block,
            "ffn_gate" | "ffn_up" | "ffn_down" => Self::FeedForward,
            "input_linear" | "output_linear" => Self::Linear,
            "gate" | "router" => Self::Router,
            "mtp" => Self::Draft,
            _ => Self::from_affix(segment),
        }
    }

    fn from_affix(segment: &str) -> Self {
        match segment.as_bytes() {
            [b'0'..=b'9', ..] => segment.parse().map_or(Self::Other, Self::Number),
            [b'm', b't', b'p', b'_', ..] => Self::Draft,
            // `shared_experts`, `shared_mlp`, `share_expert`
            [b's', b'h', b'a', b'r', b'e', ..] => Self::Shared,
            [b'e', b'x', b'p', b'e', b'r', b't', b'_', ..] => {
                segment[7..].parse().map_or(Self::Other, Self::Expert)
            }
            [.., b'_', b'm', b'o', b'e'] => Self::Block,
            _ if segment.ends_with("_experts") || segment.ends_with("_exps") => Self::Experts,
            _ if segment.ends_with("layers") || segment.ends_with("blocks") => Self::Stack,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    #[test]
    fn names_show_the_layer() {
        let cases = [
            ("model.layers.7.mlp.w", Some(("model.layers.7", 7))),
            ("encoder_layers.x.layers.7.w", Some(("encoder_layers.x.layers.7", 7))),
            ("encoder.block.1.layer.2.w", Some(("encoder.block.1", 1))),
            ("decoder_layers.3.w", Some(("decoder_layers.3", 3))),
            ("transformer_blocks.3.w", Some(("transformer_blocks.3", 3))),
            ("h.18446744073709551616.w", None),
            ("model.norm.7.w", None),
            ("layers", None),
            ("layers.", None),
            (".7", None),
            ("", None),
        ];
        for (name, layer) in cases {
            let found = TensorPosition::new(name).layer;
            assert_eq!(found.map(|layer| (layer.key, layer.number)), layer, "{name}");
        }
    }

    #[test]
    fn names_and_shapes_show_routed_experts() {
        use ExpertPart::{Numbered, Rows, Stacked};
        type Case = (&'static str, &'static [u64], Option<(&'static str, ExpertPart)>);

        let cases: [Case; 33] = [
            ("h.0.mlp.experts.3.w", &[2, 3], Some(("h.0.mlp.experts", Numbered(3)))),
            ("h.0.mlp.experts.up_projs.3.weight", &[9, 1], Some(("h.0.mlp.experts", Numbered(3)))),
            ("h.0.mlp.experts.up_projs.3.bias", &[9], Some(("h.0.mlp.experts", Numbered(3)))),
            ("h.0.mlp.experts.3.gate.weight", &[2, 3], Some(("h.0.mlp.experts", Numbered(3)))),
            ("h.0.ffn.experts.expert_3.w", &[2], Some(("h.0.ffn.experts", Numbered(3)))),
            ("h.0.ffn.expert_3.w", &[2], Some(("h.0.ffn", Numbered(3)))),
            (
                "x.experts.deepspeed_experts.3.w",
                &[2],
                Some(("x.experts.deepspeed_experts", Numbered(3))),
            ),
            ("experts.3.w", &[2], Some(("experts", Numbered(3)))),
            ("h.0.mlp.experts.gate_up_proj", &[4, 2, 3], Some(("h.0.mlp.experts", Stacked(4)))),
            (
                "h.0.mlp.experts.up_proj_blocks",
                &[4, 2, 3, 16],
                Some(("h.0.mlp.experts", Stacked(4))),
            ),
            ("h.0.mlp.experts.up_proj_bias", &[4, 2], Some(("h.0.mlp.experts", Stacked(4)))),
            ("h.0.mlp.switch_mlp.w.weight", &[4, 2, 3], Some(("h.0.mlp.switch_mlp", Stacked(4)))),
            (
                "h.0.block_sparse_moe.input_linear.weight",
                &[4, 2, 3],
                Some(("h.0.block_sparse_moe", Stacked(4))),
            ),
            ("h.0.mlp.input_linear.weight", &[4, 2, 3], Some(("h.0.mlp", Stacked(4)))),
            ("h.0.moe.gate_proj.weight", &[4, 2, 3], Some(("h.0.moe", Stacked(4)))),
            (
                "h.0.mlp.text_moe.experts.w",
                &[4, 2, 3],
                Some(("h.0.mlp.text_moe.experts", Stacked(4))),
            ),
            ("blk.0.ffn_gate.3.weight", &[2, 3], Some(("blk.0.ffn_gate", Numbered(3)))),
            ("blk.0.ffn_gate.weight", &[2, 3], None),
            ("h.0.ffn_gate.3.weight", &[2, 3], None),
            ("ffn_gate.3.weight", &[2, 3], None),
            ("h.0.ffn.experts.mlp.w1", &[4, 2], Some(("h.0.ffn.experts", Rows))),
            ("h.0.moe.gate.weight", &[4, 2], None),
            ("h.0.moe.gate.weight", &[4, 2, 3], None),
            ("h.0.moe.up_proj.weight", &[4, 2], None),
            ("h.0.mlp.experts.router.layer.weight", &[4, 2], None),
            ("h.0.mlp.experts.e_score_correction_bias", &[4], None),
            ("h.0.mlp.experts.score_bias", &[1, 4], None),
            ("h.0.mlp.experts.norm.weight", &[4], None),
            ("h.0.mlp.shared_experts.w", &[2, 3, 4], None),
            ("h.0.mlp.experts.shared_expert.w", &[2, 3, 4], None),
            ("h.0.shared_mlp.input_linear.weight", &[2, 3], None),
            ("h.0.mlp.expert_bias", &[4], None),
            ("h.0.mlp.weight", &[4, 2, 3], None),
        ];
        for (name, shape, expected) in cases {
            let tensor =
                TensorInfo { dtype: Dtype::BF16, shape: shape.to_vec(), data_offsets: (0, 0) };
            let position = TensorPosition::new(name);
            let found =
                position.expert.and_then(|expert| Some((expert.group, expert.part(&tensor)?)));
            assert_eq!(found, expected, "{name} {shape:?}");
        }
    }

    #[test]
    fn names_show_draft_layers_and_embeddings() {
        let cases = [
            ("mtp.layers.0.experts.1.w", true, None),
            ("model.mtp_layers.0.w", true, None),
            ("model.smtp.w", false, None),
            ("model.embed_tokens.weight", false, Some(Embedding::Input)),
            ("backbone.embeddings.weight", false, Some(Embedding::Input)),
            ("model.layers.61.embed_tokens.weight", false, None),
            ("model.embed_tokens.norm.weight", false, None),
            ("lm_head.qweight", false, Some(Embedding::Output)),
            ("model.layers.0.output.weight", false, None),
        ];
        for (name, is_draft, embedding) in cases {
            let found = TensorPosition::new(name);
            assert_eq!((found.is_draft, found.embedding), (is_draft, embedding), "{name}");
        }
    }
}
