//! Per-layer sums, from which the parameters of a mixture of experts are computed.
//!
//! A token passes through all layers, but in each layer only through some of the routed experts. So the parameters that
//! are active per token are those outside of the experts, plus the chosen share of each layer. Three things make a plain
//! product wrong. Layers may differ in the number and in the size of their experts. Layers that draft tokens are not
//! active at all, and only the configuration tells them from others; it may arrive after the last tensor. And tensors
//! arrive in any order. Therefore each layer keeps its own sums until the end: its parameters, and for each list of
//! experts the parameters of every numbered expert, and those of tensors that contain all experts.
//!
//! Mixtral 8x7B has 32 layers of 8 experts, and a token uses 2 of them. An expert has three matrices of 14,336 × 4,096:
//! 176,160,768 parameters.
//!
//! - routed: 32 × 8 × 176,160,768 = 45,097,156,608
//! - always active: 46,702,792,704 in total − 45,097,156,608 = 1,605,636,096
//! - active: 1,605,636,096 + 32 × 2 × 176,160,768 = 12,879,925,248
//!
//! A layer whose experts are unequal, or whose number of experts contradicts the configuration, makes the result unknown:
//! no share of such a list is certain.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{ExpertConfig, ExpertConfigs};
use super::{MixtureOfExperts, UnknownActive};
use crate::count::names::{Embedding, ExpertPart, RoutedExperts, TensorName};
use hf_meta_format::base::sort::Ordered;
use hf_meta_format::formats::TensorInfo;

/// Per-layer sums, from which the parameters of a mixture of experts are computed.
///
/// Only the configuration identifies draft layers, and it may arrive after the tensors. Therefore each layer has its
/// own sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpertSums {
    layers: Vec<LayerSums>,
    /// The index of each layer in `layers`, by its name.
    layer_indices: BTreeMap<Box<str>, usize>,
    /// The layer of the previous tensor. The next tensor usually belongs to the same layer.
    last: usize,
    /// The parameters of draft layers that are recognized by name.
    draft: u64,
    has_experts: bool,
    /// The number of expert groups, over all layers.
    groups: usize,
    experts: usize,
    /// True if a limit was exceeded. The mixture is unknown in that case.
    is_too_large: bool,
}

/// The parameters of a layer, and its routed experts by name without the layer, such as `.mlp.experts`.
#[derive(Clone, Debug, Default)]
struct LayerSums {
    /// The name, such as `model.layers.7`; empty for the tensors outside of all layers.
    name: Box<str>,
    number: Option<u64>,
    parameters: u64,
    /// The parameters of lookup tables besides the input embedding.
    lookup_tables: u64,
    /// The numbers of experts that the shapes of possible routers imply.
    routers: Vec<u64>,
    /// The first dimensions of tensors that may contain all experts.
    stacks: Vec<u64>,
    groups: BTreeMap<Box<str>, ExpertGroup>,
}

impl ExpertSums {
    /// The maximum numbers of layers, expert groups and experts. Published models have at most a few hundred layers
    /// and 50,000 experts. A hostile name must not allocate memory for as many as it claims.
    const MAX_LAYERS: usize = 4096;
    const MAX_GROUPS: usize = 8192;
    const MAX_EXPERTS: usize = 1 << 18;
    /// The maximum numbers of routers and of stacks per layer. A layer has one router, and a few other matrices whose
    /// shapes could be those of one.
    const MAX_ROUTERS: usize = 8;
    /// The maximum number of experts in a list with an ordinary name: as many as Qwen3-Next and `LongCat` have in a layer.
    const MAX_UNNAMED: u64 = 512;
    /// The maximum length of the name of a layer or of an expert group.
    const MAX_NAME_LENGTH: usize = 200;

    /// Adds a tensor. The sums cannot overflow, because the total was checked.
    pub(crate) fn add(&mut self, name: &TensorName<'_>, tensor: &TensorInfo, parameters: u64) {
        // Auxiliary tensors and scalars are not counted, so no expert has a share of them.
        if parameters == 0 {
            return;
        }
        // A draft head has its own name. A draft layer has a number, which only the configuration explains.
        if name.is_draft() {
            self.draft = self.draft.saturating_add(parameters);
            return;
        }
        let experts = name.experts(tensor);
        self.has_experts |= experts.as_ref().is_some_and(|experts| experts.is_proof);
        // Sums that lack a tensor are wrong, so nothing is added after a limit was exceeded.
        if !self.is_too_large {
            self.is_too_large = self.add_to_layer(name, tensor, experts, parameters).is_none();
        }
    }

