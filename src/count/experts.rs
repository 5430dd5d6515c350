//! Mixtures of experts: the number of parameters that are active for one token.

use std::fmt;

use serde::Serialize;

/// The parameters of a mixture of experts that are active for one token.
///
/// Everything but the routed experts is always active: embeddings, attention, routers and shared experts. Layers
/// that draft tokens ahead (multi-token prediction) are never active, because the model works without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MixtureOfExperts {
    /// The number of routed experts in a layer; the largest one if layers differ.
    pub experts: u64,
    /// The number of experts that a token is routed to in a layer; the largest one if layers differ.
    pub experts_per_token: u64,
    /// The parameters of one expert, summed over the layers. `None` if layers differ in the number of experts, or in
    /// the number that a token is routed to.
    pub per_expert: Option<u64>,
    /// The parameters of all routed experts.
    pub routed: u64,
    /// The parameters of the routed experts that are active for one token.
    pub routed_active: u64,
    /// The parameters that are active for every token.
    pub always_active: u64,
    /// The parameters of the input embedding, of which a token uses one row; 0 if it is the output embedding as well.
    pub input_embedding: u64,
    /// The parameters of layers that draft tokens ahead, including their experts.
    pub draft: u64,
    /// True if a token may use fewer parameters, because the router can choose an expert without parameters.
    pub is_upper_bound: bool,
}

impl MixtureOfExperts {
    /// Returns the number of parameters that are active for one token.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.always_active.saturating_add(self.routed_active)
    }

    /// Returns the number of parameters that are active for one token, without the input embedding. Many published
    /// figures are without it.
    #[must_use]
    pub fn active_without_input_embedding(&self) -> u64 {
        self.active().saturating_sub(self.input_embedding)
    }

    /// Returns the number of all parameters.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.always_active.saturating_add(self.draft).saturating_add(self.routed)
    }

    /// Adds experts of the same size: how many there are, how many of them a token is routed to, and the parameters
    /// of each one.
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

/// The reason why the active parameters of a model with routed experts are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnknownActive {
    /// No configuration gives the number of experts that a token is routed to.
    MissingTopK,
    /// The configuration gives several numbers of experts that a token is routed to.
    SeveralTopK,
    /// The experts are stored as rows of one matrix, and no configuration gives their number.
    MissingExpertCount,
    /// The tensors show another number of experts than the configuration.
    ConflictingExpertCount,
    /// Some experts are not among the tensors.
    MissingExperts,
    /// The experts of one layer differ in size.
    UnequalExperts,
    /// There are more layers or experts than in any known model.
    TooMany,
}

impl fmt::Display for UnknownActive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissingTopK => {
                "no configuration gives the number of experts that a token is routed to"
            }
            Self::SeveralTopK => {
                "the configuration gives several numbers of experts that a token is routed to"
            }
            Self::MissingExpertCount => "no configuration gives the number of experts",
            Self::ConflictingExpertCount => {
                "the tensors show another number of experts than the configuration"
            }
            Self::MissingExperts => "some experts are not among the tensors",
            Self::UnequalExperts => "the experts of a layer differ in size",
            Self::TooMany => "there are more layers or experts than in any known model",
        })
    }
}
