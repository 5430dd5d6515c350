//! Mixtures of experts: the number of parameters that are active for one token.

use super::json_object::JsonObject;
use super::position::{TensorPosition, leading_number};
use crate::formats::TensorInfo;

/// The parameters of a mixture of experts that are active for one token.
///
/// All routed experts have the same size, so the number is
/// `always_active + experts_per_token × per_expert`. Everything else is always active: embeddings, attention,
/// routers and shared experts. Layers that draft tokens ahead (multi-token prediction) are never active,
/// because the model works without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MixtureOfExperts {
    /// The number of routed experts in a layer.
    pub experts: u64,
    /// The number of experts that a token is routed to.
    pub experts_per_token: u64,
    /// The parameters of one expert, summed over the layers.
    pub per_expert: u64,
    /// The parameters that are active for every token.
    pub always_active: u64,
    /// The parameters of layers that draft tokens ahead, including their experts.
    pub draft: u64,
}

impl MixtureOfExperts {
    /// Returns the number of parameters that are active for one token.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.always_active.saturating_add(self.experts_per_token.saturating_mul(self.per_expert))
    }

    /// Returns the number of all parameters.
    #[must_use]
    pub fn total(&self) -> u64 {
        let routed = self.experts.saturating_mul(self.per_expert);
        self.always_active.saturating_add(self.draft).saturating_add(routed)
    }
}

/// The numbers of experts in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertCounts {
    experts: u64,
    per_token: u64,
    /// The number of layers that do not draft tokens; `None` if no numbered layer does.
    layers: Option<u64>,
}

impl ExpertCounts {
    const EXPERTS: [&str; 4] = [
        "num_local_experts", // Mixtral, Llama 4 and gpt-oss
        "num_experts",       // Qwen and OLMoE
        "n_routed_experts",  // DeepSeek, GLM and Kimi
        "moe_num_experts",   // ERNIE and DBRX
    ];
    const PER_TOKEN: [&str; 5] = [
        "num_experts_per_tok", // all but ERNIE and DBRX
        "experts_per_token",   // gpt-oss
        "moe_topk",            // Hunyuan
        "moe_top_k",           // DBRX
        "moe_k",               // ERNIE
    ];

    pub(super) fn from_config(model: &JsonObject<'_>) -> Option<Self> {
        let inner = ["text_config", "llm_config", "ffn_config"];
        let mut inner = inner.into_iter().filter_map(|key| model.get::<JsonObject>(key));
        Self::from_object(model).or_else(|| inner.find_map(|config| Self::from_object(&config)))
    }

    fn from_object(config: &JsonObject<'_>) -> Option<Self> {
        let experts = unanimous(config, &Self::EXPERTS)?;
        let per_token = unanimous(config, &Self::PER_TOKEN)?;
        let drafts = unanimous(config, &["num_nextn_predict_layers"]);
        let layers = drafts.and_then(|_| config.get("num_hidden_layers"));
        (per_token <= experts).then_some(Self { experts, per_token, layers })
    }
}

/// Returns the number under these keys; `None` if there is none, or if two differ.
fn unanimous(config: &JsonObject<'_>, keys: &[&str]) -> Option<u64> {
    let mut found =
        keys.iter().filter_map(|key| config.number(key)).filter(|&number: &u64| number > 0);
    let first = found.next()?;
    found.all(|other: u64| other == first).then_some(first)
}

/// The number from which on layers share one sum. Published models have at most a few hundred layers, and
/// a hostile name must not reserve memory for as many as it claims.
const MOST_LAYERS: u64 = 4096;

/// Sums over the tensors of a model, from which the figures of a mixture of experts follow.
///
/// Only the configuration says which layers draft tokens, and it may arrive after the tensors. Therefore each
/// layer has sums of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpertSums {
    /// The sums of each layer, by its number.
    layers: Vec<LayerSums>,
    /// The sums of tensors that are in no numbered layer.
    elsewhere: LayerSums,
    /// The parameters of layers that draft tokens by their name.
    mtp: u64,
}