    /// Adds a tensor to the sums of its layer; `None` if a limit is exceeded.
    fn add_to_layer(
        &mut self,
        name: &TensorName<'_>,
        tensor: &TensorInfo,
        experts: Option<RoutedExperts<'_>>,
        parameters: u64,
    ) -> Option<()> {
        let at = self.layer(name)?;
        let layer = &mut self.layers[at];
        layer.parameters = layer.parameters.saturating_add(parameters);
        if name.embedding() == Some(Embedding::LookupTable) {
            layer.lookup_tables = layer.lookup_tables.saturating_add(parameters);
        }
        // The names of routers and experts vary, but a router of [64, 2048] next to a stack of [64, 1024, 2048] is no
        // coincidence.
        let add = |known: &mut Vec<u64>, size: Option<u64>| {
            let has_room = known.len() < Self::MAX_ROUTERS;
            known.extend(size.filter(|size| has_room && !known.contains(size)));
        };
        add(&mut layer.routers, name.router_outputs(tensor));
        add(&mut layer.stacks, name.unnamed_stack(tensor));
        let Some(RoutedExperts { group, part, is_proof, is_unnamed }) = experts else {
            return Some(());
        };
        // Most lists in a layer contain no experts. They must not take the room of those that do.
        if let (true, ExpertPart::Numbered(number)) = (is_unnamed, part)
            && (number >= Self::MAX_UNNAMED || self.groups >= Self::MAX_GROUPS / 2)
        {
            return Some(());
        }
        let group = group.get(layer.name.len()..)?;
        if !layer.groups.contains_key(group) {
            self.groups += 1;
            if self.groups > Self::MAX_GROUPS || group.len() > Self::MAX_NAME_LENGTH {
                return None;
            }
            layer.groups.insert(group.into(), ExpertGroup::default());
        }
        let group = layer.groups.get_mut(group)?;
        group.is_proven |= is_proof;
        self.experts += group.add(part, parameters)?;
        (self.experts <= Self::MAX_EXPERTS).then_some(())
    }

    /// Returns the index of the layer of a tensor; `None` if a limit is exceeded.
    fn layer(&mut self, name: &TensorName<'_>) -> Option<usize> {
        let (key, number) = name.layer().unzip();
        let key = key.unwrap_or_default();
        if self.layers.get(self.last).is_some_and(|layer| *layer.name == *key) {
            return Some(self.last);
        }
        self.last = match self.layer_indices.get(key) {
            Some(known) => *known,
            None if self.layers.len() >= Self::MAX_LAYERS => return None,
            None if key.len() > Self::MAX_NAME_LENGTH => return None,
            None => {
                self.layer_indices.insert(key.into(), self.layers.len());
                self.layers.push(LayerSums { name: key.into(), number, ..LayerSums::default() });
                self.layers.len() - 1
            }
        };
        Some(self.last)
    }

    /// Finds experts with ordinary names: a list with as many equal elements as the router of its layer has outputs.
    fn find_unnamed(&mut self) {
        for layer in &mut self.layers {
            for group in layer.groups.values_mut() {
                group.is_proven |= layer.routers.iter().any(|size| group.is_list_of(*size));
                self.has_experts |= group.is_proven;
            }
        }
    }

