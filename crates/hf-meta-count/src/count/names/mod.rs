//! The meanings of names: the only place that knows names of tensors, besides the parts of quantization methods in
//! [`methods`](super::methods).
//!
//! - [`pattern`]: a name with its numbers folded, such as `model.layers.#.mlp.experts.#.up_proj.weight`
//! - [`position`]: layers, experts, routers, draft heads and embeddings
//! - [`buffers`]: tensors that are not parameters
//!
//! The facts of a name are looked up once per pattern, because the hundred thousand names of a large model have a few
//! dozen patterns.

mod buffers;
pub(crate) mod pattern;
mod position;

use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memrchr;

use self::buffers::HasShape;
use self::pattern::{NameNumber, NamePattern, name_offset};
use self::position::{ExpertKind, ExpertNumber, ExpertPosition};
use super::methods::all_names;
use super::module::{Component, PartName, container_bits};
use hf_meta_format::base::sort::sort_by_key;
use hf_meta_format::formats::{Dtype, TensorInfo};

pub use self::buffers::Buffer;
pub(crate) use self::buffers::is_leftover;
pub(in crate::count) use self::position::ExpertPart;
pub(crate) use self::position::{Embedding, Position};

/// The components of all methods, the bare module name first, then longer names before shorter ones.
pub(in crate::count) static COMPONENTS: LazyLock<Vec<Component>> = LazyLock::new(|| {
    let mut names: Vec<_> = all_names().collect();
    // Sorted so that the longest of several names matches first.
    sort_by_key(&mut names, |(PartName { text, is_suffix, .. }, ..)| {
        // A suffix comes before the same text as a whole segment.
        (!text.is_empty(), usize::MAX - text.len(), !is_suffix, *text)
    });
    names.dedup_by_key(|(name, ..)| (name.text, name.is_suffix));
    let components = names.into_iter().zip(0..).map(|((name, role, kind), index)| {
        let PartName { text, is_suffix, .. } = name;
        Component { index, name: text, is_suffix, role, kind }
    });
    components.collect()
});

/// Splits the name of a tensor into its module and its component.
pub(crate) fn split(name: &str) -> (&str, &'static Component) {
    // Most components end differently, and bytes are compared without a call.
    let end = name.as_bytes().last();
    let ends_alike = COMPONENTS[1..].iter().filter(|part| part.name.as_bytes().last() == end);
    let mut found = ends_alike.filter_map(|part| Some((part.module_of(name)?, part)));
    found.next().unwrap_or((name, &COMPONENTS[0]))
}

/// Returns the module of a tensor: its name without the name that quantizers or unquantized models give to a part.
pub(crate) fn module_of(name: &str) -> &str {
    split(name).0
}

/// Returns whether a tensor may contain packed weights, judging by its name and dtype.
pub(crate) fn is_packed_weight(name: &str, dtype: &Dtype) -> bool {
    let (_, component) = split(name);
    let is_packed = dtype.is_narrow_float() || container_bits(dtype).is_some();
    component.is_weights() && (is_packed || !component.is_plain())
}

/// Returns the last segment of a name.
pub(in crate::count) fn last_segment(name: &str) -> &str {
    memrchr(b'.', name.as_bytes()).map_or(name, |dot| &name[dot + 1..])
}

const BIAS: &str = ".bias";

/// The only segments before a number in the names of components, such as `weight_quantizer.0._amax`.
const NUMBERED: &str = "weight_quantizer.#.";

/// The facts that the names with a common pattern show.
#[derive(Clone, Debug)]
struct NameFacts {
    pattern: NamePattern,
    /// The component; `None` if it depends on a number.
    component: Option<&'static Component>,
    buffer: Option<(Buffer, HasShape)>,
    is_bias: bool,
    position: Position,
    /// The pattern that most recently followed, by its index.
    next: usize,
}