/// The parameters of a layer, and the number of experts that names and shapes show.
#[derive(Clone, Debug, Default)]
struct LayerSums {
    parameters: u64,
    /// The parameters of routed experts.
    routed: u64,
    /// One more than the highest number of an expert.
    numbered: u64,
    /// The first dimension of the tensors that hold all experts.
    stacked: Option<u64>,
    /// True if that dimension differs between two tensors.
    is_unclear: bool,
}

impl ExpertSums {
    /// Adds a tensor that holds some parameters. The sums are parts of the total, which was checked.
    pub(super) fn add(
        &mut self,
        position: &TensorPosition<'_>,
        tensor: &TensorInfo,
        parameters: u64,
    ) {
        if parameters == 0 {
            return;
        }
        if position.is_mtp {
            self.mtp = self.mtp.saturating_add(parameters);
            return;
        }
        let sums = self.layer(position.layer);
        sums.parameters = sums.parameters.saturating_add(parameters);
        if let Some(expert) = position.expert {
            sums.add_expert(expert, tensor, parameters);
        }
    }

    fn layer(&mut self, number: Option<u64>) -> &mut LayerSums {
        let number = number.and_then(|number| usize::try_from(number.min(MOST_LAYERS)).ok());
        let Some(number) = number else { return &mut self.elsewhere };
        if self.layers.len() <= number {
            self.layers.resize_with(number + 1, LayerSums::default);
        }
        &mut self.layers[number]
    }

    /// Returns the figures of the mixture, if the configuration and the tensors agree on the number of
    /// experts.
    pub(super) fn mixture(
        &self,
        counts: Option<ExpertCounts>,
        total: u64,
    ) -> Option<MixtureOfExperts> {
        let ExpertCounts { experts, per_token, layers } = counts?;
        let first_draft = layers
            .map_or(usize::MAX, |layers| layers.min(MOST_LAYERS).try_into().unwrap_or(usize::MAX));
        let (own, draft) = self.layers.split_at(first_draft.min(self.layers.len()));
        let mut sums = self.elsewhere.clone();
        for layer in own {
            sums.merge(layer);
        }
        let draft = draft.iter().fold(self.mtp, |sum, layer| sum.saturating_add(layer.parameters));
        sums.agrees_with(experts).then(|| MixtureOfExperts {
            experts,
            experts_per_token: per_token,
            per_expert: sums.routed / experts,
            always_active: total - draft - sums.routed,
            draft,
        })
    }
}

impl LayerSums {
    fn add_expert(&mut self, expert: &str, info: &TensorInfo, parameters: u64) {
        self.routed = self.routed.saturating_add(parameters);
        match leading_number(expert) {
            Some(number) => self.numbered = self.numbered.max(number.saturating_add(1)),
            None => self.add_stacked(info.shape.first().copied()),
        }
    }

    fn add_stacked(&mut self, length: Option<u64>) {
        self.is_unclear |= self.stacked.is_some() && length.is_some() && self.stacked != length;
        self.stacked = self.stacked.or(length);
    }

    fn merge(&mut self, other: &Self) {
        self.parameters = self.parameters.saturating_add(other.parameters);
        self.routed = self.routed.saturating_add(other.routed);
        self.numbered = self.numbered.max(other.numbered);
        self.is_unclear |= other.is_unclear;
        self.add_stacked(other.stacked);
    }

