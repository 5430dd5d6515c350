//! Derives the position of a tensor in the model from its name.

use crate::formats::TensorInfo;

/// The position of a tensor in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TensorPosition<'a> {
    /// True if a segment names a draft head, such as `mtp`.
    pub(crate) is_draft: bool,
    pub(crate) layer: Option<LayerPosition<'a>>,
    /// The routed expert, or all routed experts if the tensor contains them. `None` for shared experts and routers,
    /// which every token uses.
    pub(crate) expert: Option<ExpertPosition<'a>>,
    /// True if a segment names a router outside of the experts.
    is_router: bool,
    /// The kind of embedding. Inside a layer, only lookup tables are recognized.
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
    /// The last segment of the name, such as `weight`.
    last: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpertKind {
    /// One expert, such as `experts.3` or `expert_3`.
    Numbered(u64),
    /// One element of a list, such as `ffns.3`. Other models have lists of a single element with this name.
    Listed(u64),
    /// One element of any other list in a layer, such as `specialists.3` or `w1_3`. Only a router proves an expert.
    Unnamed(u64),
    /// All experts, such as `experts.gate_up_proj`.
    Stacked,
    /// A tensor in a block that contains experts and other tensors, such as `block_sparse_moe.input_linear`.
    Block,
    /// A tensor in the feed-forward layer of such a block, such as `moe.mlp.w1`.
    BlockMlp,
    /// A tensor in the feed-forward layer of any model, such as `mlp.mlp1_weight` in gpt-oss.
    Mlp,
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
    /// The minimum of both sides of a matrix in a feed-forward layer. The kernels of convolutions are smaller.
    const MIN_SIDE: u64 = 16;

    /// Returns the part of the experts that a tensor contains; `None` if it is not routed, such as a norm.
    pub(crate) fn part(&self, tensor: &TensorInfo) -> Option<ExpertPart> {
        use ExpertKind::{Block, BlockMlp, Listed, Mlp, Numbered, Stacked, Unnamed};

        let is_bias = self.last.ends_with(b"bias");
        match (self.kind, &tensor.shape[..]) {
            (Numbered(number) | Listed(number) | Unnamed(number), _) => {
                Some(ExpertPart::Numbered(number))
            }
            (Mlp, [_, rows, .., columns]) if *rows.min(columns) < Self::MIN_SIDE => None,
            (_, [experts, _, _, ..]) if *experts > 1 => Some(ExpertPart::Stacked(*experts)),
            (Stacked | Mlp, [experts, _]) if is_bias && *experts > 1 => {
                Some(ExpertPart::Stacked(*experts))
            }
            (Stacked, [_, _]) if !is_bias => Some(ExpertPart::Rows),
            // In a linear layer, `weight` belongs to one dense layer.
            (BlockMlp, [_, _]) if !is_bias && self.last != b"weight" => Some(ExpertPart::Rows),
            (Stacked | Block | BlockMlp | Mlp, _) => None,
        }
    }

    /// Returns whether a tensor proves that the model has routed experts.
    fn is_proof(&self, tensor: &TensorInfo) -> bool {
        let may_be_dense = match self.kind {
            ExpertKind::Listed(number) => number == 0,
            ExpertKind::Mlp => tensor.shape.len() < 3,
            ExpertKind::Unnamed(_) => true,
            _ => false,
        };
        !may_be_dense && self.part(tensor).is_some()
    }

    /// Returns whether later segments of the name may locate the experts more precisely.
    fn is_block(&self) -> bool {
        use ExpertKind::{Block, BlockMlp, Mlp, Unnamed};

        matches!(self.kind, Block | BlockMlp | Mlp | Unnamed(_))
    }

    /// Returns whether only a router can prove that this is an expert.
    pub(super) fn is_unnamed(&self) -> bool {
        matches!(self.kind, ExpertKind::Unnamed(_))
    }
}

/// A token embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Embedding {
    Input,
    Output,
    /// A table that is read by rows in addition to the input embedding: n-gram tables of `LongCat` and Qwen, and the
    /// per-layer embeddings of Gemma.
    LookupTable,
}

impl Embedding {
    /// Returns the kind of an embedding from the name of its module, and the name that precedes it. Source:
    /// `_tied_weights_keys` of all models in transformers 5.23.
    fn from_module(name: &[u8], parent: &[u8]) -> Option<Self> {
        match name {
            b"embed_tokens" | b"embeddings" | b"word_embeddings" | b"tok_embeddings"
            | b"token_embedding" | b"token_embeddings" | b"token_embd" | b"wte" | b"embed"
            | b"embed_in" | b"embedding" | b"shared" | b"tokens_embed" | b"word_embedding" => {
                Some(Self::Input)
            }
            b"lm_head" | b"output" | b"unembed" | b"unembedding" | b"head" | b"embed_out"
            | b"output_layer" | b"vocab_projector" | b"proj_out" | b"output_projection"
            | b"generator_lm_head" | b"lm_loss" => Some(Self::Output),
            b"decoder" if matches!(parent, b"lm_head" | b"predictions" | b"mlm_score") => {
                Some(Self::Output)
            }
            b"out_proj" if parent == b"lm_head" => Some(Self::Output),
            b"proj" if parent == b"pred_layer" => Some(Self::Output),
            _ => None,
        }
    }