impl NameFacts {
    fn new(pattern: NamePattern) -> Self {
        let text = &*pattern.text;
        Self {
            component: (!text.contains(NUMBERED)).then(|| split(text).1),
            buffer: Buffer::from_name(text),
            is_bias: text.ends_with(BIAS),
            position: Position::new(text),
            pattern,
            next: 0,
        }
    }
}

/// The facts of names, looked up once per pattern.
///
/// Layers and experts repeat the same patterns in the same order. Nearly all names have the pattern that last followed
/// the pattern of the previous name, so only this one is compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamePatterns {
    known: HashMap<Box<str>, usize>,
    facts: Vec<NameFacts>,
    /// The pattern of the current name, by its index.
    current: usize,
    /// The numbers in the current name.
    numbers: Vec<NameNumber>,
}

impl NamePatterns {
    /// The maximum number of patterns. Models have a few dozen. Beyond it, the last one is replaced.
    const MAX_PATTERNS: usize = 1024;

    /// Looks up a name.
    pub(crate) fn read<'a>(&'a mut self, name: &'a str) -> TensorName<'a> {
        let next = self.facts.get(self.current).map_or(0, |facts| facts.next);
        let expected = self.facts.get(next);
        let is_expected =
            expected.is_some_and(|facts| facts.pattern.matches(name, &mut self.numbers));
        let found = if is_expected { next } else { self.find(name) };
        if let Some(previous) = self.facts.get_mut(self.current) {
            previous.next = found;
        }
        self.current = found;
        TensorName { name, pattern: found, facts: &self.facts[found], numbers: &self.numbers }
    }

    /// Returns the index of the pattern of a name.
    fn find(&mut self, name: &str) -> usize {
        let pattern = NamePattern::new(name);
        self.numbers.clone_from(&pattern.numbers);
        if let Some(known) = self.known.get(&*pattern.text) {
            return *known;
        }
        if self.facts.len() == Self::MAX_PATTERNS {
            self.facts.pop();
        }
        // The last pattern may be replaced, so it cannot be found.
        if self.facts.len() + 1 < Self::MAX_PATTERNS {
            self.known.insert((&*pattern.text).into(), self.facts.len());
        }
        self.facts.push(NameFacts::new(pattern));
        self.facts.len() - 1
    }
}

/// The name of a tensor and its facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorName<'a> {
    pub(crate) name: &'a str,
    /// The index of the pattern.
    pattern: usize,
    facts: &'a NameFacts,
    numbers: &'a [NameNumber],
}

/// The routed experts that a tensor contains.
#[derive(Clone, Copy)]
pub(in crate::count) struct RoutedExperts<'a> {
    /// The name up to the list of experts, such as `model.layers.7.mlp.experts`.
    pub(in crate::count) group: &'a str,
    pub(in crate::count) part: ExpertPart,
    /// True if the tensor proves that the model has routed experts.
    pub(in crate::count) is_proof: bool,
    /// True if only a router can prove that this is an expert.
    pub(in crate::count) is_unnamed: bool,
}

impl<'a> TensorName<'a> {
    /// Returns the module and the component.
    #[inline]
    pub(crate) fn split(&self) -> (&'a str, &'static Component) {
        let Some(component) = self.facts.component else { return split(self.name) };
        (component.module_of(self.name).unwrap_or(self.name), component)
    }

    /// Returns the kind of buffer, or `None` if the tensor is not a buffer.
    pub(in crate::count) fn buffer(&self, tensor: &TensorInfo) -> Option<Buffer> {
        let (kind, has_shape) = self.facts.buffer?;
        has_shape(&tensor.shape).then_some(kind)
    }

    pub(in crate::count) fn is_bias(&self) -> bool {
        self.facts.is_bias
    }

    /// Returns the module of a bias, and the number of its pattern; `None` if several patterns may have this number.
    pub(in crate::count) fn biased_module(&self) -> Option<(&'a str, usize)> {
        let is_known = self.facts.is_bias && self.pattern + 1 < NamePatterns::MAX_PATTERNS;
        if !is_known {
            return None;
        }
        Some((self.name.strip_suffix(BIAS)?, self.pattern))
    }