    /// Returns the parameters of the mixture; `None` for a model without routed experts. `input` is the number of
    /// parameters in an input embedding that is not the output embedding.
    pub(crate) fn mixture(
        mut self,
        configs: &ExpertConfigs,
        total: u64,
        input: u64,
    ) -> Result<Option<MixtureOfExperts>, UnknownActive> {
        if !self.has_experts {
            self.find_unnamed();
        }
        if !self.has_experts {
            let is_routed =
                |layer: &LayerSums| layer.routers.iter().any(|e| layer.stacks.contains(e));
            // A count of all parameters as active would be wrong, and looks right.
            let is_mixture = configs.has_experts || self.layers.iter().any(is_routed);
            return if is_mixture { Err(UnknownActive::NoExperts) } else { Ok(None) };
        }
        if self.is_too_large {
            return Err(UnknownActive::TooManyExperts);
        }
        let tables = self.layers.iter().map(|layer| layer.lookup_tables);
        let lookup_tables = tables.fold(input, u64::saturating_add);
        let mut mixture =
            MixtureOfExperts { draft: self.draft, lookup_tables, ..MixtureOfExperts::default() };
        // Only layers in the same stack as layers with experts can be draft layers. A vision tower has its own stack.
        let with_experts = self.layers.iter().filter(|layer| !layer.groups.is_empty());
        let stacks: BTreeSet<_> = with_experts.map(LayerSums::stack).ordered();
        // The first reason by name is reported.
        for layer in self.layer_indices.values().map(|at| &self.layers[*at]) {
            if stacks.contains(layer.stack()) {
                layer.add_to(&mut mixture, configs)?;
            }
        }
        // What remains is used by every token: attention, norms, routers, shared experts and embeddings.
        let rest = total.saturating_sub(mixture.routed).saturating_sub(mixture.draft);
        Ok(Some(MixtureOfExperts { always_active: rest, ..mixture }))
    }
}

/// The ends of the names of adjugate experts in `GroveMoE`. Each of them serves several routed experts, so a token uses
/// at most as many as routed experts. Source: `modeling_grove_moe.py` of inclusionAI/GroveMoE-Inst, and llama.cpp.
const CHUNKED: [&str; 2] = ["chunk_experts", "_chexps"];

impl LayerSums {
    /// Returns the name without the number.
    fn stack(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(stack, _)| stack)
    }

    /// Adds the layer to a mixture.
    fn add_to(
        &self,
        mixture: &mut MixtureOfExperts,
        configs: &ExpertConfigs,
    ) -> Result<(), UnknownActive> {
        // DeepSeek-V3 stores its draft layer as `model.layers.61` behind 61 layers.
        if let (Ok(config), Some(number)) = (configs.find(&self.name), self.number)
            && config.is_draft(number)
        {
            mixture.draft = mixture.draft.saturating_add(self.parameters);
            mixture.lookup_tables = mixture.lookup_tables.saturating_sub(self.lookup_tables);
            return Ok(());
        }
        for (name, group) in self.groups.iter().filter(|(_, group)| group.is_proven) {
            let config = configs.find(&format!("{}{name}", self.name))?;
            let is_chunked = CHUNKED.iter().any(|end| name.ends_with(end));
            group.add_to(mixture, config, self.number, is_chunked)?;
            mixture.is_upper_bound |= config.has_zero_experts || is_chunked;
        }
        Ok(())
    }
}

/// The routed experts of one list.
#[derive(Clone, Debug, Default)]
struct ExpertGroup {
    /// The parameters of each numbered expert.
    numbered: Vec<u64>,
    /// The number of experts in stacked tensors, which contain all experts.
    stacked: Option<u64>,
    /// True if two stacked tensors have different numbers of experts.
    has_conflict: bool,
    /// The parameters of tensors that contain all experts, or their rows.
    joint: u64,
    /// True if a tensor proves that the group contains experts. Without proof, the group is ignored.
    is_proven: bool,
}

impl ExpertGroup {
    /// Returns whether the group consists of this many numbered experts of equal size.
    fn is_list_of(&self, experts: u64) -> bool {
        self.numbered.len() as u64 == experts && common_size(&self.numbered).is_ok()
    }

    /// Adds a tensor, and returns the number of new experts, including experts that are missing; `None` if the number
    /// of the expert is too large.
    fn add(&mut self, part: ExpertPart, parameters: u64) -> Option<usize> {
        let before = self.numbered.len();
        let sum = match part {
            ExpertPart::Numbered(number) => {
                let number = usize::try_from(number).ok();
                let number = number.filter(|number| *number < ExpertSums::MAX_EXPERTS)?;
                self.numbered.resize(before.max(number + 1), 0);
                &mut self.numbered[number]
            }
            ExpertPart::Stacked(experts) => {
                self.has_conflict |= self.stacked.is_some_and(|known| known != experts);
                self.stacked = Some(experts);
                &mut self.joint
            }
            ExpertPart::Rows => &mut self.joint,
        };
        *sum = sum.saturating_add(parameters);
        Some(self.numbered.len() - before)
    }