    /// Returns whether the name of a module is that of an input embedding or of another lookup table.
    pub(crate) fn is_read_by_rows(module: &str) -> bool {
        let name = format!("{module}.weight");
        let position = TensorPosition::new(&name);
        matches!(position.embedding, Some(Self::Input | Self::LookupTable))
    }
}

impl<'a> TensorPosition<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        let mut found = Self::default();
        let mut is_router = false;
        let mut is_shared = false;
        let (mut start, mut kind) = (0, Segment::Other);
        let (mut parent, mut module, mut last): (&[u8], &[u8], &[u8]) = Default::default();
        // For such short segments, loops over bytes are faster than methods of `str`.
        while start <= name.len() {
            let rest = &name.as_bytes()[start..];
            let end =
                rest.iter().position(|&byte| byte == b'.').map_or(name.len(), |at| start + at);
            let segment = &rest[..end - start];
            let previous = std::mem::replace(&mut kind, Segment::new(segment, last));
            match kind {
                Segment::Other | Segment::Stack | Segment::FeedForward | Segment::List => {}
                Segment::Router => is_router = true,
                Segment::Shared => is_shared = true,
                Segment::Draft => found.is_draft = true,
                Segment::LookupTable => found.embedding = Some(Embedding::LookupTable),
                Segment::Number(number) => found.add_number(&name[..end], number, previous),
                Segment::Suffix(number, digits) => {
                    found.add_unnamed(&name[..end - digits], number);
                }
                _ => found.add_experts(name, (start, end), kind, previous),
            }
            start = end + 1;
            (parent, module, last) = (module, last, segment);
        }
        if found.layer.is_none() && found.embedding.is_none() {
            // Quantizers divide a weight into parts, such as `lm_head.weight._data`.
            if let Some((whole, _)) = name.split_once(".weight.") {
                let mut segments = whole.rsplit('.').map(str::as_bytes);
                [module, parent] =
                    [segments.next(), segments.next()].map(Option::unwrap_or_default);
            }
            found.embedding = Embedding::from_module(module, parent);
        }
        let is_one = |kind| {
            use ExpertKind::{Listed, Numbered, Unnamed};
            matches!(kind, Numbered(_) | Listed(_) | Unnamed(_))
        };
        let expert = found.expert.filter(|found| !is_shared && (!is_router || is_one(found.kind)));
        found.expert = expert.map(|expert| ExpertPosition { last, ..expert });
        found.is_router = is_router && !is_shared && expert.is_none();
        found
    }

    /// Handles a segment that is a number.
    fn add_number(&mut self, key: &'a str, number: u64, previous: Segment) {
        let is_in_gguf_layer = self.layer.is_some_and(|layer| layer.key.starts_with("blk."));
        let list = self.expert.filter(|expert| !expert.is_block());
        let new = |kind| {
            let (group, _) = key.rsplit_once('.').unwrap_or_default();
            Some(ExpertPosition { group, kind, last: b"" })
        };
        match (previous, list) {
            (Segment::FeedForward, None) if is_in_gguf_layer => {
                self.expert = new(ExpertKind::Numbered(number));
            }
            (Segment::List, None) if self.layer.is_some() => {
                self.expert = new(ExpertKind::Listed(number));
            }
            // `Other` is a list with one tensor per expert, such as `experts.gate_up_projs.3`.
            (Segment::Experts | Segment::Other, Some(list)) if list.kind == ExpertKind::Stacked => {
                self.expert = Some(ExpertPosition { kind: ExpertKind::Numbered(number), ..list });
            }
            (Segment::Stack, None) if self.layer.is_none() => {
                self.layer = Some(LayerPosition { key, number });
            }
            (Segment::Other | Segment::Block | Segment::Mlp, None) => {
                self.add_unnamed(key.rsplit_once('.').unwrap_or_default().0, number);
            }
            _ => {}
        }
    }

    /// Handles an element of a list with an ordinary name. The first list in a layer may contain its experts.
    fn add_unnamed(&mut self, group: &'a str, number: u64) {
        let is_known = self.expert.is_some_and(|expert| !expert.is_block() || expert.is_unnamed());
        if self.layer.is_some() && !is_known {
            self.expert =
                Some(ExpertPosition { group, kind: ExpertKind::Unnamed(number), last: b"" });
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
        let is_in_block = self.expert.is_some_and(|expert| expert.kind == ExpertKind::Block);
        let (group, kind) = match (segment, self.expert.filter(|expert| !expert.is_block())) {
            (Segment::Expert(number), Some(list)) if is_in_list => {
                (list.group, ExpertKind::Numbered(number))
            }
            (Segment::Expert(number), None) => (before, ExpertKind::Numbered(number)),
            (Segment::Experts, _) => (&name[..end], ExpertKind::Stacked),
            (Segment::Block, None) => (&name[..end], ExpertKind::Block),
            (Segment::Mlp, None) if is_in_block => (&name[..end], ExpertKind::BlockMlp),
            (Segment::Mlp, None) if self.expert.is_none_or(|expert| !expert.is_unnamed()) => {
                (&name[..end], ExpertKind::Mlp)
            }
            _ => return,
        };
        self.expert = Some(ExpertPosition { group, kind, last: b"" });
    }

    /// Returns whether the tensor certainly contains parameters of routed experts.
    pub(crate) fn is_routed(&self, tensor: &TensorInfo) -> bool {
        !self.is_draft && self.expert.is_some_and(|expert| expert.is_proof(tensor))
    }

    /// Returns the number of experts if the tensor may be the weight matrix of a router.
    pub(crate) fn routed_experts(&self, tensor: &TensorInfo) -> Option<u64> {
        /// The gates of gated linear units have the same names and are larger.
        const MAX_EXPERTS: u64 = 512;

        let [rows, columns] = tensor.shape[..] else { return None };
        let experts = rows.min(columns);
        let may_be_router = self.is_router && !self.is_draft && rows != columns;
        (may_be_router && (2..=MAX_EXPERTS).contains(&experts)).then_some(experts)
    }

    /// Returns the first dimension of a tensor that may contain all experts of a layer, without the name of one.
    pub(super) fn unnamed_stack(&self, tensor: &TensorInfo) -> Option<u64> {
        let [experts, rows, columns] = tensor.shape[..] else { return None };
        let may_be_stack = !self.is_router && self.expert.is_none() && self.layer.is_some();
        let is_matrix = rows.min(columns) >= ExpertPosition::MIN_SIDE;
        (may_be_stack && is_matrix).then_some(experts)
    }
}

