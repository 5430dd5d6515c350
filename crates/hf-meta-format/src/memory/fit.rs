//! The answer to the question whether a model fits into a memory.

use std::cmp::Reverse;

use serde::Serialize;

use super::{CacheError, Memory};
use crate::formats::RepoPath;

/// The origin of a context length.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ContextSource {
    /// The options.
    Option,
    /// The maximum of the model, from its configuration.
    Config,
    /// An assumption, because the model states no maximum.
    Default,
}

/// The answer to the question whether a model fits into a memory.
///
/// ```
/// use hf_meta_format::memory::{CacheLayout, Memory, MemoryOptions};
///
/// let config = br#"{"model_type":"llama","dtype":"bfloat16","max_position_embeddings":8192}"#;
/// let options = MemoryOptions { budget: Some(16_000_000_000), ..MemoryOptions::default() };
/// let memory = Memory::new(13_500_000_000, CacheLayout::from_config_json(config), options);
/// let fit = memory.fit.unwrap();
/// assert_eq!((fit.fits, fit.longest_context), (Some(false), Some(4_768)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fit {
    /// The size of the memory in bytes.
    pub budget: u64,
    /// `true` if weights and cache fit; `None` if it is unknown.
    pub fits: Option<bool>,
    /// The reason why it is unknown.
    pub reason: Option<CacheError>,
    /// The longest context that fits, up to the maximum of the model; 0 if none does. `None` if it is unknown, or if the
    /// model has neither a cache nor a maximum.
    pub longest_context: Option<u64>,
    /// The number of sequences of this context that fit; `None` if it is unknown or unlimited.
    pub sequences: Option<u64>,
    /// The quantizations in the repository, largest first. Empty for weights that have no quantization in their name.
    pub quantizations: Vec<QuantizationFit>,
}

/// A quantization in a repository, with the cache of the quantization that was read.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QuantizationFit {
    /// The name, such as `Q4_K_M`.
    pub quantization: String,
    /// The path of the weights.
    pub path: RepoPath,
    /// The bytes of the weights: of the files, unless it is the quantization that was read.
    pub weight_bytes: u64,
    /// The bytes of weights and cache; `None` if the cache is unknown.
    pub total_bytes: Option<u64>,
    /// `true` if weights and cache fit; `None` if it is unknown.
    pub fits: Option<bool>,
}

impl Fit {
    /// Answers for the conditions of a memory.
    pub(super) fn new(memory: &Memory, budget: u64) -> Self {
        let maximum = memory.max_context();
        let too_long = maximum.filter(|maximum| memory.context > *maximum);
        let too_long =
            too_long.map(|maximum| CacheError::ContextTooLong { context: memory.context, maximum });
        let reason = too_long.or_else(|| memory.unknown.clone());
        let total = memory.total_bytes.filter(|_| reason.is_none());
        let fits = fits(memory.weight_bytes, total, budget);
        let batch = memory.options.batch.unwrap_or(1);
        let sequences = memory.sequence_bytes().and_then(|bytes| {
            let free = u128::from(budget.saturating_sub(memory.weight_bytes));
            let sequences = (free * u128::from(batch)).checked_div(u128::from(bytes))?;
            u64::try_from(sequences).ok()
        });
        Self {
            budget,
            fits,
            reason: reason.filter(|_| fits.is_none()),
            longest_context: memory.longest_context(budget),
            sequences,
            quantizations: Vec::new(),
        }
    }

    /// Returns the largest quantization that fits.
    #[must_use]
    pub fn largest_quantization(&self) -> Option<&QuantizationFit> {
        self.quantizations.iter().find(|quantization| quantization.fits == Some(true))
    }
}

impl Memory {
    /// Adds the quantizations in a repository to the answer: their names, paths and sizes in bytes.
    pub fn add_quantizations(&mut self, found: Vec<(String, RepoPath, u64)>) {
        let (cache, context) = (self.sequence_bytes(), self.context);
        let cache = cache.filter(|_| self.max_context().is_none_or(|maximum| context <= maximum));
        let Some(fit) = &mut self.fit else { return };
        let quantizations = found.into_iter().map(|(quantization, path, weight_bytes)| {
            let total_bytes = cache.and_then(|cache| cache.checked_add(weight_bytes));
            let fits = fits(weight_bytes, total_bytes, fit.budget);
            QuantizationFit { quantization, path, weight_bytes, total_bytes, fits }
        });
        fit.quantizations = quantizations.collect();
        fit.quantizations.sort_by_key(|quantization| Reverse(quantization.weight_bytes));
    }
}

/// Returns whether a total fits. Weights alone can be too large.
fn fits(weights: u64, total: Option<u64>, budget: u64) -> Option<bool> {
    match total {
        Some(total) => Some(total <= budget),
        None => (weights > budget).then_some(false),
    }
}