    /// Adds the experts of a layer to a mixture.
    fn add_to(
        &self,
        mixture: &mut MixtureOfExperts,
        config: &ExpertConfig,
        layer: Option<u64>,
        is_chunked: bool,
    ) -> Result<(), UnknownActive> {
        let experts = self.experts(config, layer)?;
        // The configuration states the number of routed experts, and nothing about adjugate ones.
        let sets = if is_chunked { Some(vec![experts]) } else { config.set_sizes(experts, layer) };
        let sets = sets.ok_or(UnknownActive::ConflictingExpertCount)?;
        let top_k = config.top_k(layer).ok_or(UnknownActive::MissingTopK)?;
        let top_k = if is_chunked { top_k.min(experts) } else { top_k };
        // The rows of a tensor with all experts have no borders, so they are divided evenly, among one set only.
        let is_divisible =
            self.joint.is_multiple_of(experts) && (self.joint == 0 || sets.len() == 1);
        // Experts of equal size belong to one set.
        let is_one_set = sets.len() > 1 && common_size(&self.numbered).is_ok();
        if !is_divisible || is_one_set || sets.iter().any(|&set| top_k > set) {
            return Err(UnknownActive::ConflictingExpertCount);
        }
        let mut numbered = &self.numbered[..];
        for set in sets {
            let length = usize::try_from(set).unwrap_or(usize::MAX).min(numbered.len());
            let (own, others) = numbered.split_at(length);
            let own = common_size(own)?.saturating_add(self.joint / experts);
            mixture.add_experts(set, top_k, own);
            numbered = others;
        }
        Ok(())
    }

    /// Returns the number of experts, which is at least 1.
    fn experts(&self, config: &ExpertConfig, layer: Option<u64>) -> Result<u64, UnknownActive> {
        let numbered = match self.numbered.len() as u64 {
            0 => None,
            numbered => Some(numbered),
        };
        // Both forms in one group, such as numbered weights and stacked biases, must agree.
        let is_equal = |(numbered, stacked)| numbered == stacked;
        if self.has_conflict || !numbered.zip(self.stacked).is_none_or(is_equal) {
            return Err(UnknownActive::ConflictingExpertCount);
        }
        let experts = numbered.or(self.stacked).or_else(|| config.experts(layer));
        experts.filter(|&experts| experts > 0).ok_or(UnknownActive::MissingExpertCount)
    }
}