/// The meaning of a segment of a name.
#[derive(Clone, Copy, Debug)]
enum Segment {
    Other,
    Number(u64),
    /// A name that ends in `_`, a number and this many digits.
    Suffix(u64, usize),
    /// A list of layers.
    Stack,
    /// A list of experts, or tensors that contain all of them.
    Experts,
    /// A list that contains experts if it has several elements.
    List,
    /// An expert with its number.
    Expert(u64),
    /// A block with experts, a router and other tensors.
    Block,
    /// A linear layer of a feed-forward block in GGUF. Older files store one per expert.
    FeedForward,
    /// A feed-forward layer. Its tensors have three dimensions if they contain experts.
    Mlp,
    Shared,
    Router,
    /// A head that drafts tokens, or its layers.
    Draft,
    /// An embedding that is read by rows in addition to the input embedding.
    LookupTable,
}

impl Segment {
    /// The heads that draft tokens: the names of DeepSeek and Qwen, EAGLE, the library `speculators`, and GGUF.
    const DRAFT_HEADS: [&str; 4] = ["mtp", "eagle", "speculator", "nextn"];

    fn new(segment: &[u8], previous: &[u8]) -> Self {
        match segment {
            b"weight" | b"model" | b"self_attn" => Self::Other,
            b"mlp" => Self::Mlp,
            // GGUF uses `blk` and `_exps`.
            b"h" | b"block" | b"layer" | b"layers" | b"blocks" | b"blk" => Self::Stack,
            b"experts" | b"switch_mlp" | b"switch_glu" => Self::Experts,
            b"moe" => Self::Block,
            b"ffn_gate" | b"ffn_up" | b"ffn_down" => Self::FeedForward,
            b"expert" | b"ffns" => Self::List,
            b"gate" | b"router" | b"moe_gate" | b"moe_router" => Self::Router,
            b"embed_tokens_per_layer" | b"per_layer_token_embd" | b"ngram_embedding" => {
                Self::LookupTable
            }
            b"embedders" if previous == b"ngram_embeddings" => Self::LookupTable,
            _ => Self::from_affix(segment),
        }
    }

