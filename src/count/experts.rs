//! Mixtures of experts: how many of the parameters work on one token.

use super::json_object::Object;
use crate::formats::TensorInfo;

/// How many parameters of a mixture of experts work on one token.
///
/// The experts that a token is routed to are all alike, so that is
/// `always_active + experts_per_token × per_expert`. What is no routed expert is always active, embeddings,
/// attention, routers and shared experts, but for the layers that draft tokens ahead (multi-token
/// prediction), which the model works without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MixtureOfExperts {
    /// The routed experts of a layer.
    pub experts: u64,
    /// How many of them a token is routed to.
    pub experts_per_token: u64,
    /// The parameters of one expert, summed over the layers.
    pub per_expert: u64,
    /// The parameters that work on every token.
    pub always_active: u64,
    /// The parameters of layers that draft tokens ahead, experts among them.
    pub draft: u64,
}

impl MixtureOfExperts {
    /// The parameters that work on one token.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.always_active.saturating_add(self.experts_per_token.saturating_mul(self.per_expert))
    }

    /// All parameters.
    #[must_use]
    pub fn total(&self) -> u64 {
        let routed = self.experts.saturating_mul(self.per_expert);
        self.always_active.saturating_add(self.draft).saturating_add(routed)
    }
}

/// Whether a tensor is of an expert that tokens are routed to. Shared experts work on every token.
pub(super) fn is_routed(name: &str) -> bool {
    place(name).is_some() && !name.contains("shared_experts")
}

/// What follows the container of the experts in a name: the number of one, or the name of a tensor that
/// holds all of them.
fn place(name: &str) -> Option<&str> {
    name.split_once(".experts.").map(|(_, place)| place)
}

/// Whether a tensor is of a layer that drafts tokens ahead: by its name, or because it comes after the
/// layers of the model itself.
fn is_draft(name: &str, layers: Option<u64>) -> bool {
    let number = || name.split_once("layers.")?.1.split('.').next()?.parse::<u64>().ok();
    name.split('.').next() == Some("mtp")
        || layers.is_some_and(|layers| number().is_some_and(|number| number >= layers))
}

/// The numbers of experts that a configuration gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertCounts {
    experts: u64,
    per_token: u64,
    /// The layers without those that draft tokens, where there are such.
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

    /// Whether there are layers that draft tokens.
    pub(super) fn sets_layers_apart(self) -> bool {
        self.layers.is_some()
    }

    pub(super) fn read(model: &Object<'_>) -> Option<Self> {
        let inner = ["text_config", "llm_config", "ffn_config"];
        let mut inner = inner.into_iter().filter_map(|key| model.get::<Object>(key));
        Self::of(model).or_else(|| inner.find_map(|config| Self::of(&config)))
    }

    fn of(config: &Object<'_>) -> Option<Self> {
        let experts = agreed(config, &Self::EXPERTS)?;
        let per_token = agreed(config, &Self::PER_TOKEN)?;
        let drafts = agreed(config, &["num_nextn_predict_layers"]);
        let layers = drafts.and_then(|_| config.get("num_hidden_layers"));
        (per_token <= experts).then_some(Self { experts, per_token, layers })
    }
}

/// The number under these keys; `None` where there is none, or where two differ.
fn agreed(config: &Object<'_>, keys: &[&str]) -> Option<u64> {
    let mut found = keys.iter().filter_map(|key| config.get(key)).filter(|&number| number > 0);
    let first = found.next()?;
    found.all(|other: u64| other == first).then_some(first)
}

/// The parameters of routed experts, and what their names and shapes tell of how many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Experts {
    parameters: u64,
    draft: u64,
    /// One more than the highest number of an expert.
    numbered: u64,
    /// The first dimension of the tensors that hold all experts.
    stacked: Option<u64>,
    is_unclear: bool,
}

impl Experts {
    /// Adds a tensor; most are of no expert and change nothing. Both sums are parts of the total, which
    /// was checked.
    pub(super) fn add(
        &mut self,
        counts: ExpertCounts,
        name: &str,
        info: &TensorInfo,
        parameters: u64,
    ) {
        if parameters == 0 {
            return;
        }
        if is_draft(name, counts.layers) {
            self.draft = self.draft.saturating_add(parameters);
            return;
        }
        if !is_routed(name) {
            return;
        }
        self.parameters = self.parameters.saturating_add(parameters);
        let number = place(name).and_then(|place| place.split('.').next()?.parse::<u64>().ok());
        if let Some(number) = number {
            self.numbered = self.numbered.max(number.saturating_add(1));
            return;
        }
        let length = info.shape.first().copied();
        self.is_unclear |= self.stacked.is_some() && self.stacked != length;
        self.stacked = length;
    }

    /// Adds what other tensors told.
    pub(super) fn merge(&mut self, other: &Self) {
        self.parameters = self.parameters.saturating_add(other.parameters);
        self.draft = self.draft.saturating_add(other.draft);
        self.numbered = self.numbered.max(other.numbered);
        let differ =
            self.stacked.is_some() && other.stacked.is_some() && self.stacked != other.stacked;
        self.is_unclear |= other.is_unclear || differ;
        self.stacked = self.stacked.or(other.stacked);
    }

    /// The mixture, if the configuration and the tensors agree on how many experts there are.
    pub(super) fn mixture(
        &self,
        counts: Option<ExpertCounts>,
        total: u64,
    ) -> Option<MixtureOfExperts> {
        let ExpertCounts { experts, per_token, .. } = counts?;
        let agrees = |found: u64| found == experts;
        let is_clear = self.parameters > 0
            && !self.is_unclear
            && (self.numbered == 0 || agrees(self.numbered))
            && self.stacked.is_none_or(agrees)
            && self.parameters.is_multiple_of(experts);
        is_clear.then(|| MixtureOfExperts {
            experts,
            experts_per_token: per_token,
            per_expert: self.parameters / experts,
            always_active: total - self.draft - self.parameters,
            draft: self.draft,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    fn counts(json: &str) -> Option<(u64, u64)> {
        let model: Object = serde_json::from_str(json).unwrap();
        ExpertCounts::read(&model).map(|counts| (counts.experts, counts.per_token))
    }

    #[test]
    fn numbers_of_a_configuration() {
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
        let mut experts = Experts::default();
        let mut total = 1_000;
        for (name, shape) in tensors {
            let info =
                TensorInfo { dtype: Dtype::BF16, shape: shape.to_vec(), data_offsets: (0, 0) };
            let parameters = info.elements().unwrap();
            total += if is_routed(name) { parameters } else { 0 };
            experts.add(counts, name, &info, parameters);
        }
        experts.mixture(Some(counts), total).map(|found| (found.active(), found.total()))
    }

    #[test]
    fn experts_one_by_one_and_in_one_tensor() {
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

    /// As `DeepSeek` stores them, once in a layer after the last and once under a name of their own.
    #[test]
    fn layers_that_draft_tokens_are_not_active() {
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
    fn what_is_not_clear_is_left_out() {
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