/// Returns the number of parameters per expert. All experts must be of equal size. Without experts, it is 0.
fn common_size(experts: &[u64]) -> Result<u64, UnknownActive> {
    let size = experts.first().copied().unwrap_or_default();
    // A gap in the numbers: a file is missing, or pruning removed an expert.
    if experts.contains(&0) {
        return Err(UnknownActive::MissingExperts);
    }
    let is_common = experts.iter().all(|&other| other == size);
    if is_common { Ok(size) } else { Err(UnknownActive::UnequalExperts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::NamePatterns;
    use hf_meta_format::formats::Dtype;

    type Tensor<'a> = (&'a str, &'a [u64]);

    fn info(shape: &[u64]) -> TensorInfo {
        TensorInfo::new(Dtype::BF16, shape.to_vec(), (0, 0))
    }

    fn mixture(
        config: &str,
        tensors: &[Tensor<'_>],
    ) -> Result<Option<MixtureOfExperts>, UnknownActive> {
        let configs = ExpertConfigs::from_config(&serde_json::from_str(config).unwrap());
        let (mut sums, mut names) = (ExpertSums::default(), NamePatterns::default());
        let mut total = 1_000;
        for (name, shape) in tensors {
            let info = info(shape);
            let parameters = info.elements().unwrap();
            total += parameters;
            sums.add(&names.read(name), &info, parameters);
        }
        sums.mixture(&configs, total, 0)
    }

    /// Returns the active and the total parameters.
    fn active_and_total(tensors: &[Tensor<'_>]) -> Result<(u64, u64), UnknownActive> {
        let config = r#"{"num_experts":4,"num_experts_per_tok":2,"num_hidden_layers":2,
            "num_nextn_predict_layers":1}"#;
        mixture(config, tensors)
            .map(|found| found.map_or((0, 0), |moe| (moe.active(), moe.total())))
    }

    #[test]
    fn numbered_and_stacked_experts_are_counted_alike() {
        let numbered = [
            ("h.0.mlp.experts.0.w.weight", &[10, 3][..]),
            ("h.0.mlp.experts.1.w.weight", &[10, 3]),
            ("h.0.mlp.experts.2.w.weight", &[10, 3]),
            ("h.0.mlp.experts.3.w.weight", &[10, 3]),
            ("h.0.mlp.shared_experts.w.weight", &[10, 3]),
        ];
        assert_eq!(active_and_total(&numbered), Ok((1_090, 1_150)));
        let stacked = [
            ("h.0.mlp.experts.gate_up_proj", &[4, 5, 6][..]),
            ("h.1.mlp.experts.up_bias", &[4, 2]),
            ("h.1.mlp.experts.norm", &[4]),
        ];
        assert_eq!(active_and_total(&stacked), Ok((1_068, 1_132)));
        assert_eq!(active_and_total(&[("h.0.ffn.experts.mlp.w1", &[20, 6])]), Ok((1_060, 1_120)));
    }

    /// Mixtral 8x7B in a GGUF file from before April 2024, with the numbers its authors published.
    #[test]
    fn experts_of_older_gguf_files_are_counted() {
        let (ffn, kv, hidden) = (&[14336, 4096][..], &[1024, 4096][..], &[4096, 4096][..]);
        let parts = ["ffn_gate", "ffn_up", "ffn_down"];
        let layer = |layer: usize| {
            let experts = (0..8).flat_map(|expert| parts.map(|part| format!("{part}.{expert}")));
            let experts = experts.map(|name| (name, ffn));
            let attention = [("attn_q", hidden), ("attn_k", kv), ("attn_v", kv)];
            let rest = [("attn_output", hidden), ("ffn_gate_inp", &[8, 4096]), ("norms", &[8192])];
            let rest =
                attention.into_iter().chain(rest).map(|(name, shape)| (name.to_owned(), shape));
            experts
                .chain(rest)
                .map(move |(name, shape)| (format!("blk.{layer}.{name}.weight"), shape))
        };
        let embedding = &[32_000, 4096][..];
        let outside = [("token_embd", embedding), ("output", embedding), ("output_norm", &[3096])];
        let outside = outside.map(|(name, shape)| (format!("{name}.weight"), shape));
        let named: Vec<_> = (0..32).flat_map(layer).chain(outside).collect();
        let tensors: Vec<_> = named.iter().map(|(name, shape)| (&**name, *shape)).collect();
        let config = r#"{"num_experts":8,"num_experts_per_tok":2}"#;
        let moe = mixture(config, &tensors).unwrap().unwrap();
        assert_eq!((moe.total(), moe.active()), (46_702_792_704, 12_879_925_248));
        assert_eq!((moe.experts, moe.per_expert), (8, Some(32 * 3 * 14_336 * 4_096)));
    }

    /// DeepSeek stores draft layers after the last layer, or under a separate name. Layers of a vision tower are
    /// not draft layers.
    #[test]
    fn draft_layers_are_not_active() {
        let tensors = [
            ("model.layers.1.mlp.experts.w", &[4, 10, 1][..]),
            ("model.layers.2.mlp.experts.w", &[4, 10, 1]),
            ("model.layers.2.eh_proj.weight", &[7]),
            ("vision.layers.2.weight", &[5]),
            ("mtp.0.ffn.experts.9.w", &[4, 10]),
            ("model.mtp_layers.0.ffn.weight", &[6]),
        ];
        assert_eq!(active_and_total(&tensors), Ok((1_000 + 20 + 5, 1_000 + 40 + 47 + 5 + 40 + 6)));
    }

    /// ERNIE has experts for text and smaller ones for images. Experts of equal size cannot be two sets.
    #[test]
    fn sets_of_experts_differ_in_size() {
        let config = r#"{"moe_k":1,"moe_num_experts":[2,1]}"#;
        let sizes = |sizes: [u64; 3]| {
            let names = [0, 1, 2].map(|expert| format!("layers.1.mlp.experts.{expert}.w"));
            let shapes = sizes.map(|size| [size]);
            let tensors: Vec<_> =
                names.iter().zip(&shapes).map(|(name, shape)| (&**name, &shape[..])).collect();
            mixture(config, &tensors).map(|moe| moe.map(|moe| (moe.routed_active, moe.routed)))
        };
        assert_eq!(sizes([10, 10, 7]), Ok(Some((17, 27))));
        assert_eq!(sizes([10, 10, 10]), Err(UnknownActive::ConflictingExpertCount));
        assert_eq!(sizes([10, 7, 7]), Err(UnknownActive::UnequalExperts));
    }

    #[test]
    fn layers_may_differ() {
        let config = r#"{"num_experts":[2,3],"moe_topk":[1,2]}"#;
        let tensors = [
            ("model.layers.0.mlp.experts.w", &[2, 10, 1][..]),
            ("model.layers.1.mlp.experts.w", &[3, 10, 1]),
        ];
        let moe = mixture(config, &tensors).unwrap().unwrap();
        assert_eq!((moe.experts, moe.experts_per_token, moe.per_expert), (3, 2, None));
        assert_eq!((moe.active(), moe.routed), (1_030, 50));
    }

    /// The adjugate experts of `GroveMoE` in GGUF: 2 of 4 experts with 10 parameters, and at most 2 adjugate experts
    /// with 3.
    #[test]
    fn adjugate_experts_are_an_upper_bound() {
        let tensors = [
            ("blk.0.ffn_up_exps.weight", &[4, 10, 1][..]),
            ("blk.0.ffn_up_chexps.weight", &[2, 3, 1]),
        ];
        let moe = mixture(r#"{"num_experts":4,"num_experts_per_tok":2}"#, &tensors).unwrap();
        let moe = moe.unwrap();
        assert_eq!((moe.active(), moe.routed, moe.is_upper_bound), (1_026, 46, true));
    }

    /// A list with as many equal elements as a router has outputs consists of experts. A stack is reported, because it
    /// may have biases and scales under names that say as little.
    #[test]
    fn a_router_proves_experts_with_ordinary_names() {
        let lists = [
            "specialists.N.w",
            "specialists.N.gate.weight",
            "specialists.N.mlp.0.w",
            "moe.mlps.N.up.weight",
            "expertN.w",
            "experts_N.w",
            "mlp.expert_mlps.N.w",
            "moe.w1_N",
            "moe_ffn.N.w",
            "moe.N.w",
            "ffns.N.w",
            "expert.N.w",
        ];
        let config = r#"{"num_experts":4,"num_experts_per_tok":2}"#;
        let active = |config: &str, tensors: &[(String, Vec<u64>)]| {
            let tensors: Vec<_> = tensors.iter().map(|(name, shape)| (&**name, &**shape)).collect();
            mixture(config, &tensors).map(|moe| moe.map(|moe| (moe.active(), moe.routed)))
        };
        let router = |name: &str| (format!("layers.0.{name}.weight"), vec![4, 64]);
        for list in lists {
            let name = |expert: u64| format!("layers.0.{}", list.replace('N', &expert.to_string()));
            let mut tensors: Vec<_> = (0..4).map(|expert| (name(expert), vec![64, 32])).collect();
            tensors.push(router("moe.gate"));
            let parameters = 4 * 64 * 32;
            let expected = Ok(Some((1_000 + 4 * 64 + parameters / 2, parameters)));
            assert_eq!(active(config, &tensors), expected, "{list}");
            assert_eq!(active("{}", &tensors), Err(UnknownActive::MissingTopK), "{list}");
            tensors[0].1 = vec![64, 31];
            let is_unknown = active(config, &tensors).is_err();
            assert!(is_unknown, "{list}");
        }
        for stack in ["moe_w1", "ffn.w1", "ffn.w1.weight", "mlp_stack.up"] {
            let stack = |experts| (format!("layers.0.{stack}"), vec![experts, 64, 32]);
            let found = ["{}", config].map(|config| active(config, &[router("router"), stack(4)]));
            assert_eq!(found, [Err(UnknownActive::NoExperts); 2]);
            assert_eq!(active("{}", &[router("router"), stack(5)]), Ok(None));
            assert_eq!(active("{}", &[stack(4)]), Ok(None));
        }
        // Lists without a router, with another number of elements, in a router, or of a shared expert.
        let dense = [
            ("layers.0.fc_N.weight", "up"),
            ("layers.0.fc.N.weight", "up"),
            ("layers.0.router.fc.N.weight", "up"),
            ("layers.0.shared_experts.fc.N.weight", "gate"),
            ("layers.0.fc.1N.weight", "gate"),
            ("fc.N.weight", "gate"),
        ];
        for (list, other) in dense {
            let name = |at: u64| list.replace('N', &at.to_string());
            let mut tensors: Vec<_> = (0..4).map(|at| (name(at), vec![64, 32])).collect();
            tensors.push(router(other));
            assert_eq!(active("{}", &tensors), Ok(None), "{list}");
            tensors.push((name(4), vec![64, 32]));
            assert_eq!(active("{}", &tensors), Ok(None), "{list}");
        }
    }

    /// The lists `ffns` of object detectors have one element, and feed-forward layers may be convolutions.
    #[test]
    fn dense_models_have_no_experts() {
        let tensors = [
            ("layers.0.ffns.0.layers.0.0.weight", &[64, 32][..]),
            ("layers.0.mlp.dwconv.weight", &[64, 1, 3, 3]),
            ("layers.0.mlp.conv.weight", &[64, 32, 9]),
            ("layers.0.mlp.table_bias", &[2, 64]),
        ];
        assert_eq!(mixture("{}", &tensors), Ok(None));
        let experts = ("layers.0.mlp.experts.w", &[4, 6, 1][..]);
        let with_experts = [&tensors[..], &[experts]].concat();
        let config = r#"{"num_experts":4,"num_experts_per_tok":2}"#;
        assert_eq!(mixture(config, &with_experts).unwrap().unwrap().routed, 24);
    }

    #[test]
    fn conflicts_are_reported_with_a_reason() {
        let cases: [(&[Tensor<'_>], UnknownActive); 8] = [
            (&[("h.0.experts.0.w", &[4])], UnknownActive::ConflictingExpertCount),
            (&[("h.0.experts.3.w", &[4])], UnknownActive::MissingExperts),
            (&[("h.0.experts.4.w", &[4])], UnknownActive::ConflictingExpertCount),
            (&[("h.0.experts.w", &[64, 6, 1])], UnknownActive::ConflictingExpertCount),
            (
                &[("h.0.experts.w", &[4, 6, 1]), ("h.0.experts.v", &[8, 6, 1])],
                UnknownActive::ConflictingExpertCount,
            ),
            (
                &[
                    ("h.0.experts.0.w", &[4]),
                    ("h.0.experts.1.w", &[4]),
                    ("h.0.experts.2.w", &[4]),
                    ("h.0.experts.3.w", &[5]),
                ],
                UnknownActive::UnequalExperts,
            ),
            (&[("h.experts.18446744073709551615.w", &[4])], UnknownActive::TooManyExperts),
            (&[("h.0.experts.w", &[1 << 62, 1, 1])], UnknownActive::ConflictingExpertCount),
        ];
        for (tensors, reason) in cases {
            assert_eq!(active_and_total(tensors), Err(reason), "{tensors:?}");
        }
        let dense: [Tensor<'_>; 1] = [("h.0.mlp.weight", &[4, 4])];
        assert_eq!(active_and_total(&dense), Err(UnknownActive::NoExperts));
        assert_eq!(mixture(r#"{"num_experts":1}"#, &dense), Ok(None));
        let experts = ("h.0.experts.w", &[4, 6, 1][..]);
        assert_eq!(mixture("{}", &[experts]), Err(UnknownActive::MissingTopK));
        let rows = ("h.0.experts.w", &[4, 6][..]);
        let reason = Err(UnknownActive::MissingExpertCount);
        assert_eq!(mixture(r#"{"num_experts_per_tok":2}"#, &[rows]), reason);
    }

    #[test]
    fn hostile_names_take_bounded_memory() {
        let config = r#"{"num_experts_per_tok":2}"#;
        let names: [fn(usize) -> String; 3] = [
            |n| format!("layers.{n}.experts.w"),
            |n| format!("h.0.m{n}.experts.w"),
            |n| format!("h.0.m{n}.experts.262143.w"),
        ];
        for name in names {
            let names: Vec<_> = (0..10_000).map(name).collect();
            let tensors: Vec<_> = names.iter().map(|name| (&**name, &[4_u64, 6, 1][..])).collect();
            assert_eq!(mixture(config, &tensors), Err(UnknownActive::TooManyExperts));
            let reversed: Vec<_> = tensors.into_iter().rev().collect();
            assert_eq!(mixture(config, &reversed), Err(UnknownActive::TooManyExperts));
        }
        let zeros = "0".repeat(1_000);
        for long in [format!("h.{zeros}1.experts.w"), format!("h.1.m{zeros}.experts.w")] {
            assert_eq!(mixture(config, &[(&long, &[4, 6, 1])]), Err(UnknownActive::TooManyExperts));
        }
    }
}