    /// Returns whether a segment names a draft head.
    pub(crate) fn is_draft(&self) -> bool {
        self.facts.position.is_draft
    }

    pub(crate) fn embedding(&self) -> Option<Embedding> {
        self.facts.position.embedding
    }

    /// Returns the name up to the number of the layer, such as `model.layers.7`, and the number.
    pub(in crate::count) fn layer(&self) -> Option<(&'a str, u64)> {
        let NameNumber { value, end, .. } = *self.numbers.get(self.facts.position.layer?)?;
        Some((self.name.get(..end)?, value))
    }

    /// Returns the routed experts that the tensor contains.
    pub(in crate::count) fn experts(&self, tensor: &TensorInfo) -> Option<RoutedExperts<'a>> {
        let experts: ExpertPosition = self.facts.position.experts?;
        let number = experts.number.and_then(|number| match number {
            ExpertNumber::Folded(at) => Some(self.numbers.get(at)?.value),
            ExpertNumber::Literal(number) => Some(number),
        });
        let part = experts.part(self.name, number, &tensor.shape)?;
        Some(RoutedExperts {
            group: self.name.get(..name_offset(self.numbers, experts.group_end))?,
            part,
            is_proof: experts.is_proof(part, &tensor.shape),
            is_unnamed: experts.kind == ExpertKind::Unnamed,
        })
    }

    /// Returns whether the tensor certainly contains parameters of routed experts.
    pub(crate) fn is_routed(&self, tensor: &TensorInfo) -> bool {
        !self.is_draft() && self.experts(tensor).is_some_and(|experts| experts.is_proof)
    }

    /// Returns the number of experts if the tensor may be the weight matrix of a router.
    pub(in crate::count) fn router_outputs(&self, tensor: &TensorInfo) -> Option<u64> {
        /// As many experts as Qwen3-Next and `LongCat` have in a layer. The gates of gated linear units have the same names as
        /// routers, and are larger.
        const MAX_EXPERTS: u64 = 512;

        let [rows, columns] = tensor.shape[..] else { return None };
        let experts = rows.min(columns);
        let Position { is_router, is_draft, .. } = self.facts.position;
        let may_be_router = is_router && !is_draft && rows != columns;
        (may_be_router && (2..=MAX_EXPERTS).contains(&experts)).then_some(experts)
    }

    /// Returns the first dimension of a tensor that may contain all experts of a layer, without the name of one.
    pub(in crate::count) fn unnamed_stack(&self, tensor: &TensorInfo) -> Option<u64> {
        let [experts, rows, columns] = tensor.shape[..] else { return None };
        let Position { is_router, experts: known, layer, .. } = self.facts.position;
        let may_be_stack = !is_router && known.is_none() && layer.is_some();
        let is_matrix = rows.min(columns) >= ExpertPosition::MIN_SIDE;
        (may_be_stack && is_matrix).then_some(experts)
    }
}