    /// Returns whether the tensors show that many experts, all of the same size.
    fn agrees_with(&self, experts: u64) -> bool {
        self.routed > 0
            && !self.is_unclear
            && (self.numbered == 0 || self.numbered == experts)
            && self.stacked.is_none_or(|stacked| stacked == experts)
            && self.routed.is_multiple_of(experts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    fn counts(json: &str) -> Option<(u64, u64)> {
        let model: JsonObject = serde_json::from_str(json).unwrap();
        ExpertCounts::from_config(&model).map(|counts| (counts.experts, counts.per_token))
    }

    #[test]
    fn the_configuration_gives_the_numbers_of_experts() {
        let cases = [
            (r#"{"num_local_experts":8,"num_experts_per_tok":2}"#, Some((8, 2))),
            (
                r#"{"n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8}"#,
                Some((256, 8)),
            ),
            (
                r#"{"num_local_experts":32,"experts_per_token":4,"num_experts_per_tok":4}"#,
                Some((32, 4)),
            ),
            (r#"{"text_config":{"num_experts":128,"num_experts_per_tok":8}}"#, Some((128, 8))),
            (r#"{"ffn_config":{"moe_num_experts":16,"moe_top_k":4}}"#, Some((16, 4))),
            (r#"{"num_experts":8,"num_local_experts":16,"num_experts_per_tok":2}"#, None),
            (r#"{"num_experts":8}"#, None),
            (r#"{"num_experts":8,"num_experts_per_tok":9}"#, None),
            (r#"{"num_experts":0,"num_experts_per_tok":0}"#, None),
            (r#"{"num_experts":64,"moe_topk":[8,8]}"#, None),
            ("{}", None),
        ];
        for (json, expected) in cases {
            assert_eq!(counts(json), expected, "{json}");
        }
    }

    fn mixture(tensors: &[(&str, &[u64])]) -> Option<(u64, u64)> {
        let counts = ExpertCounts { experts: 4, per_token: 2, layers: Some(2) };
        let mut experts = ExpertSums::default();
        let mut total = 1_000;
        for (name, shape) in tensors {
            let info =
                TensorInfo { dtype: Dtype::BF16, shape: shape.to_vec(), data_offsets: (0, 0) };
            let parameters = info.elements().unwrap();
            let position = TensorPosition::new(name);
            total += if position.expert.is_some() { parameters } else { 0 };
            experts.add(&position, &info, parameters);
        }
        experts.mixture(Some(counts), total).map(|found| (found.active(), found.total()))
    }

    #[test]
    fn experts_are_counted_one_by_one_or_in_one_tensor() {
        let numbered = [
            ("h.0.mlp.experts.0.w.weight", &[10, 3][..]),
            ("h.0.mlp.experts.1.w.weight", &[10, 3]),
            ("h.0.mlp.experts.2.w.weight", &[10, 3]),
            ("h.0.mlp.experts.3.w.weight", &[10, 3]),
            ("h.0.mlp.shared_experts.w.weight", &[10, 3]),
        ];
        assert_eq!(mixture(&numbered), Some((1_060, 1_120)));
        let stacked =
            [("h.0.mlp.experts.gate_up_proj", &[4, 5, 6][..]), ("h.1.mlp.experts.b", &[4])];
        assert_eq!(mixture(&stacked), Some((1_062, 1_124)));
    }

    /// DeepSeek stores them in a layer after the last one, or under a name of their own.
    #[test]
    fn draft_layers_are_not_active() {
        let tensors = [
            ("model.layers.1.mlp.experts.w", &[4, 10][..]),
            ("model.layers.2.mlp.experts.w", &[4, 10]),
            ("model.layers.2.eh_proj.weight", &[7]),
            ("mtp.0.ffn.experts.9.w", &[4, 10]),
        ];
        let dense = 1_000;
        assert_eq!(mixture(&tensors), Some((dense + 20 - 7, dense + 120)));
    }

    #[test]
    fn without_agreement_there_is_no_figure() {
        let cases: [&[(&str, &[u64])]; 6] = [
            &[],
            &[("h.0.mlp.weight", &[4, 4])],
            &[("h.0.experts.0.w", &[4])],
            &[("h.0.experts.4.w", &[4])],
            &[("h.0.experts.w", &[64, 6])],
            &[("h.0.experts.w", &[4, 6]), ("h.0.experts.v", &[8, 6])],
        ];
        for tensors in cases {
            assert_eq!(mixture(tensors), None, "{tensors:?}");
        }
        assert_eq!(mixture(&[("h.0.experts.3.w", &[5])]), None, "not the same for each");
        let highest = [("h.experts.18446744073709551615.w", &[4][..])];
        assert_eq!(mixture(&highest), None);
    }
}
