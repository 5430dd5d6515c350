//! Mixtures of experts: the number of parameters that are active per token.

mod config;
mod sums;

use serde::Serialize;
use thiserror::Error;

pub(super) use self::config::ExpertConfigs;
pub(super) use self::sums::ExpertSums;

/// The parameters of a mixture of experts, and how many of them are active per token.
///
/// Everything except the routed experts is always active: embeddings, attention, routers and shared experts.
/// Multi-token prediction layers, which draft tokens, are never counted as active, because the model works without
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MixtureOfExperts {
    /// The number of routed experts per layer; the maximum if layers differ.
    pub experts: u64,
    /// The number of experts that each token is routed to per layer; the maximum if layers differ.
    pub experts_per_token: u64,
    /// The number of parameters of one expert, summed over all layers. `None` if layers differ in the number of
    /// experts or in the number of experts per token.
    pub per_expert: Option<u64>,
    /// The number of parameters in all routed experts.
    pub routed: u64,
    /// The number of parameters in routed experts that are active per token.
    pub routed_active: u64,
    /// The number of parameters that are active for every token.
    pub always_active: u64,
    /// The number of parameters in lookup tables: the input embedding unless it is also the output embedding,
    /// per-layer embeddings and n-gram tables. Each token uses a few of their rows.
    pub lookup_tables: u64,
    /// The number of parameters in layers that draft tokens, including their experts.
    pub draft: u64,
    /// `true` if a token may use fewer parameters, because the router can select an expert without parameters, or two
    /// experts that share a part.
    pub is_upper_bound: bool,
}

impl MixtureOfExperts {
    /// Returns the number of parameters that are active per token.
    pub fn active(&self) -> u64 {
        self.always_active.saturating_add(self.routed_active)
    }

    /// Returns the number of parameters that are active per token, excluding lookup tables, as in many published
    /// counts.
    pub fn active_without_lookup_tables(&self) -> u64 {
        self.active().saturating_sub(self.lookup_tables)
    }

    /// Returns the total number of parameters.
    pub fn total(&self) -> u64 {
        self.always_active.saturating_add(self.draft).saturating_add(self.routed)
    }

    /// Adds experts of equal size: their number, the number per token, and the parameters of each.
    pub(super) fn add_experts(&mut self, experts: u64, per_token: u64, parameters: u64) {
        let is_first = self.experts == 0;
        let is_alike = (self.experts, self.experts_per_token) == (experts, per_token);
        self.per_expert = match self.per_expert {
            Some(sum) if is_alike => Some(sum.saturating_add(parameters)),
            None if is_first => Some(parameters),
            _ => None,
        };
        self.experts = self.experts.max(experts);
        self.experts_per_token = self.experts_per_token.max(per_token);
        self.routed = self.routed.saturating_add(experts.saturating_mul(parameters));
        let active = per_token.saturating_mul(parameters);
        self.routed_active = self.routed_active.saturating_add(active);
    }
}

/// The reason why the active parameters of a model with routed experts could not be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnknownActive {
    /// No configuration specifies the number of experts per token.
    #[error("no configuration specifies the number of experts per token")]
    MissingTopK,
    /// The configuration specifies several numbers of experts per token.
    #[error("the configuration specifies several numbers of experts per token")]
    AmbiguousTopK,
    /// The experts are stored as rows of one matrix, and no configuration specifies their number.
    #[error("no configuration specifies the number of experts")]
    MissingExpertCount,
    /// The tensors and the configuration disagree about the number of experts.
    #[error("the tensors and the configuration disagree about the number of experts")]
    ConflictingExpertCount,
    /// The configuration or a router implies experts, but no tensor has the name of an expert.
    #[error(
        "the configuration or a router implies experts, but no tensor has the name of an expert"
    )]
    NoExperts,
    /// Some experts are missing from the tensors.
    #[error("some experts are missing from the tensors")]
    MissingExperts,
    /// Experts of the same layer differ in size.
    #[error("experts of the same layer differ in size")]
    UnequalExperts,
    /// There are more layers or experts than in any known model.
    #[error("there are more layers or experts than in any known model")]
    TooManyExperts,
}