/// Returns a hash of 64 bits. Two names of a model never share one in practice, and the standard hash takes several
/// times as long.
pub(in crate::count) fn hash(text: &str) -> u64 {
    /// The fractional part of the golden ratio, whose multiples are spread evenly.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let start = mix(0, text.len() as u64);
    let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(hash, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::module::Role;

    #[test]
    fn names_are_split_into_module_and_component() {
        let cases = [
            ("h.0.q_proj.weight", "h.0.q_proj", "weight"),
            ("weight", "", "weight"),
            ("h.q_proj.bias", "h.q_proj.bias", ""),
            ("h.q_proj.weight.absmax", "h.q_proj", "weight.absmax"),
            ("h.up_proj.absmax", "h.up_proj", "absmax"),
            (
                "h.q.weight.quant_state.bitsandbytes__nf4",
                "h.q",
                "weight.quant_state.bitsandbytes__nf4",
            ),
            ("h.experts.up_proj_blocks", "h.experts.up_proj", "_blocks"),
            ("h.experts._blocks", "h.experts._blocks", ""),
            ("h.myweight.absmax", "h.myweight", "absmax"),
            ("", "", ""),
        ];
        for (name, module, expected) in cases {
            let (found, component) = split(name);
            assert_eq!((found, component.name), (module, expected), "{name}");
            let mut written = String::new();
            component.write_tensor_name(found, &mut written);
            assert_eq!(written, name);
        }
    }

    /// The index keeps only one of several components with the same name.
    #[test]
    fn methods_agree_on_the_role_of_a_name() {
        let is_always = |role| matches!(role, Role::AlwaysAuxiliary | Role::QuantizerState);
        for (name, role, kind) in all_names() {
            let is_same =
                |found: &&Component| (found.name, found.is_suffix) == (name.text, name.is_suffix);
            let found = COMPONENTS.iter().find(is_same).unwrap();
            let is_equal = (found.role, found.kind) == (role, kind);
            // The tables for all methods take precedence.
            let is_always = found.is_always_auxiliary() && !is_always(role);
            assert!(
                is_equal || is_always,
                "`{}` is {role:?} {kind:?} in one declaration, and {:?} {:?} in another: write the name with `?` \
                 in both if unquantized models use it, and in none otherwise",
                name.text,
                found.role,
                found.kind,
            );
        }
    }

    /// Facts belong to a pattern, so names with other numbers have them, too, unless a number is part of a component.
    #[test]
    fn each_name_has_the_facts_that_it_has_alone() {
        let mut names = NamePatterns::default();
        for component in COMPONENTS.iter() {
            for module in ["h.0.experts.1.q", "h.12.experts.34.q", "embed_tokens", "att", "1"] {
                let mut name = String::new();
                component.write_tensor_name(module, &mut name);
                for name in [&*name, &name.replace(".0._", ".7._"), &name.replace(".1._", "._")] {
                    let found = names.read(name);
                    assert_eq!(found.split(), split(name), "{name}");
                    let shown = |name: TensorName<'_>| {
                        format!("{:?} {:?}", name.facts.position, name.facts.buffer.is_some())
                    };
                    assert_eq!(shown(found), shown(NamePatterns::default().read(name)), "{name}");
                }
            }
        }
    }

    /// More patterns only take longer.
    #[test]
    fn hostile_names_take_bounded_memory() {
        let mut names = NamePatterns::default();
        let part = |at: usize| ["weight", "bias", "qweight"][at % 3];
        for at in (0..2 * NamePatterns::MAX_PATTERNS).chain(0..2 * NamePatterns::MAX_PATTERNS) {
            let name = format!("m{at}.3.{}", part(at));
            assert_eq!(names.read(&name).split(), split(&name));
        }
        let numbers = [names.facts.len(), names.known.len() + 1];
        assert_eq!(numbers, [NamePatterns::MAX_PATTERNS; 2]);
        for name in ["#.experts.#.w", "h.#.experts.5.w", "h.1.#.experts.#", "..", "h.", ".#"] {
            let found = names.read(name);
            let stack = TensorInfo::new(Dtype::BF16, vec![4, 4, 4], (0, 0));
            assert!(found.layer().is_none_or(|(key, _)| name.starts_with(key)), "{name}");
            let experts = found.experts(&stack);
            assert!(experts.is_none_or(|experts| name.starts_with(experts.group)), "{name}");
        }
    }

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
            assert_eq!(NamePatterns::default().read(name).layer(), layer, "{name}");
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
        let mut names = NamePatterns::default();
        for (name, shape, expected) in cases {
            let tensor = TensorInfo::new(Dtype::BF16, shape.to_vec(), (0, 0));
            let found = names.read(name).experts(&tensor);
            let found = found.map(|experts| (experts.group, experts.part));
            assert_eq!(found, expected, "{name} {shape:?}");
        }
    }
}
