//! Derives the position of a tensor in the model from the pattern of its name.

use super::pattern::{NamePattern, digits};

/// The position of the tensors whose names have a common pattern. Offsets are relative to the pattern.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// True if a segment names a draft head, such as `mtp`.
    pub(crate) is_draft: bool,
    /// The number of the layer, by its index among the numbers of the name.
    pub(in crate::count) layer: Option<usize>,
    /// The routed expert, or all routed experts if the tensors contain them. `None` for shared experts and routers,
    /// which every token uses.
    pub(in crate::count) experts: Option<ExpertPosition>,
    /// True if a segment names a router outside of the experts.
    pub(in crate::count) is_router: bool,
    /// The kind of embedding. Inside a layer, only lookup tables are recognized.
    pub(crate) embedding: Option<Embedding>,
}

/// The position of routed experts.
#[derive(Clone, Copy, Debug)]
pub(in crate::count) struct ExpertPosition {
    /// The end of the name of the list of experts, such as `model.layers.#.mlp.experts`.
    pub(in crate::count) group_end: usize,
    pub(in crate::count) kind: ExpertKind,
    pub(in crate::count) number: Option<ExpertNumber>,
}

/// The number of an expert.
#[derive(Clone, Copy, Debug)]
pub(in crate::count) enum ExpertNumber {
    /// The index among the numbers of the name.
    Folded(usize),
    /// The number in a segment such as `expert_3`, which is part of the pattern.
    Literal(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::count) enum ExpertKind {
    /// One expert, such as `experts.3` or `expert_3`.
    Numbered,
    /// One element of a list, such as `ffns.3`. Other models have lists of a single element with this name.
    Listed,
    /// One element of any other list in a layer, such as `specialists.3` or `w1_3`. Only a router proves an expert.
    Unnamed,
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
pub(in crate::count) enum ExpertPart {
    /// One expert, by its number.
    Numbered(u64),
    /// This number of experts, along the first dimension.
    Stacked(u64),
    /// All experts, with their rows concatenated.
    Rows,
}

impl ExpertPosition {
    /// The minimum of both sides of a matrix in a feed-forward layer. A convolution also has three dimensions, of which
    /// the kernel is smaller.
    pub(in crate::count) const MIN_SIDE: u64 = 16;

    /// Returns the part of the experts that a tensor contains; `None` if it is not routed, such as a norm.
    pub(in crate::count) fn part(
        &self,
        name: &str,
        number: Option<u64>,
        shape: &[u64],
    ) -> Option<ExpertPart> {
        use ExpertKind::{Block, BlockMlp, Listed, Mlp, Numbered, Stacked, Unnamed};

        let is_bias = || name.ends_with("bias");
        match (self.kind, shape) {
            (Numbered | Listed | Unnamed, _) => number.map(ExpertPart::Numbered),
            (Mlp, [_, rows, .., columns]) if *rows.min(columns) < Self::MIN_SIDE => None,
            (_, [experts, _, _, ..]) if *experts > 1 => Some(ExpertPart::Stacked(*experts)),
            (Stacked | Mlp, [experts, _]) if *experts > 1 && is_bias() => {
                Some(ExpertPart::Stacked(*experts))
            }
            (Stacked, [_, _]) if !is_bias() => Some(ExpertPart::Rows),
            // In a linear layer, `weight` belongs to one dense layer.
            (BlockMlp, [_, _]) if !is_bias() && !name.ends_with(".weight") => {
                Some(ExpertPart::Rows)
            }
            (Stacked | Block | BlockMlp | Mlp, _) => None,
        }
    }

    /// Returns whether a part proves that the model has routed experts.
    pub(in crate::count) fn is_proof(&self, part: ExpertPart, shape: &[u64]) -> bool {
        match self.kind {
            ExpertKind::Listed => part != ExpertPart::Numbered(0),
            ExpertKind::Mlp => shape.len() > 2,
            ExpertKind::Unnamed => false,
            _ => true,
        }
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
    fn from_module(module: &str, parent: &str) -> Option<Self> {
        match module {
            "embed_tokens" | "embeddings" | "word_embeddings" | "tok_embeddings"
            | "token_embedding" | "token_embeddings" | "token_embd" | "wte" | "embed"
            | "embed_in" | "embedding" | "shared" | "tokens_embed" | "word_embedding" => {
                Some(Self::Input)
            }
            "lm_head" | "output" | "unembed" | "unembedding" | "head" | "embed_out"
            | "output_layer" | "vocab_projector" | "proj_out" | "output_projection"
            | "generator_lm_head" | "lm_loss" => Some(Self::Output),
            "decoder" if matches!(parent, "lm_head" | "predictions" | "mlm_score") => {
                Some(Self::Output)
            }
            "out_proj" if parent == "lm_head" => Some(Self::Output),
            "proj" if parent == "pred_layer" => Some(Self::Output),
            _ => None,
        }
    }

    /// Returns whether the name of a module is that of an input embedding or of another lookup table.
    pub(crate) fn is_read_by_rows(module: &str) -> bool {
        let pattern = NamePattern::new(&format!("{module}.weight"));
        matches!(Position::new(&pattern.text).embedding, Some(Self::Input | Self::LookupTable))
    }
}

/// The meaning of a segment of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Other,
    /// A number that was folded.
    Number,
    /// A name that ends in `_`, a number and this many digits.
    Suffix(u64, usize),
    /// An expert with its number.
    Expert(u64),
    /// A list of layers.
    Layers,
    /// A list of experts, or tensors that contain all of them.
    Experts,
    /// A list that contains experts if it has several elements.
    List,
    /// A block with experts, a router and other tensors.
    Block,
    /// A linear layer of a feed-forward block in GGUF. Older files store one per expert.
    FeedForward,
    /// A feed-forward layer. Its tensors have three dimensions if they contain experts.
    Mlp,
    /// A part that every token uses, such as `shared_experts`, `shared_mlp` or `share_expert`.
    Shared,
    Router,
    /// A head that drafts tokens, or its layers.
    Draft,
    /// An embedding that is read by rows in addition to the input embedding.
    LookupTable,
}

/// The heads that draft tokens: the names of DeepSeek and Qwen, EAGLE, the library `speculators`, and GGUF.
const DRAFT_HEADS: [&str; 4] = ["mtp", "eagle", "speculator", "nextn"];

impl Segment {
    /// Returns the meaning of a segment.
    ///
    /// Source: the classes of transformers 5.24, such as `experts` and `shared_expert` in `modeling_qwen3_next.py`,
    /// `block_sparse_moe` in `modeling_granitemoeshared.py`, and `embed_tokens_per_layer` in `modeling_gemma3n.py`;
    /// `switch_mlp` and `switch_glu`, the modules with a `SwitchGLU` of `mlx_lm`; and `gguf-py/gguf/constants.py` of
    /// llama.cpp, such as `ffn_gate_exps`, `ffn_gate_chexps` and `per_layer_token_embd`.
    fn new(segment: &str, parent: &str) -> Self {
        let ends_with = |ends: &[&str]| ends.iter().any(|end| segment.ends_with(end));
        let is_digit = |char: char| char.is_ascii_digit();
        match segment {
            "#" => Self::Number,
            "mlp" => Self::Mlp,
            "moe" => Self::Block,
            "expert" | "ffns" => Self::List,
            "ffn_gate" | "ffn_up" | "ffn_down" => Self::FeedForward,
            "experts" | "switch_mlp" | "switch_glu" => Self::Experts,
            "gate" | "router" | "moe_gate" | "moe_router" => Self::Router,
            "embed_tokens_per_layer" | "per_layer_token_embd" | "ngram_embedding" => {
                Self::LookupTable
            }
            "embedders" if parent == "ngram_embeddings" => Self::LookupTable,
            // GGUF uses `blk`.
            "h" | "block" | "layer" | "layers" | "blocks" | "blk" => Self::Layers,
            _ if segment.starts_with(is_digit) => Self::Other,
            _ if Self::is_draft(segment) => Self::Draft,
            _ if segment.starts_with("share") => Self::Shared,
            _ if segment.starts_with("expert") => {
                let rest = &segment["expert".len()..];
                let rest = rest.strip_prefix('s').unwrap_or(rest);
                digits(rest.strip_prefix('_').unwrap_or(rest)).map_or(Self::Other, Self::Expert)
            }
            _ if segment.ends_with(is_digit) => {
                let end = segment.rsplit('_').next().unwrap_or_default();
                digits(end).map_or(Self::Other, |number| Self::Suffix(number, end.len()))
            }
            _ if segment.ends_with("_moe") => Self::Block,
            // `_exps` are the experts of GGUF.
            _ if ends_with(&["_experts", "_exps", "_chexps"]) => Self::Experts,
            _ if ends_with(&["layers", "blocks"]) => Self::Layers,
            _ => Self::Other,
        }
    }

    /// Returns whether a segment is the name of a draft head, or begins with the name and `_`.
    fn is_draft(segment: &str) -> bool {
        let mut rests = DRAFT_HEADS.iter().filter_map(|head| segment.strip_prefix(head));
        rests.any(|rest| rest.is_empty() || rest.starts_with('_'))
    }
}

impl Position {
    /// Returns the position of the tensors with a pattern.
    pub(crate) fn new(pattern: &str) -> Self {
        let mut found = Self::default();
        let (mut start, mut numbers, mut is_shared) = (0, 0, false);
        let (mut before, mut parent, mut meaning) = ("", "", Segment::Other);
        let (mut module, mut is_weight) = ((parent, before), false);
        for segment in pattern.split('.') {
            let previous = std::mem::replace(&mut meaning, Segment::new(segment, parent));
            let end = start + segment.len();
            match meaning {
                Segment::Router => found.is_router = true,
                Segment::Shared => is_shared = true,
                Segment::Draft => found.is_draft = true,
                Segment::LookupTable => found.embedding = Some(Embedding::LookupTable),
                _ => found.add((meaning, previous), pattern, (start, end), numbers),
            }
            numbers += usize::from(meaning == Segment::Number);
            // Quantizers divide a weight into parts, such as `lm_head.weight._data`.
            if !is_weight {
                module = (parent, before);
                is_weight = segment == "weight" && start > 0;
            }
            (start, before, parent) = (end + 1, parent, segment);
        }
        if found.layer.is_none() && found.embedding.is_none() {
            found.embedding = Embedding::from_module(module.0, module.1);
        }
        let is_inside =
            |experts: &ExpertPosition| !is_shared && (!found.is_router || experts.number.is_some());
        found.experts = found.experts.filter(is_inside);
        found.is_router &= !is_shared && found.experts.is_none();
        found
    }

    /// Adds a segment and the meaning of the previous one. `numbers` is the number of numbers before it.
    fn add(
        &mut self,
        meanings: (Segment, Segment),
        pattern: &str,
        (start, end): (usize, usize),
        numbers: usize,
    ) {
        use ExpertKind::{Block, BlockMlp, Listed, Mlp, Numbered, Stacked, Unnamed};
        use ExpertNumber::{Folded, Literal};

        let known = self.experts.map(|experts| experts.kind);
        // Later segments do not locate these experts more precisely.
        let is_certain = matches!(known, Some(Numbered | Listed | Stacked));
        let may_be_unnamed = self.layer.is_some() && known != Some(Unnamed);
        let is_gguf_layer = self.layer.is_some() && pattern.starts_with("blk.");
        let (before, folded) = (start.saturating_sub(1), Some(Folded(numbers)));
        let list = self.experts.map_or(0, |list| list.group_end);
        let (kind, group_end, number) = match meanings {
            (Segment::Experts, _) => (Stacked, end, None),
            // `Other` is a list with one tensor per expert, such as `experts.gate_up_projs.3`.
            (Segment::Number, Segment::Experts | Segment::Other) if known == Some(Stacked) => {
                (Numbered, list, folded)
            }
            (Segment::Expert(number), Segment::Experts) if is_certain => {
                (Numbered, list, Some(Literal(number)))
            }
            _ if is_certain => return,
            (Segment::Expert(number), _) => (Numbered, before, Some(Literal(number))),
            (Segment::Block, _) => (Block, end, None),
            (Segment::Mlp, _) if known == Some(Block) => (BlockMlp, end, None),
            (Segment::Mlp, _) if known != Some(Unnamed) => (Mlp, end, None),
            (Segment::Number, Segment::FeedForward) if is_gguf_layer => (Numbered, before, folded),
            (Segment::Number, Segment::List) if self.layer.is_some() => (Listed, before, folded),
            (Segment::Number, Segment::Layers) if self.layer.is_none() => {
                self.layer = Some(numbers);
                return;
            }
            // The first list in a layer may contain its experts.
            (Segment::Number, Segment::Other | Segment::Block | Segment::Mlp) if may_be_unnamed => {
                (Unnamed, before, folded)
            }
            (Segment::Suffix(number, digits), _) if may_be_unnamed => {
                (Unnamed, end - digits, Some(Literal(number)))
            }
            _ => return,
        };
        self.experts = Some(ExpertPosition { group_end, kind, number });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = Position::new(&NamePattern::new(name).text);
            assert_eq!((found.is_draft, found.embedding), (is_draft, embedding), "{name}");
        }
    }
}