    fn from_affix(segment: &[u8]) -> Self {
        match segment {
            [b'0'..=b'9', ..] => number(segment).map_or(Self::Other, Self::Number),
            [b'm' | b'e' | b's' | b'n', ..] if Self::is_draft(segment) => Self::Draft,
            // `shared_experts`, `shared_mlp`, `share_expert`
            [b's', b'h', b'a', b'r', b'e', ..] => Self::Shared,
            [b'e', b'x', b'p', b'e', b'r', b't', rest @ ..] => {
                let rest = rest.strip_prefix(b"s").unwrap_or(rest);
                number(rest.strip_prefix(b"_").unwrap_or(rest)).map_or(Self::Other, Self::Expert)
            }
            [.., b'_', b'm', b'o', b'e'] => Self::Block,
            [.., b'0'..=b'9'] => {
                let digits = segment.rsplit(|&byte| byte == b'_').next().unwrap_or_default();
                number(digits).map_or(Self::Other, |number| Self::Suffix(number, digits.len()))
            }
            [.., b's'] => Self::from_plural(segment),
            _ => Self::Other,
        }
    }

    fn from_plural(segment: &[u8]) -> Self {
        if segment.ends_with(b"_experts")
            || segment.ends_with(b"_exps")
            || segment.ends_with(b"_chexps")
        {
            Self::Experts
        } else if segment.ends_with(b"layers") || segment.ends_with(b"blocks") {
            Self::Stack
        } else {
            Self::Other
        }
    }

    /// Returns whether a segment is the name of a draft head, or begins with the name and `_`.
    fn is_draft(segment: &[u8]) -> bool {
        Self::DRAFT_HEADS.iter().any(|head| {
            segment
                .strip_prefix(head.as_bytes())
                .is_some_and(|rest| matches!(rest, [] | [b'_', ..]))
        })
    }
}

/// Parses a number from its digits.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
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
            ("h.7a.w", None),
            ("h.+7.w", None),
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

        let cases: [Case; 44] = [
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
            ("h.0.mlp.input_linear.weight", &[4, 32, 16], Some(("h.0.mlp", Stacked(4)))),
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
            ("h.0.ffns.3.gate.weight", &[2, 3], Some(("h.0.ffns", Numbered(3)))),
            // FlauBERT and XLM have a list with the feed-forward layers of all layers.
            ("transformer.ffns.3.lin1.weight", &[2, 3], None),
            ("h.0.mlp.expert.3.w", &[2, 3], Some(("h.0.mlp.expert", Numbered(3)))),
            ("h.0.mlp.expert_3.w", &[2], Some(("h.0.mlp", Numbered(3)))),
            ("h.0.moe.mlp.w1", &[8, 2], Some(("h.0.moe.mlp", Rows))),
            ("h.0.moe.mlp.up_proj.weight", &[8, 2], None),
            ("block.0.mlp.mlp1_weight", &[4, 32, 16], Some(("block.0.mlp", Stacked(4)))),
            ("block.0.mlp.mlp1_bias", &[4, 32], Some(("block.0.mlp", Stacked(4)))),
            // A convolution.
            ("h.0.mlp.conv.weight", &[64, 32, 3], None),
            ("h.0.mlp.up_proj.weight", &[64, 32], None),
            ("blk.0.ffn_up_chexps.weight", &[4, 2, 3], Some(("blk.0.ffn_up_chexps", Stacked(4)))),
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
            ("eagle.layers.0.w", true, None),
            ("speculator.head.0.weight", true, None),
            ("model.nextn_layers.0.w", true, None),
            ("eagles.0.w", false, None),
            ("model.embed_tokens.weight", false, Some(Embedding::Input)),
            ("backbone.embeddings.weight", false, Some(Embedding::Input)),
            ("model.layers.61.embed_tokens.weight", false, None),
            ("model.embed_tokens.norm.weight", false, None),
            ("lm_head.qweight", false, Some(Embedding::Output)),
            ("cls.predictions.decoder.weight", false, Some(Embedding::Output)),
            ("model.decoder.weight", false, None),
            ("model.layers.0.output.weight", false, None),
            ("embedding.weight", false, Some(Embedding::Input)),
            ("unembedding.weight", false, Some(Embedding::Output)),
            ("lm_head.weight._data._data", false, Some(Embedding::Output)),
            ("proj_out.qweight", false, Some(Embedding::Output)),
            ("decoder.proj_out.conv.weight", false, None),
            ("lm_head.out_proj.weight", false, Some(Embedding::Output)),
            ("vision_model.head.out_proj.weight", false, None),
            ("shared.weight", false, Some(Embedding::Input)),
            ("model.embed_tokens_per_layer.weight", false, Some(Embedding::LookupTable)),
            ("model.ngram_embeddings.embedders.3.weight", false, Some(Embedding::LookupTable)),
            ("model.ngram_embeddings.post_projs.3.weight", false, None),
            ("model.audio.embedders.3.weight", false, None),
            ("layers.0.ple.ngram_embedding.shard_3.weight", false, Some(Embedding::LookupTable)),
        ];
        for (name, is_draft, embedding) in cases {
            let found = TensorPosition::new(name);
            assert_eq!((found.is_draft, found.embedding), (is_draft, embedding), "{name}");
        }
    }
}
